// The conversation on the page: sending, streaming, stopping, trying again. Answers go on while another conversation is
// looked at.
import { ServerError } from "./api.js";
import { chatBody, streamAnswer } from "./chat-request.js";
import { el } from "./dom.js";
import { AnswerView, userView } from "./message-view.js";

/**
 * @typedef {import("./store.js").Conversation} Conversation
 * @typedef {import("./store.js").AssistantMessage} AssistantMessage
 * @typedef {{ controller: AbortController, message: AssistantMessage, view?: AnswerView, startedMs: number }} Run
 * @typedef {{ store: import("./store.js").Store, messages: HTMLElement, scroll: ReturnType<typeof import("./scroll.js").followEnd>,
 *   announce: (text: string) => void, changed: () => void, failed: (error: unknown) => void,
 *   waitingText: () => string, edit: (text: string) => void }} ChatParts
 */

/** A stream is drawn at most this often, and stored at most that often. */
const DRAW_MS = 60;
const SAVE_MS = 1000;
/** An answer is read out to its beginning; the rest can be read in place. */
const ANNOUNCED_UNITS = 400;

/** The open conversation and every answer that runs. */
export class Chat {
  #parts;
  /** @type {Conversation} */
  conversation;
  /** @type {Map<string, Run>} by conversation */
  #runs = new Map();

  /** @param {ChatParts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.conversation = parts.store.create();
    window.addEventListener("pagehide", () => {
      for (const id of this.#runs.keys()) this.#save(id);
    });
  }

  get isRunning() {
    return this.#runs.has(this.conversation.id);
  }

  /** @param {Conversation} conversation */
  open(conversation) {
    this.conversation = conversation;
    this.draw();
    this.#parts.scroll.reset();
  }

  /** Shows all messages of the conversation anew. */
  draw() {
    const { messages, edit } = this.#parts;
    const run = this.#runs.get(this.conversation.id);
    const views = this.conversation.messages.map((message, index, all) => {
      if (message.role === "user") {
        return userView(message, () => {
          this.stopOf(this.conversation.id);
          this.#truncate(index);
          edit(message.content);
        });
      }
      const view = this.#answerView(message);
      const isRunning = run?.message === message;
      if (isRunning) run.view = view;
      view.update(isRunning ? this.#waitingText() : undefined, index === all.length - 1);
      return view.element;
    });
    messages.replaceChildren(...views);
    if (views.length === 0) messages.append(greeting());
    this.#parts.changed();
  }

  /** @param {string} text */
  send(text) {
    const { messages } = this.conversation;
    const last = messages.at(-1);
    // An answer that never began would only be in the model's way.
    if (last?.role === "assistant" && last.content === "" && last.calls.length === 0) messages.pop();
    messages.push({ role: "user", content: text });
    this.#run();
  }

  /** Answers the last question again. */
  retry() {
    const { messages } = this.conversation;
    if (messages.at(-1)?.role === "assistant") messages.pop();
    this.#run();
  }

  /** Ends the answer of the open conversation; what it said stays. */
  stop() {
    this.#runs.get(this.conversation.id)?.controller.abort();
  }

  /**
   * Ends a conversation's answer and forgets it.
   * @param {string} id
   */
  stopOf(id) {
    this.#runs.get(id)?.controller.abort();
    this.#runs.delete(id);
  }

  /** @param {AssistantMessage} message */
  #answerView(message) {
    const keep = () => this.#save(this.conversation.id);
    return new AnswerView(message, { retry: () => this.retry(), sendResults: () => this.#run(), keep });
  }

  /** @param {number} count messages that stay */
  #truncate(count) {
    this.conversation.messages.length = count;
    if (count === 0) this.#parts.store.remove(this.conversation.id);
    else this.#parts.store.save(this.conversation);
    this.draw();
  }

  #waitingText() {
    return this.#parts.waitingText();
  }

  async #run() {
    const { store, announce, changed, failed, scroll } = this.#parts;
    const conversation = this.conversation;
    if (this.#runs.has(conversation.id)) return;
    /** @type {AssistantMessage} */
    const message = { role: "assistant", content: "", reasoning: "", calls: [] };
    const asked = conversation.messages.slice();
    conversation.messages.push(message);
    /** @type {Run} */
    const run = { controller: new AbortController(), message, startedMs: performance.now() };
    this.#runs.set(conversation.id, run);
    store.save(conversation);
    this.draw();
    scroll.reset();
    announce("The model is answering.");
    const ticker = setInterval(() => run.view?.update(this.#waitingText(), true), 1000);
    const drawing = throttled(DRAW_MS, () => this.#drawRun(conversation.id));
    const saving = throttled(SAVE_MS, () => this.#save(conversation.id));
    try {
      const body = chatBody(asked, store.settings, conversation.id);
      await streamAnswer(body, message, run.controller.signal, () => {
        drawing.ask();
        saving.ask();
      });
      announce(`Answer: ${message.content.slice(0, ANNOUNCED_UNITS)}`);
    } catch (error) {
      if (run.controller.signal.aborted) {
        message.finish = "stopped";
        announce("The answer was stopped.");
      } else {
        message.error = error instanceof Error ? error.message : String(error);
        if (!(error instanceof ServerError)) console.warn(error);
        failed(error);
      }
    } finally {
      clearInterval(ticker);
      drawing.cancel();
      saving.cancel();
      if (this.#runs.get(conversation.id) === run) {
        this.#runs.delete(conversation.id);
        store.save(conversation);
      }
      if (this.conversation === conversation) this.draw();
      scroll.grown();
      changed();
    }
  }

  /** @param {string} id */
  #drawRun(id) {
    const run = this.#runs.get(id);
    if (run === undefined || this.conversation.id !== id) return;
    run.view?.update(this.#waitingText(), true);
    this.#parts.scroll.grown();
  }

  /** @param {string} id */
  #save(id) {
    const conversation = this.#parts.store.get(id);
    if (conversation !== undefined) this.#parts.store.save(conversation, { isUsed: false });
  }
}

/**
 * Runs `work` once per `ms`, some time after it was asked for.
 * @param {number} ms
 * @param {() => void} work
 */
function throttled(ms, work) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  return {
    ask() {
      timer ??= setTimeout(() => {
        timer = undefined;
        work();
      }, ms);
    },
    cancel() {
      clearTimeout(timer);
      timer = undefined;
    },
  };
}

function greeting() {
  return el(
    "div",
    { class: "greeting" },
    el("h2", {}, "What is on your mind?"),
    el("p", {}, "Answers come from the model on this server. Conversations stay in this browser."),
  );
}
