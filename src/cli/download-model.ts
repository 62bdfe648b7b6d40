#!/usr/bin/env node
// The `download-model` command's entry: `ds4 download-model` under ds4's name for it.
import { downloadCommand } from "./download-command.ts";
import { runStandalone } from "./program.ts";

process.exitCode = await runStandalone(downloadCommand("download-model"), process.argv.slice(2));
