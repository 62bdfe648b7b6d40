import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { BASH, bashBlock } from "../../test/fixtures/parsed-answer.ts";
import { encodePieces, PieceBuilder } from "../template/pieces.ts";
import { StreamingDetokenizer } from "../tokenizer/detokenizer.ts";
import { tokenizerFromHuggingFace } from "../tokenizer/hugging-face.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { createAnswerParser } from "./answer-parser.ts";
import type { MarkRange, SampledText } from "./events.ts";
import { CallReplay, deserializeReplay, MAX_CALL_ID_UNITS, replaySampled } from "./replay.ts";

const text = (rawText: string): SampledText => ({ rawText, marks: [] });
const idsOf = (replay: CallReplay, count: number) =>
  Array.from({ length: count }, (_, i) => `c${i}`).filter((id) => replay.get(id) !== undefined);

describe("exact replay", () => {
  const tokenizer = tokenizerFromHuggingFace(JSON.parse(readFileSync("models/nano/tokenizer.json", "utf8")));
  const dsmlId = tokenizer.specialId(SPECIAL_TEXT.dsml)!;

  /** Feeds ids as a server does: text and mark of each token. Remembers calls as a server does. */
  function replayOf(ids: Iterable<number>): { replay: CallReplay; callIds: string[] } {
    const parser = createAnswerParser({ thinking: false, tools: [BASH] });
    const detokenizer = new StreamingDetokenizer(tokenizer);
    const replay = new CallReplay();
    const callIds: string[] = [];
    const events = [...ids].flatMap((id) => {
      const piece = detokenizer.push(id);
      return parser.push(
        piece,
        id === dsmlId ? [[piece.length - SPECIAL_TEXT.dsml.length, piece.length]] : [],
      );
    });
    for (const event of [...events, ...parser.finish("stop")]) {
      if (event.type === "toolCallEnd") {
        callIds.push(`call_${callIds.length}`);
        replay.set(callIds.at(-1)!, event);
      } else if (event.type === "markup" && callIds.length > 0) replay.append(callIds.at(-1)!, event);
    }
    return { replay, callIds };
  }

  it.each([
    ["by the book", `\n\n${bashBlock("ls -l")}`],
    [
      "odd white space and two calls",
      `\n\n\n${bashBlock("a").replace("\n</｜DSML｜tool", `\n\n${bashBlock("b").split("tool_calls>\n")[1].split("\n</｜DSML｜tool")[0]}\n \n</｜DSML｜tool`)}\n`,
    ],
  ])("renders to the sampled tokens: %s", (_, block) => {
    const ids = encodePieces(tokenizer, new PieceBuilder().wording(block).finish());
    const { replay, callIds } = replayOf(ids);
    expect(callIds.length).toBe(block.split("<｜DSML｜invoke").length - 1);
    const out = new PieceBuilder();
    for (const callId of callIds) replaySampled(out, replay.get(callId)!);
    expect([...encodePieces(tokenizer, out.finish())]).toEqual([...ids]);
  });

  it("a mark that ordinary tokens spelled is spelled again", () => {
    const [before, after] = bashBlock("#").split("#");
    const pieces = new PieceBuilder().wording(before).text("</｜DSML｜parameter>").wording(after).finish();
    const ids = encodePieces(tokenizer, pieces);
    const { replay, callIds } = replayOf(ids);
    const sampled = replay.get(callIds[0])!;
    const out = new PieceBuilder();
    replaySampled(out, sampled);
    expect([...encodePieces(tokenizer, out.finish())]).toEqual([...ids]);
    const unknown = new PieceBuilder();
    replaySampled(unknown, { ...sampled, marks: undefined });
    expect(encodePieces(tokenizer, unknown.finish()).length).toBeLessThan(ids.length);
  });
});

describe("limits", () => {
  it("forgets the least recently used call", () => {
    const replay = new CallReplay({ entries: 3 });
    for (const id of ["c0", "c1", "c2"]) replay.set(id, text(id));
    replay.get("c0");
    replay.set("c3", text("new"));
    expect(replay.entryCount).toBe(3);
    expect(idsOf(replay, 4)).toEqual(["c0", "c2", "c3"]);
  });

  it("keeps within its bytes, and counts them exactly down to zero", () => {
    const replay = new CallReplay({ bytes: 10_000 });
    for (let i = 0; i < 50; i++) {
      replay.set(`c${i}`, text("x".repeat(100 * (i % 7))));
      replay.append(`c${i}`, text("y".repeat(50)));
      expect(replay.usedBytes).toBeLessThanOrEqual(10_000);
    }
    const kept = idsOf(replay, 50);
    expect(kept.length).toBeGreaterThan(5);
    expect(kept.at(-1)).toBe("c49");
    for (const id of kept) replay.delete(id);
    expect(replay.usedBytes).toBe(0);
  });

  it("does not keep what is larger than all, or an over-long id", () => {
    const replay = new CallReplay({ bytes: 1000 });
    replay.set("c0", text("small"));
    replay.set("c1", text("x".repeat(1000)));
    replay.set("c".repeat(MAX_CALL_ID_UNITS + 1), text(""));
    replay.append("c9", text("nothing to append to"));
    expect(replay.entryCount).toBe(1);
    expect(replay.get("c0")).toEqual(text("small"));
  });
});

describe("on disk", () => {
  const marks: MarkRange[] = [[1, 7]];
  const filled = () => {
    const replay = new CallReplay();
    replay.set("c0", { rawText: "<｜DSML｜tool_calls> 😀 \ud800", marks });
    replay.set("c1", { rawText: "unknown origin", marks: undefined });
    replay.set("c2", text(""));
    replay.get("c0");
    return replay;
  };

  it("comes back with its order", () => {
    const { replay, damagedCount } = deserializeReplay(filled().serialize());
    expect(damagedCount).toBe(0);
    expect(replay.serialize()).toEqual(filled().serialize());
    expect(replay.get("c0")).toEqual({ rawText: "<｜DSML｜tool_calls> 😀 \ud800", marks });
    const { replay: two } = deserializeReplay(filled().serialize(), { entries: 2 });
    expect(idsOf(two, 3)).toEqual(["c0", "c2"]);
  });

  it("leaves out exactly the damaged records, wherever a byte is wrong", () => {
    const bytes = filled().serialize();
    for (let at = 0; at < bytes.length; at++) {
      const damaged = Uint8Array.from(bytes);
      damaged[at] ^= 0x41;
      const { replay, damagedCount } = deserializeReplay(damaged);
      expect(damagedCount).toBeGreaterThan(0);
      for (const id of idsOf(replay, 3)) expect(replay.get(id)).toEqual(filled().get(id));
    }
    const oneFlip = Uint8Array.from(bytes);
    oneFlip[bytes.length - 1] ^= 1;
    expect(idsOf(deserializeReplay(oneFlip).replay, 3)).toEqual(["c1", "c2"]);
  });

  it("keeps what is whole of a file cut anywhere", () => {
    const bytes = filled().serialize();
    const counts = new Set<number>();
    for (let length = 0; length < bytes.length; length++) {
      const { replay, damagedCount } = deserializeReplay(bytes.subarray(0, length));
      counts.add(replay.entryCount);
      expect(damagedCount).toBeLessThanOrEqual(1);
    }
    expect([...counts]).toEqual([0, 1, 2]);
  });

  it.each([[""], ["not ours at all"], ["ds4calls\x02"]])("ignores %j", (content) => {
    const { replay, damagedCount } = deserializeReplay(new TextEncoder().encode(content));
    expect([replay.entryCount, damagedCount]).toEqual([0, 1]);
  });
});
