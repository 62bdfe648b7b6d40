// The page's modules that need no page: Markdown as blocks, the server's metrics as figures.
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { expectLinear } from "../../test/fixtures/growth.ts";
import { type Json, testServer } from "../../test/fixtures/test-server.ts";

const load = (name: string): Promise<Json> => import(join(import.meta.dirname, "web", name));
const { parseBlocks, splitBlocks } = await load("markdown-blocks.js");
const { parseMetrics, serverFigures } = await load("metrics-text.js");

describe("Markdown", () => {
  it("knows headings, rules, quotes and paragraphs", () => {
    expect(parseBlocks("# One #\ntext\nmore\n\n***\n> a\n> b")).toEqual([
      { kind: "heading", level: 1, text: "One" },
      { kind: "paragraph", text: "text\nmore" },
      { kind: "rule" },
      { kind: "quote", blocks: [{ kind: "paragraph", text: "a\nb" }] },
    ]);
  });

  it("keeps code as it is, also while its end has not come", () => {
    const code = (text: string, isOpen: boolean) => ({ kind: "code", language: "py", text, isOpen });
    expect(parseBlocks("```py\n# no *heading*\n\n- no list\n```\nafter")).toEqual([
      code("# no *heading*\n\n- no list", false),
      { kind: "paragraph", text: "after" },
    ]);
    expect(parseBlocks("```py\na = 1\n``")).toEqual([code("a = 1\n``", true)]);
    expect(parseBlocks("````py\n```\nx\n```\n````")).toEqual([code("```\nx\n```", false)]);
  });

  it("nests lists, with code and paragraphs in them", () => {
    const text = "3. one\n   - inner\n   - second\n4. two\n\n   ```\n   code\n   ```\n\n- other";
    const item = (text: string) => [{ kind: "paragraph", text }];
    const [ordered, other] = parseBlocks(text);
    expect(ordered).toMatchObject({ kind: "list", isOrdered: true, start: 3 });
    expect(ordered.items[0]).toEqual([
      ...item("one"),
      { kind: "list", isOrdered: false, start: 1, items: [item("inner"), item("second")] },
    ]);
    expect(ordered.items[1]).toEqual([
      ...item("two"),
      { kind: "code", language: "", text: "code", isOpen: false },
    ]);
    expect(other).toMatchObject({ kind: "list", isOrdered: false, items: [item("other")] });
  });

  it("reads tables whose cells hold bars in code or escaped", () => {
    expect(parseBlocks("| a | b |\n|:-:|--:|\n| `x|y` | p \\| q |\n| short |\n\nend")).toEqual([
      {
        kind: "table",
        align: ["center", "right"],
        head: ["a", "b"],
        rows: [
          ["`x|y`", "p | q"],
          ["short", ""],
        ],
      },
      { kind: "paragraph", text: "end" },
    ]);
    expect(parseBlocks("a | b\nno rule")).toEqual([{ kind: "paragraph", text: "a | b\nno rule" }]);
  });

  it("changes only the last block when text is added, so that a stream draws little", () => {
    const text = "# T\n\npara *one*\n\n- a\n- b\n\n```js\nx\n```\n\n| a |\n|---|\n| 1 |\n\nend of it";
    let before: string[] = [];
    for (let end = 1; end <= text.length; end++) {
      const now: string[] = splitBlocks(text.slice(0, end));
      const kept = before.slice(0, -1);
      expect(now.slice(0, kept.length)).toEqual(kept);
      before = now;
    }
    expect(before).toHaveLength(6);
  });

  it("stays quick on text made of nothing but marks", () => {
    for (const mark of ["> ", "- ", "`", "*", "|", "#", "```\n", "| a |\n|---|\n", "  1. "])
      expectLinear(80_000, (count) => parseBlocks(mark.repeat(count)), JSON.stringify(mark));
  });
});

describe("figures", () => {
  it("are read from what the server really says", async () => {
    const gauge = (name: string, labels: string, value: number) => ({ name, help: name, labels, value });
    const { app, post } = testServer({
      scripts: [{ tokens: ["a", "b", "c"], reusedTokens: 2 }],
      model: {
        readGauges: async () => [
          gauge("memory_bytes", 'region="weights"', 5),
          gauge("memory_planned_bytes", 'region="weights"', 6),
          gauge("process_resident_bytes", "", 7),
          gauge("memory_planned_bytes", 'region="process"', 8),
          gauge("slot_tokens", 'slot="0",state="decode"', 40),
          gauge("slot_context_tokens", "", 100),
          gauge("scheduler_queue_length", "", 2),
        ],
      },
    });
    await post("/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
    const text = await (await app.request("/metrics")).text();
    expect(serverFigures(parseMetrics(text))).toMatchObject({
      isReady: true,
      running: 0,
      waiting: 2,
      slots: [{ state: "decode", tokens: 40 }],
      slotCtxTokens: 100,
      memory: [
        { region: "weights", heldBytes: 5, plannedBytes: 6 },
        { region: "process", heldBytes: 7, plannedBytes: 8 },
      ],
      sampledTokens: 3,
      reusedTokens: 2,
      finished: 1,
    });
  });
});
