// The chat page put together.
import { ServerError } from "./api.js";
import { Chat } from "./chat.js";
import { ConversationList, exportAll } from "./conversation-list.js";
import { byId, el, icon } from "./dom.js";
import { bindDrawers } from "./drawers.js";
import { bindKeyDialog } from "./key-dialog.js";
import { followEnd } from "./scroll.js";
import { ServerPanel } from "./server-panel.js";
import { ServerWatch } from "./server-watch.js";
import { bindSettings } from "./settings.js";
import { Store } from "./store.js";

const UNDO_MS = 12_000;

const store = new Store();
/** @type {HTMLTextAreaElement} */
const input = byId("input");
const send = byId("send");
const notices = byId("notices");

for (const [id, name] of /** @type {const} */ ([
  ["toggle-left", "menu"],
  ["toggle-right", "panel"],
  ["toggle-theme", "theme"],
])) {
  byId(id).append(icon(name));
}
byId("new-conversation").prepend(icon("plus"));
byId("jump").prepend(icon("down"));

const isStored = () => store.get(chat.conversation.id) !== undefined;
const draftId = () => (isStored() ? chat.conversation.id : "new");

/** @param {string} text */
function setInput(text) {
  input.value = text;
  store.setDraft(draftId(), text);
  fitInput();
}

function fitInput() {
  // Measured from nothing, or it would never shrink.
  input.style.blockSize = "auto";
  input.style.blockSize = `${input.scrollHeight}px`;
  updateSend();
}

function updateSend() {
  const isRunning = chat.isRunning;
  const label = isRunning ? "Stop" : "Send";
  if (send.title !== label || send.childElementCount === 0) {
    send.title = label;
    send.setAttribute("aria-label", label);
    send.replaceChildren(icon(isRunning ? "stop" : "send"));
  }
  send.classList.toggle("is-stop", isRunning);
  // Stays reachable while there is nothing to send: a button that vanishes takes the focus with it.
  send.setAttribute("aria-disabled", String(!isRunning && input.value.trim() === ""));
}

function submit() {
  if (chat.isRunning || input.value.trim() === "") return;
  const text = input.value;
  setInput("");
  chat.send(text);
  list.select(chat.conversation.id);
  store.currentId = chat.conversation.id;
}

/** @param {string} text @param {HTMLElement} [action] */
function notice(text, action) {
  const box = el("div", { class: "notice", role: "status" }, el("p", {}, text), action ?? null);
  notices.replaceChildren(box);
  setTimeout(() => box.remove(), UNDO_MS);
}

const watch = new ServerWatch(
  () => drawers.isOpen("right") && /** @type {HTMLDetailsElement} */ (byId("server")).open,
);
const keyDialog = bindKeyDialog(() => watch.look());

const chat = new Chat({
  store,
  messages: byId("messages"),
  scroll: followEnd(byId("log"), byId("jump")),
  announce: (text) => {
    byId("live").textContent = text;
  },
  changed: () => updateSend(),
  failed: (error) => {
    if (error instanceof ServerError && error.status === 401) keyDialog.ask();
    watch.look();
  },
  waitingText: () => {
    const { status, figures } = watch;
    if (status.state === "loading") return "The model is loading…";
    return figures !== undefined && figures.waiting > 0 ? "Waiting for a free slot…" : "Reading…";
  },
  edit: (text) => {
    setInput(text);
    input.focus();
  },
});

/** @param {import("./store.js").Conversation} conversation */
function open(conversation) {
  chat.open(conversation);
  store.currentId = conversation.id;
  list.select(conversation.id);
  input.value = store.draft(draftId());
  fitInput();
  drawers.closeIfCovering();
}

const list = new ConversationList({
  store,
  list: byId("conversations"),
  open: (id) => {
    const conversation = store.get(id);
    if (conversation !== undefined) open(conversation);
  },
  removed: (conversation) => {
    chat.stopOf(conversation.id);
    if (conversation === chat.conversation) open(store.list()[0] ?? store.create());
    const undo = el("button", { type: "button", class: "button quiet" }, "Undo");
    undo.addEventListener("click", () => {
      store.save(conversation);
      notices.replaceChildren();
      open(conversation);
    });
    notice("The conversation was deleted.", undo);
    undo.focus();
  },
});

const drawers = bindDrawers(() => watch.look());
bindSettings(store, byId("settings"));
const panel = new ServerPanel(byId("server-panel"));
byId("server").addEventListener("toggle", () => watch.look());
watch.addEventListener("figures", () => {
  if (watch.figures !== undefined) panel.show(watch.figures, watch.model);
});
watch.addEventListener("status", () => {
  const { state, text } = watch.status;
  byId("state-dot").dataset.state = state;
  const shown = byId("state-text");
  if (shown.textContent !== text) shown.textContent = text;
  shown.title = text;
  if (state === "locked") keyDialog.ask();
  if (watch.figures === undefined) panel.showAway(`The server ${text}.`);
});
store.addEventListener("full", () =>
  notice("The browser's storage is full: new messages are lost on reload. Export and delete conversations."),
);

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (chat.isRunning) chat.stop();
  else submit();
});
input.addEventListener("input", () => {
  store.setDraft(draftId(), input.value);
  fitInput();
});
input.addEventListener("keydown", (event) => {
  // While an input method composes a word, Enter is its own.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !chat.isRunning) return;
  event.preventDefault();
  chat.stop();
});
byId("new-conversation").addEventListener("click", () => {
  open(store.create());
  input.focus();
});
byId("export-all").addEventListener("click", () => exportAll(store));

// Another tab has written to the conversation that is open here.
store.addEventListener("change", () => {
  const stored = store.get(chat.conversation.id);
  if (stored !== undefined && stored !== chat.conversation && !chat.isRunning) chat.open(stored);
});

watch.look();
open(store.get(store.currentId) ?? store.create());
if (matchMedia("(pointer: fine)").matches) input.focus();
