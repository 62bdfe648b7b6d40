// What a caller hands to the template: messages, tools and how to think. Close to what chat APIs send, without any
// API's names. Knows nothing of tokens or rendering.
import type { JsonValue } from "./json-python.ts";
import type { PieceBuilder } from "./pieces.ts";

/** A part of a message's content. Only text reaches the model; others are rendered as `[Unsupported <type>]`. */
export interface ContentPart {
  type: string;
  text?: string;
}

/** Text, or parts that are joined by a blank line (in assistant messages: without anything between). */
export type MessageContent = string | readonly ContentPart[] | null;

/**
 * A callable function: `name`, `description`, `parameters` (JSON Schema) and whatever else the caller wants shown,
 * rendered in the given key order. The wrapped form `{ type: "function", function: {…} }` is accepted too.
 */
export type ToolDefinition =
  | { readonly [key: string]: JsonValue | undefined }
  | ReadonlyMap<string, JsonValue>;

/** A call that the assistant made. */
export interface ToolCall {
  /** Links a tool result to the call; results are put in the order of the calls by it. */
  id?: string;
  name: string;
  /**
   * An object, or JSON text of one (numbers then keep their spelling, so `1.0` stays `1.0`). Empty or absent: no
   * arguments. Text that is no JSON at all is shown as one string parameter `arguments`.
   */
  arguments?: string | { readonly [key: string]: JsonValue | undefined } | ReadonlyMap<string, JsonValue>;
}

/** The vendor's internal classification tasks, each with a token of its own. */
export const TASKS = ["action", "query", "authority", "domain", "title", "read_url"] as const;
/** One of `TASKS`. */
export type Task = (typeof TASKS)[number];

/** Instructions. Adjacent ones are joined by a blank line; the first may come anywhere. */
export interface SystemMessage {
  role: "system";
  content?: MessageContent;
}

/** Instructions as a turn of their own, which may declare tools or an answer format. */
export interface DeveloperMessage {
  role: "developer";
  content: MessageContent;
  tools?: readonly ToolDefinition[];
  responseFormat?: JsonValue;
  task?: Task;
}

/** What the person says. Adjacent user messages and tool results form one turn. */
export interface UserMessage {
  role: "user";
  content?: MessageContent;
  task?: Task;
}

/** What the model said before. */
export interface AssistantMessage {
  role: "assistant";
  content?: MessageContent;
  reasoning?: string | null;
  toolCalls?: readonly ToolCall[];
  /** Leaves out the end token, so that the model goes on writing this message. Only for the last message. */
  openEnded?: boolean;
}

/** The result of a call. */
export interface ToolMessage {
  role: "tool";
  content?: MessageContent;
  toolCallId?: string;
}

/** A reminder with its own mark. Put it before the user turn that it belongs to. */
export interface ReminderMessage {
  role: "latest_reminder";
  content: MessageContent;
}

/** Any message. */
export type Message =
  | SystemMessage
  | DeveloperMessage
  | UserMessage
  | AssistantMessage
  | ToolMessage
  | ReminderMessage;

/**
 * How much to think. The preview checkpoint has a text for `max` only; the 0731 checkpoint has one for `on` (which
 * is its "high") and one for `max`; `low` never has one.
 */
export type Thinking = "off" | "low" | "on" | "max";

/** Which release the weights are; it decides the effort texts. */
export type Checkpoint = "preview" | "0731";

/** A conversation to render. */
export interface Conversation {
  messages: readonly Message[];
  /** Tools of the whole conversation; they go after the leading system text. Default none. */
  tools?: readonly ToolDefinition[];
  thinking: Thinking;
  /** Default `preview`. */
  checkpoint?: Checkpoint;
  /** Schema that the answer must follow, as JSON; it goes after the leading system text. Default none. */
  responseFormat?: JsonValue;
  /**
   * Writes the calls of an assistant's message as the model sampled them and returns true, or writes nothing and
   * returns false: they are then rendered by the book.
   */
  replayCalls?: (out: PieceBuilder, calls: readonly ToolCall[]) => boolean;
  /**
   * Writes all of an assistant's message, reasoning and calls too, as it was sampled, and returns true, or writes nothing
   * and returns false. `content` is the message's text. Asked before `replayCalls`.
   */
  replayAnswer?: (out: PieceBuilder, message: AssistantMessage, content: string) => boolean;
  /** Ends the prompt where the assistant's answer starts. Default true. */
  addGenerationPrompt?: boolean;
}
