import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { tokenizerFromHuggingFace } from "../tokenizer/hugging-face.ts";
import type { Conversation, Message, Thinking } from "./conversation.ts";
import { encodePieces, piecesToText } from "./pieces.ts";
import { renderConversation } from "./render.ts";

const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const tokenizer = tokenizerFromHuggingFace(readJson("models/nano/tokenizer.json"));

/** A message as chat APIs and the fixtures spell it. */
interface WireMessage {
  role: string;
  content?: string;
  reasoning_content?: string;
  tool_call_id?: string;
  tool_calls?: { id?: string; function: { name: string; arguments: string } }[];
  tools?: Conversation["tools"];
  response_format?: Conversation["responseFormat"];
  task?: string;
  wo_eos?: boolean;
}

function fromWire(message: WireMessage): Message {
  const { role, content, task } = message;
  const toolCalls = message.tool_calls?.map(({ id, function: call }) => ({ id, ...call }));
  const { tool_call_id: toolCallId, reasoning_content: reasoning, wo_eos: openEnded, tools } = message;
  const responseFormat = message.response_format;
  return {
    role,
    content,
    task,
    toolCalls,
    toolCallId,
    reasoning,
    openEnded,
    tools,
    responseFormat,
  } as Message;
}

interface Example {
  name: string;
  input: {
    msgs: WireMessage[];
    thinking: boolean;
    effort?: string;
    gen?: "0731";
    tools?: Conversation["tools"];
  };
  rendered: string;
}

function fromExample({ msgs, thinking, effort, gen, tools }: Example["input"]): Conversation {
  const mode: Thinking = !thinking ? "off" : effort === "max" ? "max" : "on";
  return { messages: msgs.map(fromWire), tools, thinking: mode, checkpoint: gen };
}

const text = (conversation: Conversation) => piecesToText(renderConversation(conversation));

describe("published examples", () => {
  const examples: Example[] = readJson("test/fixtures/template-examples.json");
  it("are all thirteen", () => expect(examples.length).toBe(13));
  it.each(examples.map((example) => [example.name, example] as const))(
    "render byte-equal: %s",
    (_name, example) => {
      expect(text(fromExample(example.input))).toBe(example.rendered);
    },
  );
});

it("renders nano's training prompt with tools to the recorded ids, but for the official two leading newlines", () => {
  const vectors: { name: string; text: string; ids: number[] }[] = readJson(
    "test/fixtures/nano/vectors.json",
  );
  const vector = vectors.find(({ name }) => name === "tools")!;
  const schemas = vector.text.match(/^\{"name".*$/gm)!.map((line) => JSON.parse(line));
  const pieces = renderConversation({
    messages: [{ role: "user", content: "What is the weather in Oslo?" }],
    tools: schemas,
    thinking: "off",
  });
  expect(piecesToText(pieces)).toBe(vector.text.replace("## Tools", "\n\n## Tools"));
  const [begin, first, ...rest] = pieces;
  expect(first.text.startsWith("\n\n## Tools")).toBe(true);
  const trained = [begin, { ...first, text: first.text.slice(2) }, ...rest];
  expect([...encodePieces(tokenizer, trained)]).toEqual(vector.ids);
});
