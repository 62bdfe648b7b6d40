// The two side panels: columns on a wide window, drawers over the page on a narrow one.
import { byId } from "./dom.js";

/** Called when a panel opens or closes. @typedef {() => void} Changed */

/** @param {Changed} changed */
export function bindDrawers(changed) {
  const body = document.body;
  const narrow = matchMedia("(max-width: 60rem)");
  const sides = /** @type {const} */ (["left", "right"]);
  /** @param {"left" | "right"} side @param {boolean} isOpen */
  const set = (side, isOpen) => {
    body.dataset[side] = isOpen ? "open" : "closed";
    byId(side).inert = !isOpen;
    byId(`toggle-${side}`).setAttribute("aria-expanded", String(isOpen));
    // A drawer covers the page; what lies below it is not for the keyboard then.
    const isCovered = narrow.matches && sides.some((each) => body.dataset[each] === "open");
    byId("main").inert = isCovered;
    byId("scrim").hidden = !isCovered;
  };
  const arrange = () => {
    set("left", !narrow.matches);
    set("right", matchMedia("(min-width: 76rem)").matches);
  };
  const close = (/** @type {"left" | "right"} */ side) => {
    set(side, false);
    byId(`toggle-${side}`).focus();
  };
  for (const side of sides) {
    byId(`toggle-${side}`).addEventListener("click", () => {
      const isOpen = body.dataset[side] !== "open";
      if (isOpen && narrow.matches) set(side === "left" ? "right" : "left", false);
      set(side, isOpen);
      changed();
      if (isOpen && narrow.matches)
        /** @type {HTMLElement | null} */ (byId(side).querySelector("button, summary"))?.focus();
    });
  }
  byId("scrim").addEventListener("click", () => {
    for (const side of sides) if (body.dataset[side] === "open") close(side);
  });
  document.addEventListener("keydown", (event) => {
    const side = sides.find((each) => body.dataset[each] === "open");
    if (event.key !== "Escape" || event.defaultPrevented || !narrow.matches || side === undefined) return;
    event.preventDefault();
    close(side);
  });
  narrow.addEventListener("change", arrange);
  arrange();
  return {
    /** After something was chosen in a drawer that covers the page. */
    closeIfCovering() {
      if (!narrow.matches) return;
      for (const side of sides) if (body.dataset[side] === "open") set(side, false);
    },
    isOpen: (/** @type {"left" | "right"} */ side) => body.dataset[side] === "open",
  };
}
