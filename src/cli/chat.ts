// The interactive chat: reads lines (from a terminal or a pipe), answers them, keeps the timeline growing so that
// each turn evaluates only what is new. Ctrl+C stops the answer; at the prompt, twice leaves.
import { ContextFullError } from "../session/session-errors.ts";
import { runChatCommand } from "./chat-commands.ts";
import { Chat } from "./chat-state.ts";
import { LineSource } from "./line-source.ts";
import { describeError, type RunContext } from "./run-context.ts";
import { dim, note } from "./terminal.ts";

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
