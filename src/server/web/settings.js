// The settings' form: what is typed is stored as it is typed.

/** @param {import("./store.js").Store} store @param {HTMLFormElement} form */
export function bindSettings(store, form) {
  const fields = /** @type {(HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement)[]} */ (
    [...form.elements].filter((field) => "name" in field && field.name !== "")
  );
  const show = () => {
    const settings = store.settings;
    for (const field of fields) field.value = settings[field.name] ?? "";
  };
  show();
  const keep = () => {
    store.settings = Object.fromEntries(fields.map(({ name, value }) => [name, value]));
  };
  form.addEventListener("input", keep);
  form.addEventListener("change", keep);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(keep));
}
