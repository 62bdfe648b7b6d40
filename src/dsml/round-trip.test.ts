import { expect, it } from "vitest";
import { mulberry32 } from "../../test/random-values.ts";
import type { ToolDefinition } from "../template/conversation.ts";
import type { JsonValue } from "../template/json-python.ts";
import { renderConversation } from "../template/render.ts";
import { createAnswerParser } from "./answer-parser.ts";
import type { MarkRange, ParseEvent } from "./events.ts";

const TOOLS: ToolDefinition[] = [
  {
    name: "typed",
    parameters: { properties: { text: { type: "string" }, list: { type: "array" }, n: { type: "number" } } },
  },
  { name: "free" },
];
const SCRAPS = [
  "a",
  " ",
  "\n",
  "<",
  ">",
  '"',
  "\\",
  "</｜DSML｜parameter>",
  "</parameter>",
  "<｜DSML｜tool_calls>",
  "</think>",
  "<think>",
  "&lt;",
  "😀",
  "\u0000",
  "12",
  "true",
  "[1, 2]",
  "`",
  "\n```\n",
  "｜",
  "</｜DSML｜invoke>",
];

it("2,000 random turns rendered by the template parse back to what they were, token marks known", () => {
  const random = mulberry32(11);
  const pick = <Item>(items: readonly Item[]): Item => items[random() % items.length];
  const text = () => Array.from({ length: random() % 6 }, () => pick(SCRAPS)).join("");
  const value = (): JsonValue =>
    pick<() => JsonValue>([
      text,
      () => random() % 100,
      () => 1.5,
      () => null,
      () => [text(), { k: text() }],
    ])();
  for (let round = 0; round < 2000; round++) {
    const thinking = random() % 2 === 0;
    const reasoning = thinking ? text() : "";
    // Quoting code and ending in white space change where a block begins; both have tests of their own.
    const content = text().replaceAll("`", "'").trim();
    const calls = Array.from({ length: random() % 4 }, () =>
      random() % 2 === 0
        ? { name: "typed", arguments: { text: text(), list: [text(), random() % 9], n: 1.25 } }
        : { name: "free", arguments: { a: value(), "b&>'": value(), "": text() } },
    );
    const turn = { role: "assistant" as const, reasoning, content, toolCalls: calls };
    const user = { role: "user" as const, content: "x" };
    const pieces = renderConversation({
      messages: [user, turn, user],
      tools: TOOLS,
      thinking: thinking ? "on" : "off",
    });
    const start =
      pieces.findIndex((piece) => piece.kind === "special" && piece.text === "<｜Assistant｜>") + 2;
    const end = pieces.findIndex(
      (piece, i) => i >= start && piece.kind === "special" && piece.text === "<｜end▁of▁sentence｜>",
    );
    const parser = createAnswerParser({ thinking, tools: TOOLS });
    const events: ParseEvent[] = [];
    for (const piece of pieces.slice(start, end)) {
      const marks: MarkRange[] = piece.kind === "special" ? [[0, piece.text.length]] : [];
      if (piece.kind === "special") events.push(...parser.push(piece.text, marks));
      else for (const char of piece.text) events.push(...parser.push(char, []));
    }
    events.push(...parser.finish("stop"));
    const joined = (type: "reasoning" | "content") =>
      events.map((event) => (event.type === type ? event.text : "")).join("");
    const made = events.flatMap((event) =>
      event.type === "toolCallEnd"
        ? [{ name: event.name, arguments: JSON.parse(event.argumentsJson), notes: event.notes }]
        : [],
    );
    expect({ reasoning: joined("reasoning"), content: joined("content"), made }).toEqual({
      reasoning,
      content,
      made: calls.map((call) => ({ ...call, notes: [] })),
    });
  }
});
