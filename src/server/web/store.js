// Conversations, settings and drafts in the browser. Each conversation has a key of its own, so that two tabs do not
// overwrite one another's. What cannot be stored stays in memory, and the page is told.

/**
 * @typedef {{ name: string, arguments: string, id: string, result?: string }} ToolCall
 * @typedef {{ promptTokens: number, cachedTokens: number, completionTokens: number, reasoningTokens: number,
 *   prefillRate: number, decodeRate: number }} Usage tokens, and tokens per second
 * @typedef {{ role: "user", content: string }} UserMessage
 * @typedef {{ role: "assistant", content: string, reasoning: string, thinkMs?: number, calls: ToolCall[], usage?: Usage,
 *   finish?: string, error?: string }} AssistantMessage `finish`: the server's word, or `stopped`; none while it runs
 * @typedef {UserMessage | AssistantMessage} Message
 * @typedef {{ id: string, title: string, createdMs: number, updatedMs: number, messages: Message[] }} Conversation
 */

const CONVERSATION = "ds4.conversation.";
const DRAFT = "ds4.draft.";
const SETTINGS = "ds4.settings";
const CURRENT = "ds4.current";
const MAX_TITLE_UNITS = 60;

/** All of it. Events: `change` (conversations), `full` (something could not be stored). */
export class Store extends EventTarget {
  /** @type {Map<string, Conversation>} */
  #conversations = new Map();

  constructor() {
    super();
    for (const key of Object.keys(localStorage)) this.#read(key);
    window.addEventListener("storage", ({ key }) => {
      if (key === null || !key.startsWith(CONVERSATION)) return;
      if (!this.#read(key)) this.#conversations.delete(key.slice(CONVERSATION.length));
      this.dispatchEvent(new Event("change"));
    });
  }

  /** @param {string} key */
  #read(key) {
    if (!key.startsWith(CONVERSATION)) return false;
    const conversation = parse(localStorage.getItem(key));
    if (typeof conversation?.id !== "string" || !Array.isArray(conversation.messages)) return false;
    this.#conversations.set(conversation.id, conversation);
    return true;
  }

  /** @returns {Conversation[]} the one used last comes first */
  list() {
    return [...this.#conversations.values()].sort((a, b) => b.updatedMs - a.updatedMs);
  }

  /** @param {string} id */
  get(id) {
    return this.#conversations.get(id);
  }

  /** @returns {Conversation} not stored before it holds a message */
  create() {
    const now = Date.now();
    // randomUUID is for secure pages only; this one may come from another machine without TLS.
    const id = `${now.toString(36)}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    return { id, title: "", createdMs: now, updatedMs: now, messages: [] };
  }

  /**
   * Stores it as it is now.
   * @param {Conversation} conversation
   * @param {{ isUsed?: boolean }} [options] `isUsed` false keeps its place in the list
   */
  save(conversation, { isUsed = true } = {}) {
    if (isUsed) conversation.updatedMs = Date.now();
    const isNew = this.#conversations.get(conversation.id) !== conversation;
    this.#conversations.set(conversation.id, conversation);
    this.#write(CONVERSATION + conversation.id, JSON.stringify(conversation));
    if (isNew || isUsed) this.dispatchEvent(new Event("change"));
  }

  /** @param {string} id */
  remove(id) {
    this.#conversations.delete(id);
    localStorage.removeItem(CONVERSATION + id);
    localStorage.removeItem(DRAFT + id);
    this.dispatchEvent(new Event("change"));
  }

  /** @returns {string} the conversation that was open last, or an empty text */
  get currentId() {
    return localStorage.getItem(CURRENT) ?? "";
  }

  set currentId(id) {
    this.#write(CURRENT, id);
  }

  /**
   * Text that was typed but not sent. A conversation that is not stored yet shares the draft of `new`.
   * @param {string} id
   */
  draft(id) {
    return localStorage.getItem(DRAFT + id) ?? "";
  }

  /**
   * @param {string} id
   * @param {string} text
   */
  setDraft(id, text) {
    if (text === "") localStorage.removeItem(DRAFT + id);
    else this.#write(DRAFT + id, text);
  }

  /** @returns {Record<string, string>} what was set, as it was typed */
  get settings() {
    return parse(localStorage.getItem(SETTINGS)) ?? {};
  }

  set settings(settings) {
    this.#write(SETTINGS, JSON.stringify(settings));
  }

  /**
   * @param {string} key
   * @param {string} value
   */
  #write(key, value) {
    try {
      localStorage.setItem(key, value);
    } catch {
      this.dispatchEvent(new Event("full"));
    }
  }
}

/** @param {string | null} json */
function parse(json) {
  try {
    return JSON.parse(json ?? "null");
  } catch {
    return null;
  }
}

/**
 * A name for a conversation: its own, or the beginning of its first message.
 * @param {Conversation} conversation
 */
export function titleOf({ title, messages }) {
  if (title !== "") return title;
  const first = messages[0]?.content.trim().replace(/\s+/g, " ") ?? "";
  if (first === "") return "New conversation";
  return first.length > MAX_TITLE_UNITS ? `${first.slice(0, MAX_TITLE_UNITS).trimEnd()}…` : first;
}

/**
 * A conversation as a Markdown document.
 * @param {Conversation} conversation
 */
export function toMarkdown(conversation) {
  const parts = [`# ${titleOf(conversation)}`];
  for (const message of conversation.messages) {
    if (message.role === "user") {
      parts.push("## Question", message.content);
      continue;
    }
    parts.push("## Answer");
    if (message.reasoning !== "") parts.push(message.reasoning.replace(/^/gm, "> "));
    if (message.content !== "") parts.push(message.content);
    for (const call of message.calls) {
      parts.push(`Call of \`${call.name}\`:`, `\`\`\`json\n${call.arguments}\n\`\`\``);
      if (call.result !== undefined) parts.push("Result:", `\`\`\`\n${call.result}\n\`\`\``);
    }
  }
  return `${parts.join("\n\n")}\n`;
}
