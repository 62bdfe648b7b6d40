import { describe, expect, it } from "vitest";
import { bashBlock, parseAnswer } from "../../test/fixtures/parsed-answer.ts";
import type { ToolDefinition } from "../template/conversation.ts";

const LS = [{ name: "bash", args: '{"command":"ls"}' }];
const FREE: ToolDefinition[] = [{ name: "free" }];

function freeCall(inner: string): string {
  return `<｜DSML｜tool_calls>\n<｜DSML｜invoke name="free">\n${inner}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>`;
}

describe("blocks in other spellings", () => {
  const plain = bashBlock("ls").replaceAll("｜DSML｜", "");
  it.each([
    ["no mark", plain],
    ["the first bar missing", bashBlock("ls").replaceAll("｜DSML｜", "DSML｜")],
    ["ASCII bars", bashBlock("ls").replaceAll("｜", "|")],
    [
      "single quotes, other order",
      bashBlock("ls").replace(`name="command" string="true"`, `string='true' name='command'`),
    ],
    ["another word for the block", bashBlock("ls").replaceAll("tool_calls", "function_calls")],
    [
      "no block tag",
      bashBlock("ls")
        .replace(/<\/?｜DSML｜tool_calls>/g, "")
        .trim(),
    ],
    ["mixed", bashBlock("ls").replace("<｜DSML｜invoke", "<invoke")],
  ])("%s", (_, text) => {
    expect(parseAnswer(`On it.\n\n${text}`)).toMatchObject({ content: "On it.", calls: LS, malformed: [] });
  });

  it("entities in attributes", () => {
    const answer = parseAnswer(
      freeCall('<｜DSML｜parameter name="a&amp;&quot;b" string="true">&lt;</｜DSML｜parameter>'),
      {
        tools: FREE,
      },
    );
    expect(JSON.parse(answer.calls[0].args)).toEqual({ 'a&"b': "&lt;" });
  });

  it("damaged, they are content", () => {
    const text = plain.replace("</invoke>", "oops");
    expect(parseAnswer(text)).toMatchObject({ content: text, calls: [], malformed: [] });
  });

  it("cut off, they are malformed", () => {
    const text = plain.slice(0, -40);
    expect(parseAnswer(text, { end: "length" })).toMatchObject({
      content: "",
      malformed: [{ reason: "truncated", raw: text }],
    });
  });
});

describe("damage and repair", () => {
  const block = bashBlock("ls");
  it.each([
    ["both closing tags missing", block.slice(0, block.indexOf("\n</｜DSML｜invoke>")), 1],
    ["the block's missing", block.slice(0, block.indexOf("\n</｜DSML｜tool_calls>")), 0],
    ["the closing tag of the call cut", block.slice(0, block.indexOf("｜invoke>")), 1],
    ["the call's missing", block.replace("</｜DSML｜invoke>\n", ""), 1],
  ])("%s: repaired at stop", (_, text, notes) => {
    const answer = parseAnswer(text);
    expect(answer).toMatchObject({ content: "", calls: LS, malformed: [] });
    expect(answer.calls[0].notes.length).toBe(notes);
  });

  it.each(["length", "cancelled"] as const)("missing closing tags are not repaired after %s", (end) => {
    const text = block.slice(0, block.indexOf("\n</｜DSML｜invoke>"));
    expect(parseAnswer(text, { end })).toMatchObject({
      calls: [],
      malformed: [{ reason: "truncated", raw: text }],
    });
  });

  it("a call that lacks a required parameter is not repaired, but may be made", () => {
    const missing = block.replace('name="command"', 'name="other"');
    expect(parseAnswer(missing).calls).toMatchObject([{ notes: ["required but missing: command"] }]);
    const open = missing.slice(0, missing.indexOf("\n</｜DSML｜invoke>"));
    expect(parseAnswer(open)).toMatchObject({ calls: [], malformed: [{ reason: "unclosed" }] });
  });

  it("a call that was not closed before the next one", () => {
    const twice = block.replace(
      "</｜DSML｜invoke>\n",
      block.slice(block.indexOf("<｜DSML｜invoke"), block.indexOf("</｜DSML｜tool")),
    );
    expect(parseAnswer(twice).calls).toMatchObject([...LS, ...LS]);
  });

  const parameter = '<｜DSML｜parameter name="a" string="true">1</｜DSML｜parameter>';
  it.each([
    ["duplicate-parameter", freeCall(parameter + parameter)],
    ["unexpected-text", freeCall(`${parameter}and`)],
    ["unexpected-tag", freeCall('<｜DSML｜invoke name="free">\n</｜DSML｜invoke>')],
    ["no-name", freeCall(parameter.replace(' name="a"', ""))],
    ["empty-block", "<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>"],
  ])("%s", (reason, text) => {
    const answer = parseAnswer(`${text}\nDone.`, { tools: FREE });
    expect(answer).toMatchObject({ content: "\nDone.", calls: [], malformed: [{ reason, raw: text }] });
  });

  it("text behind a block and several blocks", () => {
    const answer = parseAnswer(`A\n\n${block}\n\n${block}\nB ${block}C`);
    expect(answer).toMatchObject({ content: "A\nBC", calls: [...LS, ...LS, ...LS], malformed: [] });
  });

  it("several blocks at the end of unclosed thinking", () => {
    const answer = parseAnswer(`Both.\n\n${block}\n\n${block}\n`, { thinking: true });
    expect(answer).toMatchObject({ reasoning: "Both.", calls: [...LS, ...LS] });
  });
});
