// Lines of a chat in order, whenever they arrive, and where Ctrl+C goes: to the running answer or to the prompt. Knows
// nothing of what the lines mean.
import { createInterface, type Interface } from "node:readline";

const PROMPT = "> ";
const HISTORY_LINES = 500;

/** See the file's head. */
export class LineSource {
  readonly #readline: Interface;
  readonly #queue: string[] = [];
  readonly #isTerminal: boolean;
  #ended = false;
  #wake = () => {};
  #running: AbortController | undefined;
  #interrupts = 0;
  #onFirstInterrupt = () => {};

  /** With an `output` the input is a terminal: a prompt is shown, lines can be edited and Ctrl+C arrives as a key. */
  constructor(input: NodeJS.ReadableStream, output: NodeJS.WritableStream | undefined) {
    this.#isTerminal = output !== undefined;
    this.#readline = createInterface({ input, output, prompt: PROMPT, historySize: HISTORY_LINES });
    this.#readline.on("line", (line) => {
      this.#queue.push(line);
      this.#wake();
    });
    this.#readline.on("close", () => {
      this.#ended = true;
      this.#wake();
    });
    // On a terminal readline takes Ctrl+C for itself; elsewhere it arrives as a signal.
    this.#readline.on("SIGINT", () => this.interrupt());
  }

  /** The next line, or undefined at the end of the input or after two interrupts. */
  async next(onFirstInterrupt: () => void): Promise<string | undefined> {
    this.#interrupts = 0;
    this.#onFirstInterrupt = onFirstInterrupt;
    if (this.#isTerminal && !this.#ended && this.#queue.length === 0) this.#readline.prompt();
    while (this.#queue.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#queue.shift();
  }

  /** Runs an answer that an interrupt aborts. */
  async during(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    this.#running = new AbortController();
    try {
      await work(this.#running.signal);
    } finally {
      this.#running = undefined;
    }
  }

  /** Ctrl+C: aborts the running answer; at the prompt the second one in a row ends the input. */
  interrupt(): void {
    if (this.#running !== undefined) {
      this.#running.abort();
      return;
    }
    this.#interrupts++;
    if (this.#interrupts >= 2 || !this.#isTerminal) {
      this.#ended = true;
      this.#queue.length = 0;
      this.#wake();
      return;
    }
    this.#onFirstInterrupt();
    this.#readline.prompt();
  }

  /** Stops reading; the input can then end the process. */
  close(): void {
    this.#readline.close();
  }
}
