#!/usr/bin/env node
// The `ds4-server` command's entry: `ds4 serve` under ds4's name for it.
import { runStandalone } from "./program.ts";
import { serveCommand } from "./serve-command.ts";

process.exitCode = await runStandalone(serveCommand("ds4-server"), process.argv.slice(2));
