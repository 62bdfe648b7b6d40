import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { expectLinear } from "../../test/fixtures/growth.ts";
import { bashBlock, parseAnswer, parseParts } from "../../test/fixtures/parsed-answer.ts";
import type { ToolDefinition } from "../template/conversation.ts";
import { createAnswerParser } from "./answer-parser.ts";

const LS = [{ name: "bash", args: '{"command":"ls"}' }];
const FREE: ToolDefinition[] = [{ name: "free" }];

function freeCall(inner: string): string {
  return `<｜DSML｜tool_calls>\n<｜DSML｜invoke name="free">\n${inner}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>`;
}

describe("assistant turns of the template's examples", () => {
  interface Example {
    name: string;
    input: {
      thinking: boolean;
      tools?: ToolDefinition[];
      msgs: {
        role: string;
        content?: string;
        reasoning_content?: string;
        tool_calls?: { function: { name: string; arguments: string } }[];
      }[];
    };
    rendered: string;
  }
  const examples: Example[] = JSON.parse(readFileSync("test/fixtures/template-examples.json", "utf8"));
  const turns = examples.flatMap((example) => {
    const assistants = example.input.msgs.filter(({ role }) => role === "assistant");
    const texts = [...example.rendered.matchAll(/<｜Assistant｜>([\s\S]*?)<｜end▁of▁sentence｜>/g)];
    expect(texts.length).toBe(assistants.length);
    return assistants.map((message, i) => ({
      name: `${example.name}, turn ${i}`,
      message,
      text: texts[i][1],
      example,
    }));
  });

  it("there are some", () => expect(turns.length).toBeGreaterThan(5));

  it.each(turns)("$name", ({ message, text, example }) => {
    const thinking = text.startsWith("<think>");
    const sampled = text.replace(/^<\/?think>/, "");
    const answer = parseAnswer(sampled, { thinking, tools: example.input.tools, marks: "known" });
    expect(answer.content).toBe(message.content ?? "");
    expect(answer.reasoning).toBe(thinking ? message.reasoning_content : "");
    expect(answer.malformed).toEqual([]);
    const expected = (message.tool_calls ?? []).map(({ function: call }) => ({
      name: call.name,
      args: JSON.parse(call.arguments),
    }));
    expect(answer.calls.map(({ name, args }) => ({ name, args: JSON.parse(args) }))).toEqual(expected);
  });
});

describe("what is held back", () => {
  const deltas = (parts: string[]) => {
    const parser = createAnswerParser({ thinking: false, tools: FREE });
    return parts.map((part) => parser.push(part).map((event) => ("text" in event ? event.text : event.type)));
  };

  it("only what can still be a tag", () => {
    expect(deltas(["a<", "b", " <｜", "x", "<｜DSML", " ", "</", "p", ">"])).toEqual(
      [["a"], ["<b"], [], [" <｜x"], [], ["<｜DSML"], [], [], [" </p>"]].map((texts) => texts),
    );
  });

  it("white space, until it is known what it separates", () => {
    expect(deltas(["a\n", "\n", "b"])).toEqual([["a"], [], ["\n\nb"]]);
    expect(deltas([`a${" ".repeat(40)}`])).toEqual([[`a${" ".repeat(24)}`]]);
  });

  it("an opening tag, until the first call follows", () => {
    const block = freeCall("");
    expect(deltas([block.slice(0, 20), block.slice(20, 30), block.slice(30, 46)])).toEqual([
      [],
      [],
      ["toolCallStart"],
    ]);
    expect(deltas(["<｜DSML｜tool_calls>", "\n", "opens a block"])).toEqual([
      [],
      [],
      ["<｜DSML｜tool_calls>\nopens a block"],
    ]);
  });

  it("half a surrogate pair, also in arguments", () => {
    const parts = bashBlock("😀").split("");
    expect(parseParts(parts).calls[0].args).toBe('{"command":"😀"}');
    expect(parseAnswer("😀 \ud83d").content).toBe("😀 \ud83d");
  });

  it("nothing after the end", () => {
    const parser = createAnswerParser({ thinking: false, tools: [] });
    parser.finish("stop");
    expect(parser.finish("stop")).toEqual([]);
    expect(() => parser.push("a")).toThrow("make a new parser");
  });
});

describe("mentions of tags", () => {
  it.each([
    `Write \`<｜DSML｜tool_calls><｜DSML｜invoke name="bash">\` to call.`,
    `Like so:\n\n\`\`\`xml\n${bashBlock("ls")}\n\`\`\`\nThat is all.`,
    `~~~\n${bashBlock("ls")}\n~~~~\n`,
    `The tag <｜DSML｜tool_calls> opens a block.`,
    `Plain XML: <tool_calls>\n<invoke name="bash">\n</invoke></tool_calls>`,
    `<invoke name="bash"> is how it starts`,
    "</｜DSML｜invoke> closes a call",
    "a <think> tag and a </think> tag",
  ])("%j is content", (text) => {
    expect(parseAnswer(text)).toMatchObject({ content: text, calls: [], malformed: [] });
  });

  it("a mark spelled by ordinary tokens is content, a special one is not", () => {
    expect(parseAnswer(bashBlock("ls"), { marks: "none" })).toMatchObject({
      content: bashBlock("ls"),
      calls: [],
    });
    expect(parseAnswer(bashBlock("ls"), { marks: "known" })).toMatchObject({ content: "", calls: LS });
    const quoting = "a</｜DSML｜parameter>b";
    const parts = bashBlock("#").split("#");
    const parser = createAnswerParser({ thinking: false, tools: FREE.concat({ name: "bash" }) });
    const marksOf = (text: string) =>
      [...text.matchAll(/｜DSML｜/g)].map((m) => [m.index, m.index + 6] as const);
    const events = [
      ...parser.push(parts[0], marksOf(parts[0])),
      ...parser.push(quoting, []),
      ...parser.push(parts[1], marksOf(parts[1])),
    ];
    expect(events.find((event) => event.type === "toolCallEnd")).toMatchObject({
      argumentsJson: JSON.stringify({ command: quoting }),
    });
  });

  it("a think tag spelled by ordinary tokens is text", () => {
    expect(parseAnswer("a</think>b", { thinking: true, marks: "none" })).toMatchObject({
      reasoning: "a</think>b",
    });
    expect(parseAnswer("a</think>b<think>c", { thinking: true, marks: "known" })).toMatchObject({
      reasoning: "ac",
      content: "b",
    });
  });

  it("a block in a fence that the model forgets to close is a call", () => {
    const answer = parseAnswer(`Running:\n\n\`\`\`\n${bashBlock("ls")}\n`);
    expect(answer).toMatchObject({ content: "Running:\n\n```", calls: LS, malformed: [] });
    expect(answer.calls[0].notes).toEqual(["recovered from unclosed code"]);
  });

  it("thinking or code closed within a block: what follows is read as ever", () => {
    const half = bashBlock("ls").slice(0, 100);
    const thought = parseAnswer(`a ${half}</think>b\n\n${bashBlock("ls")}`, { thinking: true });
    expect(thought).toMatchObject({ reasoning: `a ${half}`, content: "b", calls: LS, malformed: [] });
    const fenced = parseAnswer(`\`\`\`\n${half}\n\`\`\`\nb\n\n${bashBlock("ls")}`);
    expect(fenced).toMatchObject({ content: `\`\`\`\n${half}\n\`\`\`\nb`, calls: LS, malformed: [] });
    const span = parseAnswer(`Use \`<｜DSML｜tool_calls><｜DSML｜invoke name="bash">\n\n${bashBlock("ls")}`);
    expect(span).toMatchObject({
      content: 'Use `<｜DSML｜tool_calls><｜DSML｜invoke name="bash">',
      calls: LS,
    });
  });

  it("a stray backtick protects its own line only", () => {
    expect(parseAnswer(`Use \` here.\n\n${bashBlock("ls")}`)).toMatchObject({
      content: "Use ` here.",
      calls: LS,
    });
  });
});

describe("linear time", () => {
  const wrapperAndCall = '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n';
  it.each([
    ["<", false],
    ["<｜", false],
    ["</", true],
    [" ", false],
    ["\n<", true],
    ["`", false],
    ['<invoke name="a', false],
    [wrapperAndCall, true],
    [wrapperAndCall, false],
    ['<invoke name="bash">\n', false],
    [`${bashBlock("a")}\n`, true],
    ["</think>", true],
    [`<｜DSML｜tool_calls>${" ".repeat(60)}`, false],
  ])("up to 1 MB of %j, thinking %s", (unit, thinking) => {
    expectLinear(2 ** 20, (units) => {
      const text = unit.repeat(Math.ceil(units / unit.length));
      const { events } = parseParts([text], { thinking });
      expect(events.length).toBeGreaterThan(0);
    });
  });
});
