// Making elements. Text is always set as text, never as markup.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * An element. `props`: `on` is listeners by event, `data` is data attributes, `class` and names with a dash are
 * attributes, everything else is set as a property.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [props]
 * @param {...Child} children null, undefined and false are left out
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "class" || name === "role" || name.includes("-")) element.setAttribute(name, value);
    else Object.assign(element, { [name]: value });
  }
  append(element, children);
  return element;
}

/**
 * @param {Node} parent
 * @param {Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  }
}

/**
 * The page's own element with this id.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element #${id}`);
  return /** @type {T} */ (element);
}

/** Outlines on a grid of 24, drawn with the text's colour. */
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  panel: "M4 5h16v14H4zM14.5 5v14",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V6M6 11.5 12 5.5l6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "m5 12.5 4.5 4.5L19 7.5",
  retry: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  edit: "M5 19h4L19 9l-4-4L5 15zM13 7l4 4",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13",
  close: "m6 6 12 12M18 6 6 18",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  down: "M12 5v13M6 12.5l6 6 6-6",
  tool: "m8 8-4.5 4L8 16M16 8l4.5 4L16 16M13.5 5l-3 14",
};

/**
 * A picture beside or instead of a word; screen readers skip it.
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(ns, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/**
 * A button with a picture whose name is read and shown as a tooltip.
 * @param {keyof typeof ICONS} picture
 * @param {string} label
 * @param {(event: MouseEvent) => void} click
 */
export function iconButton(picture, label, click) {
  return el(
    "button",
    { type: "button", class: "icon-button", title: label, "aria-label": label, on: { click } },
    icon(picture),
  );
}

/**
 * A button that copies what `text` returns and says so for a moment.
 * @param {string} label
 * @param {() => string} text
 */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(text());
    button.replaceChildren(icon(done ? "check" : "close"));
    button.title = done ? "Copied" : "The browser did not allow copying";
    button.setAttribute("aria-label", button.title);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
      button.setAttribute("aria-label", label);
    }, 1600);
  });
  return button;
}

/**
 * Whether the text is on the clipboard now.
 * @param {string} text
 */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages of another machine without TLS have no clipboard; the old way works there.
    const area = el("textarea", { value: text, class: "visually-hidden" });
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}
