// The list of conversations: opening, renaming, exporting, deleting with a way back.
import { el, iconButton } from "./dom.js";
import { titleOf, toMarkdown } from "./store.js";

/**
 * @typedef {import("./store.js").Conversation} Conversation
 * @typedef {{ store: import("./store.js").Store, list: HTMLElement, open: (id: string) => void,
 *   removed: (conversation: Conversation) => void }} ListParts
 */

/** Draws itself again after each change of the store. */
export class ConversationList {
  #parts;
  #currentId = "";
  #renamingId = "";

  /** @param {ListParts} parts */
  constructor(parts) {
    this.#parts = parts;
    parts.store.addEventListener("change", () => this.draw());
  }

  /** @param {string} id */
  select(id) {
    this.#currentId = id;
    this.#renamingId = "";
    this.draw();
  }

  draw() {
    const { store, list } = this.#parts;
    if (this.#renamingId !== "" && store.get(this.#renamingId) !== undefined && list.querySelector("input"))
      return;
    // Drawing must not take the focus away from who is using the list.
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-conversation]"))
      ?.dataset.conversation;
    list.replaceChildren(...store.list().map((conversation) => this.#item(conversation)));
    if (list.childElementCount === 0) list.append(el("li", { class: "hint" }, "Nothing yet."));
    if (focused === undefined) return;
    const again = [...list.children].find(
      (item) => /** @type {HTMLElement} */ (item).dataset.conversation === focused,
    );
    /** @type {HTMLElement | null | undefined} */ (again?.querySelector("button"))?.focus();
  }

  /** @param {Conversation} conversation */
  #item(conversation) {
    const isCurrent = conversation.id === this.#currentId;
    const title = titleOf(conversation);
    const data = { conversation: conversation.id };
    if (this.#renamingId === conversation.id) return el("li", { data }, this.#renameForm(conversation));
    const open = el(
      "button",
      {
        type: "button",
        class: "conversation",
        title,
        "aria-current": isCurrent ? "page" : undefined,
        on: { click: () => this.#parts.open(conversation.id) },
      },
      title,
    );
    if (!isCurrent) return el("li", { data }, open);
    const tools = el(
      "div",
      { class: "conversation-tools" },
      iconButton("edit", "Rename conversation", () => this.#rename(conversation)),
      iconButton("download", "Export conversation", () =>
        download(fileName(title, "md"), toMarkdown(conversation), "text/markdown"),
      ),
      iconButton("trash", "Delete conversation", () => {
        this.#parts.store.remove(conversation.id);
        this.#parts.removed(conversation);
      }),
    );
    return el("li", { data, class: "is-current" }, open, tools);
  }

  /** @param {Conversation} conversation */
  #rename({ id }) {
    this.#renamingId = id;
    this.#parts.list.replaceChildren();
    this.draw();
    const input = this.#parts.list.querySelector("input");
    input?.select();
  }

  /** @param {Conversation} conversation */
  #renameForm(conversation) {
    const input = el("input", { value: titleOf(conversation), maxLength: 120, "aria-label": "New name" });
    const end = (/** @type {boolean} */ isKept) => {
      if (this.#renamingId === "") return;
      this.#renamingId = "";
      const hadFocus = document.activeElement === input;
      if (isKept) conversation.title = input.value.trim();
      if (isKept) this.#parts.store.save(conversation, { isUsed: false });
      this.draw();
      const button = /** @type {HTMLElement | null} */ (this.#parts.list.querySelector(".is-current button"));
      if (hadFocus) button?.focus();
    };
    input.addEventListener("blur", () => end(true));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      end(false);
    });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      end(true);
    };
    return el("form", { class: "rename", on: { submit } }, input);
  }
}

/**
 * Everything as one JSON document.
 * @param {import("./store.js").Store} store
 */
export function exportAll(store) {
  const document = { format: "ds4-conversations", version: 1, conversations: store.list() };
  download("ds4-conversations.json", JSON.stringify(document, null, 2), "application/json");
}

/**
 * @param {string} title
 * @param {string} ending
 */
function fileName(title, ending) {
  const name = title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 50);
  return `${name || "conversation"}.${ending}`;
}

/**
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
function download(name, text, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
