// Draws progress reports on stderr: a bar on a terminal, a plain line now and then elsewhere. Short work (under two
// seconds off a terminal) draws nothing.
import type { Progress, ProgressListener } from "../core/progress.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";
import type { Terminal } from "./terminal.ts";

const REDRAW_MS = 100;
const PLAIN_FIRST_MS = 2000;
const PLAIN_INTERVAL_MS = 10_000;
const BAR_WIDTH = 24;
/** A bar is shortened this far before the line is cut. */
const MIN_BAR_WIDTH = 8;

/** One bar; it restarts when the label changes. Call `clear` before writing anything else to the stream. */
export class ProgressBar {
  readonly #terminal: Terminal;
  #label = "";
  #startMs = 0;
  #lastDrawMs = 0;
  #drawnWidth = 0;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** Hand this to libraries. */
  readonly listener: ProgressListener = (progress) => this.update(progress);

  /** Draws a report, if it is time to. The last one erases the bar. */
  update(progress: Progress): void {
    const { err, quiet } = this.#terminal;
    if (quiet) return;
    const now = performance.now();
    if (progress.label !== this.#label) {
      this.clear();
      this.#label = progress.label;
      this.#startMs = now;
      this.#lastDrawMs = err.isTTY ? 0 : now - PLAIN_INTERVAL_MS + PLAIN_FIRST_MS;
    }
    if (progress.done >= progress.total) {
      this.clear();
      this.#label = "";
      return;
    }
    if (now - this.#lastDrawMs < (err.isTTY ? REDRAW_MS : PLAIN_INTERVAL_MS)) return;
    this.#lastDrawMs = now;
    const columns = (err.columns ?? 80) - 1;
    const line = describeProgress(progress, (now - this.#startMs) / 1000, err.isTTY === true, columns);
    if (!err.isTTY) {
      err.write(`${line}\n`);
      return;
    }
    const shown = line.slice(0, columns);
    err.write(`\r${shown.padEnd(this.#drawnWidth)}`);
    this.#drawnWidth = shown.length;
  }

  /** Erases the bar from the terminal. */
  clear(): void {
    if (this.#drawnWidth === 0) return;
    this.#terminal.err.write(`\r${" ".repeat(this.#drawnWidth)}\r`);
    this.#drawnWidth = 0;
  }
}

/** One line: label, bar, share, amounts, rate, time left. The bar makes room for them within `columns`. */
export function describeProgress(
  progress: Progress,
  elapsedSeconds: number,
  withBar: boolean,
  columns = Number.POSITIVE_INFINITY,
): string {
  const { label, done, total, unit, detail, doneBefore = 0 } = progress;
  const share = total > 0 ? Math.min(1, done / total) : 1;
  const amount = (value: number) => (unit === "bytes" ? formatBytes(value) : `${Math.round(value)}`);
  const parts = [`${Math.floor(share * 100)}%`, `${amount(done)} of ${amount(total)}`];
  if (unit !== "bytes") parts[1] += ` ${unit}`;
  if (elapsedSeconds > 0.5 && done > doneBefore) {
    const rate = (done - doneBefore) / elapsedSeconds;
    parts.push(unit === "bytes" ? `${formatBytes(rate)}/s` : `${rate.toFixed(1)} ${unit}/s`);
    parts.push(`${formatSeconds((total - done) / rate)} left`);
  }
  const figures = parts.join("  ");
  const room = columns - label.length - figures.length - "[] ".length - 1;
  const width = Math.max(MIN_BAR_WIDTH, Math.min(BAR_WIDTH, room));
  const filled = Math.round(share * width);
  const bar = withBar ? `[${"#".repeat(filled)}${".".repeat(width - filled)}] ` : "";
  return `${label} ${bar}${figures}${detail ? `  ${detail}` : ""}`;
}
