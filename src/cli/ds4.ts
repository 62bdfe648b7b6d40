#!/usr/bin/env node
// The `ds4` command's entry: lists the subcommands, runs the program, sets the exit code.
import { registerConvert } from "./convert-command.ts";
import { registerImatrix } from "./imatrix-command.ts";
import { registerInspect } from "./inspect.ts";
import { main } from "./program.ts";
import { registerQuantize } from "./quantize-command.ts";
import { registerSynth } from "./synth-command.ts";

// A reader that closes the pipe early (`ds4 … | head`) is no error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));

process.exitCode = await main(process.argv.slice(2), [
  registerInspect,
  registerConvert,
  registerQuantize,
  registerImatrix,
  registerSynth,
]);
