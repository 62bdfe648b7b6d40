// Tools in the prompt: the section that declares them and the blocks that replay earlier calls. Names, schemas and
// values come from people and stay text; only the tags around them carry the DSML mark.
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import type { ToolCall, ToolDefinition } from "./conversation.ts";
import { isJsonObject, type JsonValue, jsonMembers, parseJson, pythonJson } from "./json-python.ts";
import type { PieceBuilder } from "./pieces.ts";
import { TemplateError } from "./template-error.ts";

const DSML = SPECIAL_TEXT.dsml;

const TOOLS_HEAD = `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<${DSML}tool_calls>" block like the following:

<${DSML}tool_calls>
<${DSML}invoke name="$TOOL_NAME">
<${DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</${DSML}parameter>
...
</${DSML}invoke>
<${DSML}invoke name="$TOOL_NAME2">
...
</${DSML}invoke>
</${DSML}tool_calls>

String parameters should be specified as is and set \`string="true"\`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set \`string="false"\`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

`;

const TOOLS_TAIL = `

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`;

const FORMAT_HEAD = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/** Appends the section that declares `tools`, one line of JSON each. Throws `template` for a tool without a name. */
export function renderTools(
  out: PieceBuilder,
  tools: readonly ToolDefinition[],
  messageIndex?: number,
): void {
  const lines = tools.map((tool, i) =>
    toJson(innerFunction(tool, i, messageIndex), `tool ${i}`, messageIndex),
  );
  out.wording(TOOLS_HEAD).text(lines.join("\n")).wording(TOOLS_TAIL);
}

/** Appends the section that asks for answers of a JSON schema. */
export function renderResponseFormat(out: PieceBuilder, schema: JsonValue, messageIndex?: number): void {
  out.wording(FORMAT_HEAD).text(toJson(schema, "the response format", messageIndex));
}

/** Appends the block of `calls`, with the blank line before it. Throws `template` for calls that make no sense. */
export function renderToolCalls(out: PieceBuilder, calls: readonly ToolCall[], messageIndex: number): void {
  out.wording(`\n\n<${DSML}tool_calls>\n`);
  calls.forEach((call, i) => {
    if (typeof call?.name !== "string" || call.name === "")
      throw new TemplateError(
        `tool call ${i}: expected a name, got ${JSON.stringify(call?.name)}`,
        messageIndex,
      );
    if (i > 0) out.text("\n");
    out.wording(`<${DSML}invoke name="`).text(call.name).wording('">\n');
    callMembers(call, messageIndex).forEach(([key, value], memberIndex) => {
      if (memberIndex > 0) out.text("\n");
      const isString = typeof value === "string";
      out.wording(`<${DSML}parameter name="`).text(key).wording(`" string="${isString}">`);
      out.text(isString ? value : toJson(value, `the arguments of ${call.name}`, messageIndex));
      out.wording(`</${DSML}parameter>`);
    });
    out.wording(`\n</${DSML}invoke>`);
  });
  out.wording(`\n</${DSML}tool_calls>`);
}

function innerFunction(tool: ToolDefinition, index: number, messageIndex?: number): ToolDefinition {
  const read = (value: unknown, key: string): unknown =>
    isJsonObject(value) ? new Map(jsonMembers(value)).get(key) : undefined;
  const wrapped = read(tool, "function");
  const inner = isJsonObject(wrapped) ? wrapped : tool;
  const name = read(inner, "name");
  if (typeof name === "string" && name !== "") return inner;
  throw new TemplateError(`tool ${index}: expected a name, got ${JSON.stringify(name)}`, messageIndex);
}

function callMembers(call: ToolCall, messageIndex: number): [string, JsonValue][] {
  const given = call.arguments;
  if (given === undefined || given === null) return [];
  if (typeof given !== "string") {
    if (isJsonObject(given)) return jsonMembers(given);
    throw notAnObject(call, typeof given, messageIndex);
  }
  if (given.trim() === "") return [];
  let parsed: JsonValue;
  try {
    parsed = parseJson(given);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw wrap(error, `the arguments of ${call.name}`, messageIndex);
    // What the official encoder does with text that is no JSON, for instance a call cut off in the middle.
    return [["arguments", given]];
  }
  if (isJsonObject(parsed)) return jsonMembers(parsed);
  throw notAnObject(call, given.length > 60 ? `${given.slice(0, 60)}…` : given, messageIndex);
}

function notAnObject(call: ToolCall, got: string, messageIndex: number): TemplateError {
  return new TemplateError(
    `the arguments of ${call.name}: expected a JSON object or JSON text of one, got ${got}`,
    messageIndex,
  );
}

function toJson(value: JsonValue, what: string, messageIndex?: number): string {
  try {
    return pythonJson(value);
  } catch (error) {
    throw wrap(error, what, messageIndex);
  }
}

function wrap(error: unknown, what: string, messageIndex?: number): TemplateError {
  const reason = error instanceof Error ? error.message : String(error);
  return new TemplateError(`${what}: ${reason}`, messageIndex, { cause: error });
}
