// The live panel: speed, slots, queue, memory against the plan. Elements are kept between readings, so that a reader's
// place and selection stay.
import { el } from "./dom.js";

const HISTORY = 60;
const GIB = 2 ** 30;
const MIB = 2 ** 20;

/** @type {Record<string, string>} */
const REGIONS = {
  weights: "Weights",
  kv_slots: "KV of slots",
  kv_checkpoints: "KV checkpoints",
  scratch: "Scratch",
  process: "Whole process",
};
/** @type {Record<string, string>} */
const STATES = {
  empty: "empty",
  idle: "free, kept",
  loading: "loading a saved state",
  prefill: "reading a prompt",
  decode: "answering",
  paused: "waits for its client",
};
const BUSY = new Set(["loading", "prefill", "decode", "paused"]);

/** @typedef {ReturnType<typeof import("./metrics-text.js").serverFigures>} Figures */

/** Shows readings. */
export class ServerPanel {
  /** @type {number[]} tokens per second, oldest first */
  #history = [];
  /** @type {{ atMs: number, sampledTokens: number } | undefined} */
  #last;
  #speed = el("strong", { class: "big" }, "0.0");
  #line = sparkline();
  #facts = el("dl", { class: "figures" });
  #slots = new MeterList();
  #memory = new MeterList();
  #slotTitle = el("h3", {}, "Slots");
  #memoryTitle = el("h3", {}, "Memory, held of planned");
  #away = el("p", { class: "hint" }, "No figures yet.");
  #body = el(
    "div",
    { hidden: true },
    el("p", { class: "speed" }, this.#speed, " tokens/s now"),
    this.#line.element,
    this.#facts,
    this.#slotTitle,
    this.#slots.element,
    this.#memoryTitle,
    this.#memory.element,
  );

  /** @param {HTMLElement} parent */
  constructor(parent) {
    parent.replaceChildren(this.#away, this.#body);
  }

  /** @param {string} reason */
  showAway(reason) {
    this.#last = undefined;
    this.#away.textContent = reason;
    this.#away.hidden = false;
    this.#body.hidden = true;
  }

  /**
   * @param {Figures} figures
   * @param {{ id: string, ctxTokens: number } | undefined} model
   */
  show(figures, model) {
    this.#away.hidden = true;
    this.#body.hidden = false;
    this.#showSpeed(figures.sampledTokens);
    const { slots, memory } = figures;
    const busy = slots.filter(({ state }) => BUSY.has(state)).length;
    const reused =
      figures.promptTokens > 0 ? Math.floor((100 * figures.reusedTokens) / figures.promptTokens) : 0;
    this.#showFacts([
      ["Model", model?.id ?? "–"],
      ["Context", model === undefined ? "–" : `${count(model.ctxTokens)} tokens`],
      ["Busy", slots.length > 0 ? `${busy} of ${slots.length} slots` : `${figures.running} answers`],
      ["Queue", figures.waiting === 0 ? "empty" : `${figures.waiting} waiting`],
      ["From cache", `${reused} % of prompts`],
      ["Answers", count(figures.finished)],
    ]);
    this.#slotTitle.hidden = slots.length === 0;
    this.#slots.show(
      slots.map(({ state, tokens }, index) => ({
        name: `${index + 1}`,
        note: STATES[state] ?? state,
        text: figures.slotCtxTokens ? `${count(tokens)} / ${count(figures.slotCtxTokens)}` : count(tokens),
        share: figures.slotCtxTokens ? tokens / figures.slotCtxTokens : 0,
        isBusy: BUSY.has(state),
      })),
    );
    this.#memoryTitle.hidden = memory.length === 0;
    this.#memory.show(
      memory.map(({ region, heldBytes, plannedBytes }) => ({
        name: REGIONS[region] ?? region,
        note: "",
        text: plannedBytes === undefined ? bytes(heldBytes) : ofBytes(heldBytes, plannedBytes),
        share: plannedBytes ? heldBytes / plannedBytes : 0,
        isBusy: false,
      })),
    );
  }

  /** @param {number} sampledTokens */
  #showSpeed(sampledTokens) {
    const atMs = performance.now();
    if (this.#last !== undefined && atMs > this.#last.atMs) {
      const tokens = Math.max(0, sampledTokens - this.#last.sampledTokens);
      this.#history.push((tokens * 1000) / (atMs - this.#last.atMs));
      if (this.#history.length > HISTORY) this.#history.shift();
    }
    this.#last = { atMs, sampledTokens };
    this.#speed.textContent = (this.#history.at(-1) ?? 0).toFixed(1);
    this.#line.show(this.#history);
  }

  /** @param {[string, string][]} facts */
  #showFacts(facts) {
    if (this.#facts.childElementCount !== facts.length) {
      this.#facts.replaceChildren(...facts.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))));
    }
    facts.forEach(([, value], index) => {
      const shown = this.#facts.children[index].lastElementChild;
      if (shown !== null && shown.textContent !== value) shown.textContent = value;
    });
  }
}

/** Rows with a name, a value and a bar. */
class MeterList {
  element = el("ul", { class: "meters" });

  /** @param {{ name: string, note: string, text: string, share: number, isBusy: boolean }[]} rows */
  show(rows) {
    while (this.element.childElementCount > rows.length) this.element.lastElementChild?.remove();
    while (this.element.childElementCount < rows.length) this.element.append(meterRow());
    rows.forEach(({ name, note, text, share, isBusy }, index) => {
      const [head, bar] = /** @type {HTMLElement[]} */ ([...this.element.children[index].children]);
      const [label, value] = /** @type {HTMLElement[]} */ ([...head.children]);
      const words = note === "" ? name : `${name} · ${note}`;
      if (label.textContent !== words) label.textContent = words;
      if (value.textContent !== text) value.textContent = text;
      bar.dataset.level = share > 1 ? "over" : isBusy ? "busy" : "normal";
      /** @type {HTMLElement} */ (bar.firstElementChild).style.inlineSize = `${Math.min(100, 100 * share)}%`;
    });
  }
}

function meterRow() {
  // The value stands beside the bar in words: the bar is for the eye alone.
  return el(
    "li",
    {},
    el("div", { class: "meter-head" }, el("span"), el("span", { class: "meter-value" })),
    el("div", { class: "meter-bar", "aria-hidden": "true" }, el("span")),
  );
}

function sparkline() {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("viewBox", `0 0 ${HISTORY - 1} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const area = document.createElementNS(ns, "polygon");
  const line = document.createElementNS(ns, "polyline");
  svg.append(area, line);
  return {
    element: svg,
    /** @param {number[]} values */
    show(values) {
      const top = Math.max(1, ...values);
      const first = HISTORY - values.length;
      const points = values.map((value, index) => `${first + index},${(19 - (18 * value) / top).toFixed(2)}`);
      line.setAttribute("points", points.join(" "));
      area.setAttribute(
        "points",
        values.length > 1 ? `${first},20 ${points.join(" ")} ${HISTORY - 1},20` : "",
      );
    },
  };
}

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");

/** @param {number} value */
function bytes(value) {
  return value >= GIB ? `${(value / GIB).toFixed(2)} GiB` : `${(value / MIB).toFixed(1)} MiB`;
}

/**
 * @param {number} held
 * @param {number} planned
 */
function ofBytes(held, planned) {
  const [unit, name] = planned >= GIB ? [GIB, "GiB"] : [MIB, "MiB"];
  return `${(held / unit).toFixed(planned >= GIB ? 2 : 1)} / ${(planned / unit).toFixed(planned >= GIB ? 2 : 1)} ${name}`;
}
