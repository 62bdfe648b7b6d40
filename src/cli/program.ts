// The command line as a whole: root command, subcommands, and how errors become messages and exit codes.
import { Command, CommanderError, Option } from "commander";
import { resolveModelPath } from "../api/open-model.ts";
import { UsageError } from "../core/errors.ts";
import { runChat } from "./chat.ts";
import { environmentWarning } from "./environment.ts";
import { EXIT, exitCodeOf } from "./exit-codes.ts";
import { inspectFile } from "./inspect.ts";
import { runOneShot } from "./one-shot.ts";
import { packageVersion } from "./package-version.ts";
import { runPerplexity } from "./perplexity.ts";
import { describeError, RunContext } from "./run-context.ts";
import { addRunFlags, normalizeArgv, type RunFlags } from "./run-options.ts";
import { processTerminal, type Terminal } from "./terminal.ts";
import { dumpLogits, dumpLogprobs, dumpTokens } from "./token-dumps.ts";

const EXIT_CODE_HELP = `
Exit codes: ${EXIT.ok} ok, ${EXIT.failure} failure, ${EXIT.usage} wrong usage, ${EXIT.memory} does not fit in memory, ${EXIT.interrupted} interrupted.

Examples:
  ds4                                        chat with the bundled model
  ds4 -p "What is the capital of France?" --nothink --temp 0
  ds4 -m model.gguf -c 100000 --prompt-file question.txt`;

/** Adds a subcommand's file to the program. */
export type RegisterCommand = (program: Command) => void;

/** Parses and runs; returns the exit code. Never throws and never ends the process. */
export async function main(
  argv: readonly string[],
  subcommands: readonly RegisterCommand[],
): Promise<number> {
  const program = new Command("ds4");
  program
    .description("Runs DeepSeek-V4-shaped models from GGUF files. Without a prompt it chats.")
    .enablePositionalOptions() // so that `ds4 inspect F --json` is inspect's --json
    .allowExcessArguments(true)
    .showSuggestionAfterError(true)
    .addHelpText("after", EXIT_CODE_HELP);
  addRunFlags(program);
  let exitCode: number = EXIT.ok;
  program.action(async (flags: RunFlags, command: Command) => {
    if (command.args.length > 0) throw new UsageError(strayArgument(program, command.args[0]));
    exitCode = await runRoot(flags, processTerminal(flags.quiet === true));
  });
  program.commandsGroup("Commands:");
  for (const register of subcommands) register(program);
  const parsed = await runStandalone(program, argv);
  return exitCode === EXIT.ok ? parsed : exitCode;
}

/** Parses and runs one command on its own; returns the exit code. Never throws and never ends the process. */
export async function runStandalone(program: Command, argv: readonly string[]): Promise<number> {
  // A reader that closes the pipe early (`ds4 … | head`) is no error.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  for (const command of [program, ...program.commands]) {
    command.exitOverride().addHelpOption(new Option("-h, --help", "show this help").helpGroup("Help:"));
  }
  program.optionsGroup("Help:").version(packageVersion(), "--version", "show the version");
  const warning = environmentWarning(process.env);
  if (warning !== undefined && !argv.includes("--quiet")) process.stderr.write(`${warning}\n`);
  try {
    await program.parseAsync(normalizeArgv(argv), { from: "user" });
  } catch (error) {
    return report(error);
  }
  // Commands report failure the usual way, by setting the process's exit code.
  return Number(process.exitCode ?? EXIT.ok);
}

async function runRoot(flags: RunFlags, terminal: Terminal): Promise<number> {
  if (flags.inspect) return inspectFile(resolveModelPath(flags.model), { json: flags.json }, terminal.out);
  const context = new RunContext(flags, terminal);
  if (flags.perplexityFile !== undefined) return runPerplexity(context, flags.perplexityFile);
  const text = context.promptText();
  const needsPrompt = flags.dumpTokens || flags.dumpLogits !== undefined || flags.dumpLogprobs !== undefined;
  if (text === undefined) {
    if (needsPrompt) throw new UsageError("the dumps need a prompt: add -p TEXT or --prompt-file FILE");
    if (flags.json) throw new UsageError("--json needs a prompt: add -p TEXT or --prompt-file FILE");
    return runChat(context, process.stdin);
  }
  if (flags.dumpTokens) return dumpTokens(context, text);
  if (flags.dumpLogits !== undefined) return dumpLogits(context, text, flags.dumpLogits);
  if (flags.dumpLogprobs !== undefined) return dumpLogprobs(context, text, flags.dumpLogprobs);
  return runOneShot(context, text);
}

function strayArgument(program: Command, argument: string): string {
  const names = program.commands.map((command) => command.name());
  const commands = names.length > 0 ? `the commands are ${names.join(", ")}; ` : "";
  return `unexpected argument ${JSON.stringify(argument)}: ${commands}a prompt is given with -p`;
}

function report(error: unknown): number {
  // Commander has already printed its message, or the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  process.stderr.write(`error: ${describeError(error)}\n`);
  return exitCodeOf(error);
}
