// From messages as chat APIs send them to the turns that the encoding knows: user texts and tool results merged,
// results in call order, old reasoning dropped where the rules say so. Renders nothing.
import type {
  AssistantMessage,
  Conversation,
  Message,
  MessageContent,
  Task,
  ToolDefinition,
} from "./conversation.ts";
import { TASKS } from "./conversation.ts";
import type { JsonValue } from "./json-python.ts";
import { TemplateError } from "./template-error.ts";

/** Part of a user turn: a text or the result of a call. */
export interface UserBlock {
  kind: "text" | "result";
  text: string;
  /** Id of the call that a result belongs to. */
  callId?: string;
}

/** Common to all turns: the message that it starts with, for errors; undefined for one the template adds. */
interface TurnBase {
  messageIndex: number | undefined;
}

/** One unit of the encoding. */
export type Turn = TurnBase &
  (
    | {
        kind: "system";
        text: string;
        tools: readonly ToolDefinition[];
        responseFormat: JsonValue | undefined;
      }
    | {
        kind: "developer";
        text: string;
        tools: readonly ToolDefinition[];
        responseFormat: JsonValue | undefined;
        task: Task | undefined;
      }
    | { kind: "user"; blocks: UserBlock[]; task: Task | undefined }
    | { kind: "assistant"; text: string; message: AssistantMessage; messageIndex: number }
    | { kind: "reminder"; text: string }
  );

/** The turns of a conversation and whether every turn keeps its reasoning. */
export interface Turns {
  turns: Turn[];
  keepsReasoning: boolean;
  /** Index of the last user or developer turn, -1 if there is none. */
  lastUserIndex: number;
}

/** Throws `template` with the message's index for a message that cannot be rendered. */
export function turnsOf(conversation: Conversation): Turns {
  const { messages, tools = [], responseFormat, thinking } = conversation;
  if (!Array.isArray(messages) || messages.length === 0)
    throw new TemplateError("expected at least one message");
  let turns: Turn[] = [];
  messages.forEach((message, index) => {
    addMessage(turns, message, index, index === messages.length - 1);
  });
  if (tools.length > 0 || responseFormat !== undefined) attachToSystem(turns, tools, responseFormat);
  sortResults(turns);
  // With tools the prompt only ever grows. Without, the model never sees its reasoning from before the last question.
  const keepsReasoning = turns.some((turn) => "tools" in turn && turn.tools.length > 0);
  if (thinking !== "off" && !keepsReasoning) {
    const last = lastUser(turns);
    turns = turns.filter((turn, index) => turn.kind !== "developer" || index >= last);
  }
  return { turns, keepsReasoning, lastUserIndex: lastUser(turns) };
}

function lastUser(turns: readonly Turn[]): number {
  return turns.findLastIndex((turn) => turn.kind === "user" || turn.kind === "developer");
}

function addMessage(turns: Turn[], message: Message, messageIndex: number, isLast: boolean): void {
  if (typeof message !== "object" || message === null)
    throw new TemplateError(`expected an object, got ${JSON.stringify(message)}`, messageIndex);
  const previous = turns.at(-1);
  const text = contentText(message.content, message.role === "assistant" ? "" : "\n\n", messageIndex);
  switch (message.role) {
    case "system":
      if (previous?.kind === "system")
        previous.text = [previous.text, text].filter((part) => part !== "").join("\n\n");
      else turns.push({ kind: "system", text, tools: [], responseFormat: undefined, messageIndex });
      return;
    case "developer": {
      if (text === "") throw new TemplateError("a developer message needs text", messageIndex);
      const { tools = [], responseFormat } = message;
      const task = checkTask(message.task, messageIndex);
      turns.push({ kind: "developer", text, tools, responseFormat, task, messageIndex });
      return;
    }
    case "user": {
      const task = checkTask(message.task, messageIndex);
      const block: UserBlock = { kind: "text", text };
      // A text with a task starts its own turn's life only if no user turn is open; one after a task never joins it.
      if (previous?.kind === "user" && previous.task === undefined) {
        previous.blocks.push(block);
        if (task !== undefined) previous.task = task;
      } else turns.push({ kind: "user", blocks: [block], task, messageIndex });
      return;
    }
    case "tool": {
      const block: UserBlock = { kind: "result", text, callId: message.toolCallId };
      if (previous?.kind === "user") previous.blocks.push(block);
      else turns.push({ kind: "user", blocks: [block], task: undefined, messageIndex });
      return;
    }
    case "assistant":
      if (message.openEnded && !isLast)
        throw new TemplateError(
          "only the last message may be left open for the model to go on",
          messageIndex,
        );
      turns.push({ kind: "assistant", text, message, messageIndex });
      return;
    case "latest_reminder":
      turns.push({ kind: "reminder", text, messageIndex });
      return;
    default:
      throw new TemplateError(
        `unknown role ${JSON.stringify((message as { role: unknown }).role)}; expected system, developer, user, ` +
          "assistant, tool or latest_reminder",
        messageIndex,
      );
  }
}

function contentText(content: MessageContent | undefined, separator: string, messageIndex: number): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content))
    throw new TemplateError(
      `expected the content to be text or an array, got ${typeof content}`,
      messageIndex,
    );
  return content
    .map((part) => {
      if (typeof part?.type !== "string" || (part.type === "text" && typeof (part.text ?? "") !== "string"))
        throw new TemplateError(
          `expected content parts with a type and text, got ${JSON.stringify(part)}`,
          messageIndex,
        );
      return part.type === "text" ? (part.text ?? "") : `[Unsupported ${part.type}]`;
    })
    .join(separator);
}

function checkTask(task: unknown, messageIndex: number): Task | undefined {
  if (task === undefined || (TASKS as readonly unknown[]).includes(task)) return task as Task | undefined;
  throw new TemplateError(`unknown task ${JSON.stringify(task)}; expected ${TASKS.join(", ")}`, messageIndex);
}

/** Tools and answer format go with the leading system text; without one an empty one is made for them. */
function attachToSystem(
  turns: Turn[],
  tools: readonly ToolDefinition[],
  responseFormat: JsonValue | undefined,
): void {
  const first = turns[0];
  if (first.kind === "system") {
    first.tools = tools;
    first.responseFormat = responseFormat;
  } else turns.unshift({ kind: "system", text: "", tools, responseFormat, messageIndex: undefined });
}

/** Puts the results within each user turn into the order of the calls before it; texts keep their places. */
function sortResults(turns: readonly Turn[]): void {
  let order = new Map<string, number>();
  for (const turn of turns) {
    if (turn.kind === "assistant") {
      const calls = turn.message.toolCalls ?? [];
      if (!Array.isArray(calls))
        throw new TemplateError("expected tool calls to be an array", turn.messageIndex);
      if (calls.length > 0) order = new Map();
      calls.forEach((call, index) => {
        if (call?.id) order.set(call.id, index);
      });
    }
    if (turn.kind !== "user" || order.size === 0) continue;
    // An unknown id counts as the first call, as in the official encoder; the sort is stable.
    const rank = (block: UserBlock): number => order.get(block.callId ?? "") ?? 0;
    const results = turn.blocks.filter((block) => block.kind === "result").sort((a, b) => rank(a) - rank(b));
    let next = 0;
    turn.blocks = turn.blocks.map((block) => (block.kind === "result" ? results[next++] : block));
  }
}
