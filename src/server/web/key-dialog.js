// Asks for the API key and keeps it for this tab.
import { apiKey } from "./api.js";
import { byId } from "./dom.js";

/** @param {() => void} changed called when there is another key */
export function bindKeyDialog(changed) {
  /** @type {HTMLDialogElement} */
  const dialog = byId("key-dialog");
  /** @type {HTMLInputElement} */
  const input = byId("key-input");
  const reason = byId("key-reason");
  const plain = reason.textContent ?? "";
  let wasAsked = false;
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    apiKey.set(input.value.trim());
    input.value = "";
    wasAsked = false;
    dialog.close();
    changed();
  });
  byId("key-cancel").addEventListener("click", () => dialog.close());
  const open = (/** @type {string} */ text) => {
    reason.textContent = text;
    if (!dialog.open) dialog.showModal();
    input.focus();
  };
  byId("change-key").addEventListener("click", () => open(`${plain} An empty key forgets it.`));
  return {
    /** Asks once per key, so that who cancels is left alone. */
    ask() {
      if (wasAsked) return;
      wasAsked = true;
      open(apiKey.get() === "" ? plain : `The server did not accept this key. ${plain}`);
    },
  };
}
