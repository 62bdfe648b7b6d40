// Reads server-sent events from the body of an answer.

/** Longest line that is kept; events of completions are some hundred bytes. */
const MAX_LINE_CHARACTERS = 1 << 20;

/**
 * Yields the data of each event. Understands CR, LF and CRLF, several `data:` lines per event and comments. Throws
 * RangeError for a line over a megabyte, and what the body throws.
 */
export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  for await (const bytes of body) {
    rest += decoder.decode(bytes, { stream: true });
    // A CR at the end may be the first half of a CRLF.
    const lines = rest.split(/\r\n|\n|\r(?=[^\n])/);
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARACTERS) throw new RangeError("a line of the event stream is too long");
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
  // Some servers end without the last empty line.
  if (rest.startsWith("data:")) data.push(rest.slice(5).trim());
  if (data.length > 0) yield data.join("\n");
}
