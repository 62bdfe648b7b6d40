// Messages as elements. An answer is updated in place while it grows.
import { append, copyButton, el, icon } from "./dom.js";
import { codeNode, MarkdownView } from "./markdown.js";

/**
 * @typedef {import("./store.js").AssistantMessage} AssistantMessage
 * @typedef {import("./store.js").UserMessage} UserMessage
 * @typedef {{ retry: () => void, sendResults: () => void, keep: () => void }} AnswerActions `keep`: something was typed
 */

/**
 * @param {UserMessage} message
 * @param {() => void} edit
 */
export function userView(message, edit) {
  return el(
    "article",
    { class: "message user", "aria-label": "Your message" },
    el("div", { class: "bubble" }, message.content),
    el(
      "div",
      { class: "actions" },
      copyButton("Copy message", () => message.content),
      el(
        "button",
        {
          type: "button",
          class: "icon-button",
          title: "Edit and ask again",
          "aria-label": "Edit and ask again",
          on: { click: edit },
        },
        icon("edit"),
      ),
    ),
  );
}

/** An answer: thinking folded, text, calls, what went wrong, figures. */
export class AnswerView {
  element = el("article", { class: "message answer", "aria-label": "Answer" });
  #message;
  #actions;
  #markdown = new MarkdownView();
  #thinkingTitle = el("span");
  #thinkingText = document.createTextNode("");
  #thinking = el(
    "details",
    { class: "thinking", hidden: true },
    el("summary", {}, this.#thinkingTitle),
    el("div", { class: "thinking-text" }, this.#thinkingText),
  );
  #calls = el("div", { class: "calls" });
  #waiting = el("p", { class: "waiting" });
  #foot = el("div", { class: "foot" });
  #shownCalls = "";

  /**
   * @param {AssistantMessage} message
   * @param {AnswerActions} actions
   */
  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    append(this.element, [this.#thinking, this.#markdown.element, this.#calls, this.#waiting, this.#foot]);
  }

  /**
   * Shows the message as it is now. `waitingText` while it runs, undefined when it is over.
   * @param {string | undefined} waitingText
   * @param {boolean} isLast of the conversation
   */
  update(waitingText, isLast) {
    const { reasoning, content } = this.#message;
    const isRunning = waitingText !== undefined;
    this.element.setAttribute("aria-busy", String(isRunning));
    this.#thinking.hidden = reasoning === "";
    this.#thinkingTitle.textContent = thinkingTitle(this.#message, isRunning);
    // Only what is new: a long text would be laid out again at each token.
    const shown = this.#thinkingText.length;
    if (reasoning.length > shown) this.#thinkingText.appendData(reasoning.slice(shown));
    this.#markdown.set(content);
    this.#updateCalls(isRunning, isLast);
    const isQuiet = content === "" && this.#message.calls.length === 0;
    this.#waiting.hidden = !(isRunning && isQuiet);
    this.#waiting.textContent = waitingText ?? "";
    this.element.classList.toggle("is-growing", isRunning && !isQuiet);
    if (isRunning) this.#foot.replaceChildren();
    else this.#showFoot(isLast);
  }

  /**
   * @param {boolean} isRunning
   * @param {boolean} isLast
   */
  #updateCalls(isRunning, isLast) {
    const state = JSON.stringify([this.#message.calls, isRunning, isLast]);
    if (state === this.#shownCalls) return;
    this.#shownCalls = state;
    const isAnswerable =
      !isRunning && isLast && this.#message.calls.length > 0 && this.#message.error === undefined;
    const views = this.#message.calls.map((call) => callView(call, isAnswerable, this.#actions.keep));
    this.#calls.replaceChildren(...views);
    if (!isAnswerable) return;
    const send = el(
      "button",
      { type: "button", class: "button", on: { click: this.#actions.sendResults } },
      "Send results",
    );
    this.#calls.append(send);
  }

  /** @param {boolean} isLast */
  #showFoot(isLast) {
    const { error, finish, usage, content } = this.#message;
    const ended = endText(this.#message);
    const retry = (/** @type {string} */ label) =>
      el(
        "button",
        { type: "button", class: "button quiet", on: { click: this.#actions.retry } },
        icon("retry"),
        label,
      );
    this.#foot.replaceChildren();
    if (error !== undefined) {
      const box = el(
        "div",
        { class: "notice error", role: "alert" },
        el("p", {}, error),
        isLast && retry("Try again"),
      );
      this.#foot.append(box);
    } else if (ended !== "") this.#foot.append(el("p", { class: "ended" }, ended));
    const actions = el(
      "div",
      { class: "actions" },
      content !== "" && copyButton("Copy answer", () => content),
    );
    if (isLast && error === undefined && finish !== undefined) {
      actions.append(
        el(
          "button",
          {
            type: "button",
            class: "icon-button",
            title: "Answer again",
            "aria-label": "Answer again",
            on: { click: this.#actions.retry },
          },
          icon("retry"),
        ),
      );
    }
    append(this.#foot, [el("div", { class: "foot-line" }, actions, usage && factList(usage))]);
  }
}

/**
 * @param {AssistantMessage} message
 * @param {boolean} isRunning
 */
function thinkingTitle({ thinkMs, usage, content }, isRunning) {
  if (isRunning && thinkMs === undefined) return "Thinking…";
  const tokens = usage ? `, ${count(usage.reasoningTokens)} tokens` : "";
  if (thinkMs === undefined) return content === "" ? `Thinking, not finished${tokens}` : `Thinking${tokens}`;
  return `Thought for ${(thinkMs / 1000).toFixed(1)} s${tokens}`;
}

/** @param {AssistantMessage} message */
function endText({ finish, content, calls }) {
  if (finish === "stopped") return "You stopped this answer.";
  if (finish === "length") return "The limit of tokens was reached before the answer was complete.";
  if (finish === undefined) return "This answer was interrupted when the page was closed.";
  return content === "" && calls.length === 0 ? "The model answered nothing." : "";
}

/**
 * One call with its arguments, and its result or a field for it.
 * @param {import("./store.js").ToolCall} call
 * @param {boolean} isAnswerable
 * @param {() => void} keep
 */
function callView(call, isAnswerable, keep) {
  const typed = (/** @type {Event} */ { target }) => {
    call.result = /** @type {HTMLTextAreaElement} */ (target).value;
    keep();
  };
  const result = isAnswerable
    ? el(
        "label",
        { class: "call-result" },
        "Result",
        el("textarea", {
          rows: 2,
          value: call.result ?? "",
          placeholder: "What the tool returns",
          on: { input: typed },
        }),
      )
    : call.result !== undefined && el("div", { class: "call-result" }, codeNode("result", call.result));
  return el(
    "section",
    { class: "call", "aria-label": `Tool call ${call.name}` },
    el("h3", {}, icon("tool"), el("span", {}, "Calls "), el("code", {}, call.name)),
    codeNode("arguments", prettyJson(call.arguments)),
    result,
  );
}

/** @param {string} json */
function prettyJson(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // still on its way
  }
}

/** @param {import("./store.js").Usage} usage */
function factList({ promptTokens, cachedTokens, completionTokens, prefillRate, decodeRate }) {
  const share = promptTokens > 0 ? ` (${Math.floor((100 * cachedTokens) / promptTokens)} %)` : "";
  /** @type {[string, string, string][]} */
  const facts = [
    ["Prompt", count(promptTokens), "Tokens of the conversation so far"],
    ["Cached", `${count(cachedTokens)}${share}`, "Prompt tokens that were not evaluated again"],
    ["Prefill", rate(prefillRate), "Speed of reading the rest of the prompt"],
    ["Answer", count(completionTokens), "Tokens of this answer, thinking included"],
    ["Decode", rate(decodeRate), "Speed of writing the answer"],
  ];
  const items = facts.map(([name, value, title]) =>
    el("div", { title }, el("dt", {}, name), el("dd", {}, value)),
  );
  return el("dl", { class: "facts" }, ...items);
}

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");

/** @param {number} perSecond */
function rate(perSecond) {
  if (!(perSecond > 0)) return "–";
  return `${perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(1)} t/s`;
}
