import { expect, it } from "vitest";
import { readEvents } from "./event-stream.ts";

async function events(text: string, pieceBytes: number): Promise<string[]> {
  const bytes = new TextEncoder().encode(text);
  async function* pieces() {
    for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
  }
  const found: string[] = [];
  for await (const event of readEvents(pieces())) found.push(event);
  return found;
}

it("reads events however they are cut and whatever ends their lines", async () => {
  const text = ': hello\ndata: {"a":"ü€😀"}\n\nevent: x\r\ndata: one\r\ndata:two\r\n\r\n\ndata: [DONE]\n\n';
  for (let pieceBytes = 1; pieceBytes < 30; pieceBytes++) {
    expect(await events(text, pieceBytes)).toEqual(['{"a":"ü€😀"}', "one\ntwo", "[DONE]"]);
  }
});

it("takes a last event without its empty line, and refuses a line without end", async () => {
  expect(await events("data: a\n\ndata: b", 3)).toEqual(["a", "b"]);
  await expect(events(`data: ${"x".repeat(1 << 21)}`, 65536)).rejects.toThrow(RangeError);
});
