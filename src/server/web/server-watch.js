// Asks the server how it is: rarely while all is well, every other second while its panel is open.
import { request, ServerError } from "./api.js";
import { parseMetrics, serverFigures } from "./metrics-text.js";

const PANEL_MS = 2000;
const TROUBLE_MS = 3000;
const CALM_MS = 20_000;

/**
 * @typedef {{ state: "ready" | "loading" | "locked" | "away" | "failed", text: string }} ServerStatus
 * @typedef {{ id: string, ctxTokens: number }} Model
 */

/** Events: `status`, `figures`. */
export class ServerWatch extends EventTarget {
  /** @type {ServerStatus} */
  status = { state: "away", text: "connecting" };
  /** @type {Model | undefined} */
  model;
  /** @type {ReturnType<typeof serverFigures> | undefined} */
  figures;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #isPanelOpen;
  #round = 0;

  /** @param {() => boolean} isPanelOpen */
  constructor(isPanelOpen) {
    super();
    this.#isPanelOpen = isPanelOpen;
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.look();
    });
  }

  /** Looks now, and again after a while. */
  async look() {
    clearTimeout(this.#timer);
    const round = ++this.#round;
    await this.#read();
    if (round !== this.#round) return;
    this.dispatchEvent(new Event("status"));
    const calmMs = this.#isPanelOpen() ? PANEL_MS : CALM_MS;
    const delay = this.status.state === "ready" ? calmMs : TROUBLE_MS;
    // A hidden page asks nothing; it looks again when it is shown. One that waits for a key asks when it has one.
    if (document.visibilityState === "visible" && this.status.state !== "locked") {
      this.#timer = setTimeout(() => this.look(), delay);
    }
  }

  async #read() {
    try {
      if (this.model === undefined || this.status.state !== "ready") {
        const list = await (await request("/v1/models")).json();
        const [model] = list.data;
        this.model = { id: model.id, ctxTokens: model.context_length };
        this.status = { state: "ready", text: model.id };
      }
      const figures = serverFigures(parseMetrics(await (await request("/metrics")).text()));
      this.figures = figures;
      if (!figures.isReady) this.model = undefined;
      if (!figures.isReady) this.status = await healthStatus();
      this.dispatchEvent(new Event("figures"));
    } catch (error) {
      this.figures = undefined;
      this.status = await troubleStatus(error);
    }
  }
}

/**
 * @param {unknown} error
 * @returns {Promise<ServerStatus>}
 */
async function troubleStatus(error) {
  const status = error instanceof ServerError ? error.status : 0;
  if (status === 401) return { state: "locked", text: "needs an API key" };
  if (status === 503) return healthStatus();
  return { state: "away", text: status === 0 ? "cannot be reached" : `answers with ${status}` };
}

/** @returns {Promise<ServerStatus>} */
async function healthStatus() {
  try {
    const body = await (await fetch("/health", { cache: "no-store", credentials: "omit" })).json();
    if (body.status === "loading") return { state: "loading", text: "loading the model" };
    if (body.status === "failed") return { state: "failed", text: "has failed; start it again" };
    return { state: "loading", text: body.status === "ok" ? "ready" : String(body.status) };
  } catch {
    return { state: "away", text: "cannot be reached" };
  }
}
