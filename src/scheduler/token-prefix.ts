// Comparing token lists as bytes: timelines of 100,000 tokens are compared at memory speed.

/** Whether `prefix` is a prefix of `tokens` (or equal to it). */
export function isPrefix(prefix: Int32Array, tokens: Int32Array): boolean {
  if (prefix.length > tokens.length) return false;
  return Buffer.compare(bytesOf(prefix), bytesOf(tokens.subarray(0, prefix.length))) === 0;
}

/** The longest of `entries` whose tokens are a prefix of `tokens`, of at most `maxTokens` tokens. */
export function longestPrefixOf<E extends { tokens: Int32Array }>(
  entries: Iterable<E>,
  tokens: Int32Array,
  maxTokens = tokens.length,
): E | undefined {
  let best: E | undefined;
  for (const entry of entries) {
    const { length } = entry.tokens;
    if (length > maxTokens || length <= (best?.tokens.length ?? 0)) continue;
    if (isPrefix(entry.tokens, tokens)) best = entry;
  }
  return best;
}

function bytesOf(tokens: Int32Array): Uint8Array {
  return new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
}
