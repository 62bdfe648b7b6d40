// The interactive chat: reads lines (from a terminal or a pipe), answers them, keeps the timeline growing so that
// each turn evaluates only what is new. Ctrl+C stops the answer; at the prompt, twice leaves.
import type { Interface } from "node:readline";
import { createInterface } from "node:readline";
import { ContextFullError } from "../session/session-errors.ts";
import { runChatCommand } from "./chat-commands.ts";
import { Chat } from "./chat-state.ts";
import { describeError, type RunContext } from "./run-context.ts";
import { dim, note } from "./terminal.ts";

const PROMPT = "> ";
const HISTORY_LINES = 500;

/** Chats until the input ends or `/quit`; returns the exit code. */
export async function runChat(
  context: RunContext,
  input: NodeJS.ReadableStream & { isTTY?: boolean },
): Promise<number> {
  const { terminal, model } = context;
  const engine = await context.openEngine();
  const chat = new Chat(context, engine);
  const isTerminal = input.isTTY === true && terminal.out.isTTY === true;
  const lines = new LineSource(input, isTerminal ? terminal.out : undefined);
  note(terminal, `${engine.info.spec.name || model.path} on ${engine.info.backendDescription}`);
  if (isTerminal)
    note(terminal, dim("/help lists the commands, Ctrl+C stops an answer, Ctrl+D leaves", terminal.err));
  const onInterrupt = () => lines.interrupt();
  process.on("SIGINT", onInterrupt);
  try {
    for (;;) {
      const line = await lines.next(() => note(terminal, "(Ctrl+C again or /quit leaves)"));
      if (line === undefined) return 0;
      if (line.trim() === "") continue;
      try {
        const outcome = line.startsWith("/") ? await runChatCommand(chat, line) : { prompt: line };
        if (outcome === "quit") return 0;
        if (outcome !== "done")
          await lines.during((signal) => chat.answer(outcome.prompt, isTerminal, signal));
      } catch (error) {
        terminal.err.write(`error: ${describeError(error)}\n`);
        if (error instanceof ContextFullError)
          note(terminal, "the turn was dropped; /ctx N enlarges the context");
      }
    }
  } finally {
    process.removeListener("SIGINT", onInterrupt);
    lines.close();
    await engine.close();
  }
}

/** Lines in order, whenever they arrive; interrupts go to the running answer or to the prompt. */
class LineSource {
  readonly #readline: Interface;
  readonly #queue: string[] = [];
  readonly #isTerminal: boolean;
  #ended = false;
  #wake = () => {};
  #running: AbortController | undefined;
  #interrupts = 0;
  #onFirstInterrupt = () => {};

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

  close(): void {
    this.#readline.close();
  }
}
