#!/usr/bin/env node
// The `ds4` command's entry: lists the subcommands, runs the program, sets the exit code.
import { registerBench } from "./bench-command.ts";
import { registerConvert } from "./convert-command.ts";
import { registerDownload } from "./download-command.ts";
import { registerImatrix } from "./imatrix-command.ts";
import { registerInspect } from "./inspect.ts";
import { registerPlan } from "./plan-command.ts";
import { main } from "./program.ts";
import { registerQuantize } from "./quantize-command.ts";
import { registerServe } from "./serve-command.ts";
import { registerSynth } from "./synth-command.ts";

process.exitCode = await main(process.argv.slice(2), [
  registerInspect,
  registerPlan,
  registerConvert,
  registerQuantize,
  registerImatrix,
  registerSynth,
  registerBench,
  registerServe,
  registerDownload,
]);
