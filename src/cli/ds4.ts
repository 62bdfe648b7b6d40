#!/usr/bin/env node
// The `ds4` command's entry: lists the subcommands, runs the program, sets the exit code.
import { main, type RegisterCommand } from "./program.ts";

/** One is loaded when it is named, all for the help: a server's heap keeps the size that loading the others gave it. */
const COMMANDS: Readonly<Record<string, () => Promise<RegisterCommand>>> = {
  inspect: async () => (await import("./inspect.ts")).registerInspect,
  plan: async () => (await import("./plan-command.ts")).registerPlan,
  convert: async () => (await import("./convert-command.ts")).registerConvert,
  quantize: async () => (await import("./quantize-command.ts")).registerQuantize,
  imatrix: async () => (await import("./imatrix-command.ts")).registerImatrix,
  synth: async () => (await import("./synth-command.ts")).registerSynth,
  bench: async () => (await import("./bench-command.ts")).registerBench,
  serve: async () => (await import("./serve-command.ts")).registerServe,
  "download-model": async () => (await import("./download-command.ts")).registerDownload,
};

const argv = process.argv.slice(2);
const names = Object.hasOwn(COMMANDS, argv[0] ?? "") ? [argv[0]] : Object.keys(COMMANDS);
process.exitCode = await main(argv, await Promise.all(names.map((name) => COMMANDS[name]())));
