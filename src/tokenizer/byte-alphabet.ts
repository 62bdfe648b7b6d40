// GPT-2's alphabet: every byte has one printable character, so that vocabularies of byte strings can be written as
// text. Printable Latin-1 bytes stand for themselves, the other 68 are U+0100, U+0101, … in order.

const isPrintable = (byte: number): boolean =>
  (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);

/** One past the largest code unit that stands for a byte. */
const ALPHABET_END = 0x100 + 68;

/** Character of each byte, indexed by the byte. */
export const BYTE_CHARS: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
})();

const charBytes = (() => {
  const table = new Int16Array(ALPHABET_END).fill(-1);
  for (let byte = 0; byte < 256; byte++) table[BYTE_CHARS[byte].charCodeAt(0)] = byte;
  return table;
})();

/** Bytes spelled by `token`, or undefined if a character of it stands for no byte. Fresh memory. */
export function bytesOfAlphabetText(token: string): Uint8Array | undefined {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const code = token.charCodeAt(i);
    const byte = code < ALPHABET_END ? charBytes[code] : -1;
    if (byte < 0) return undefined;
    bytes[i] = byte;
  }
  return bytes;
}
