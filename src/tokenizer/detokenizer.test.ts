import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { randomText, seededRandom } from "../../test/fixtures/random-text.ts";
import { tokenizerFromHuggingFace } from "./hugging-face.ts";

const tokenizer = tokenizerFromHuggingFace(JSON.parse(readFileSync("models/nano/tokenizer.json", "utf8")));

/** Id of the token that is this one byte. */
const byteIds = new Map<number, number>();
for (let id = 0; id < tokenizer.vocabSize; id++) {
  const bytes = tokenizer.tokenBytes(id);
  if (bytes.length === 1 && !tokenizer.isSpecial(id)) byteIds.set(bytes[0], id);
}

it("holds unfinished characters back and never splits one (case 115)", () => {
  const stream = tokenizer.createDetokenizer();
  const pieces = [0xf0, 0x9f, 0x98, 0x80, 0xe4, 0xbd, 0xa0].map((byte) => stream.push(byteIds.get(byte)!));
  expect(pieces).toEqual(["", "", "", "😀", "", "", "你"]);
  expect(stream.end()).toBe("");
});

it("ends an unfinished character with one U+FFFD and can be used again (case 115)", () => {
  const stream = tokenizer.createDetokenizer();
  expect(stream.push(byteIds.get(0xf0)!) + stream.push(byteIds.get(0x9f)!)).toBe("");
  expect(stream.end()).toBe("\ufffd");
  expect(stream.push(byteIds.get(0x41)!) + stream.end()).toBe("A");
});

it("passes broken bytes on as U+FFFD at once and keeps what follows", () => {
  const stream = tokenizer.createDetokenizer();
  expect(stream.push(byteIds.get(0xe4)!)).toBe("");
  expect(stream.push(byteIds.get(0x41)!)).toBe("\ufffdA");
  expect(stream.push(byteIds.get(0xff)!)).toBe("\ufffd");
});

it("streams every text to the same string as decoding it at once, in well-formed steps", () => {
  const random = seededRandom(5);
  for (let i = 0; i < 300; i++) {
    const text = randomText(random, 60);
    const stream = tokenizer.createDetokenizer();
    const steps = [...tokenizer.encode(text)].map((id) => stream.push(id));
    expect(steps.every((step) => step.isWellFormed())).toBe(true);
    expect(steps.join("") + stream.end()).toBe(text);
  }
});

it("shows or hides control tokens but always shows the think and DSML marks", () => {
  const ids = tokenizer.encode("<｜User｜>a<think>b</think><｜DSML｜c<｜end▁of▁sentence｜>", {
    allowSpecial: true,
  });
  expect(tokenizer.decode(ids)).toBe("<｜User｜>a<think>b</think><｜DSML｜c<｜end▁of▁sentence｜>");
  expect(tokenizer.decode(ids, { hideControl: true })).toBe("a<think>b</think><｜DSML｜c");
});

it("lets no character reach across a special token, hidden or not", () => {
  const ids = [byteIds.get(0xe4)!, tokenizer.eosId, byteIds.get(0xbd)!, byteIds.get(0xa0)!];
  expect(tokenizer.decode(ids, { hideControl: true })).toBe("\ufffd\ufffd\ufffd");
  expect(tokenizer.decode(ids)).toBe("\ufffd<｜end▁of▁sentence｜>\ufffd\ufffd");
});
