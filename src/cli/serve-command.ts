// `ds4 serve` and `ds4-server`: the flags. The server itself is loaded when it runs, so that no other command pays for it.
import { Command } from "commander";
import { addServeFlags, type ServeFlags } from "./serve-flags.ts";
import { keepHeapSteady } from "./steady-heap.ts";
import { processTerminal } from "./terminal.ts";

/** The command under the name it is called by. */
export function serveCommand(name: string): Command {
  const command = new Command(name).description(
    "serve a model over HTTP: OpenAI chat, completions and responses, Anthropic messages, Ollama chat",
  );
  return addServeFlags(command).action(async (flags: ServeFlags) => {
    keepHeapSteady();
    const { runServe } = await import("./serve.ts");
    process.exitCode = await runServe(flags, processTerminal(flags.quiet === true));
  });
}

/** Adds the command to the program. */
export function registerServe(program: Command): void {
  program.addCommand(serveCommand("serve"));
}
