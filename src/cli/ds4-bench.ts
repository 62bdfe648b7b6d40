#!/usr/bin/env node
// The `ds4-bench` command's entry: `ds4 bench` under ds4's name for it.
import { benchCommand } from "./bench-command.ts";
import { runStandalone } from "./program.ts";

process.exitCode = await runStandalone(benchCommand("ds4-bench"), process.argv.slice(2));
