// `ds4 plan FILE|ALIAS`: what a run would take, where, and whether it fits, from the header alone.
import { existsSync, writeFileSync } from "node:fs";
import { type Command, InvalidArgumentError, Option } from "commander";
import { isPublishedAlias, PUBLISHED_ALIASES, publishedModel } from "../convert/published-models.ts";
import { type MemoryError, UsageError } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import { withGguf } from "../gguf/open-gguf.ts";
import { findKnownMachine, KNOWN_MACHINE_NAMES } from "../machine/known-machines.ts";
import { type Machine, withBudget } from "../machine/machine.ts";
import { type BoundModel, bindModel } from "../model/weights.ts";
import { checkFits, type Fit, refusal } from "../plan/fit.ts";
import { type MemoryPlan, type PlanOptions, planMemory, planPools } from "../plan/memory-plan.ts";
import { findRemedies, type PlanRequest, type Remedy } from "../plan/remedies.ts";
import { CUDA_BATCH_TOKENS } from "../plan/scratch-size.ts";
import { kvTypeOption } from "./backend-flags.ts";
import { EXIT } from "./exit-codes.ts";
import { checkTrainedCtx, integerIn, parseBytes } from "./flag-values.ts";
import { sweepChart, sweepContexts, sweepText } from "./plan-sweep.ts";
import { planJson, planText } from "./plan-text.ts";
import { alternativesTo, machineForRun, runOptions } from "./preflight.ts";
import { processTerminal, type Terminal } from "./terminal.ts";

/** Flags of `ds4 plan`. */
export interface PlanFlags {
  ctx?: number;
  slots: number;
  budget?: number;
  device: string;
  kvType?: KvType;
  json?: boolean;
  sweep?: "ctx";
  svg?: string;
}

/** Everything that is shown of a plan. */
export interface PlanReport {
  machine: Machine;
  plan: MemoryPlan;
  fit: Fit;
  remedies: readonly Remedy[];
}

const MAX_SLOTS = 256;
const MAX_CTX_TOKENS = 1 << 24;

/** Adds the command to the program. Its action throws `usage`, `io`, `gguf`, `unsupported-model`, and `memory`. */
export function registerPlan(program: Command): void {
  program
    .command("plan")
    .description("show what a model will take in memory and whether it fits; reads the header only")
    .argument(
      "<model>",
      `GGUF file, or a published one without downloading it: ${PUBLISHED_ALIASES.join(", ")}`,
    )
    .option(
      "-c, --ctx <n>",
      "context (default: 32768, at most the model's own)",
      integerIn(1, MAX_CTX_TOKENS),
    )
    .option("--slots <n>", "sequences held at once", integerIn(1, MAX_SLOTS), 1)
    .option("--budget <size>", "memory to plan with instead of what is free, e.g. 119.7GiB", parseBytes)
    .addOption(
      new Option("--device <name>", "this machine's processor, or a machine by name")
        .choices(["cpu", ...KNOWN_MACHINE_NAMES])
        .default("cpu"),
    )
    .addOption(kvTypeOption())
    .addOption(new Option("--sweep <what>", "memory over the context").choices(["ctx"]))
    .option("--svg <file>", "write the sweep as a picture", nonEmpty)
    .option("--json", "print everything as one JSON document")
    .action((model: string, flags: PlanFlags) => {
      const code = runPlan(model, flags, processTerminal(false));
      if (code !== EXIT.ok) process.exitCode = code;
    });
}

/**
 * Prints the plan; returns the exit code, 3 when it does not fit and that was printed as JSON. Throws `memory` with the
 * remedies when it does not fit, after the table.
 */
export function runPlan(
  path: string,
  flags: PlanFlags,
  terminal: Terminal,
  machine: Machine = machineFor(flags),
): number {
  const request = requestOf(path, flags);
  if (flags.svg !== undefined && flags.sweep === undefined) throw new UsageError("--svg needs --sweep ctx");
  if (flags.sweep !== undefined) return runSweep(request, flags, machine, terminal);
  const plan = planMemory(request.name, request.model, request.options, machine);
  const fit = checkFits(plan, machine);
  const refused = fit.verdict === "refused";
  const remedies = refused ? findRemedies(request, machine, alternativesTo(request.model)) : [];
  const report = { machine, plan, fit, remedies };
  if (flags.json) {
    terminal.out.write(`${planJson(report)}\n`);
    return refused ? EXIT.memory : EXIT.ok;
  }
  terminal.out.write(planText(report, terminal.out));
  if (refused) throw refusal(plan, fit, remedies) satisfies MemoryError;
  return EXIT.ok;
}

function runSweep(request: PlanRequest, flags: PlanFlags, machine: Machine, terminal: Terminal): number {
  const points = sweepContexts(request, machine);
  if (flags.json) terminal.out.write(`${JSON.stringify({ name: request.name, points })}\n`);
  else terminal.out.write(sweepText(request, points));
  if (flags.svg === undefined) return EXIT.ok;
  try {
    writeFileSync(flags.svg, sweepChart(request, points, machine));
  } catch (error) {
    throw new UsageError(`--svg ${flags.svg}: ${(error as Error).message}`);
  }
  return EXIT.ok;
}

/** The machine that the flags name, with their budget. */
function machineFor({ device, budget }: PlanFlags): Machine {
  const machine = device === "cpu" ? machineForRun() : findKnownMachine(device)!;
  if (budget === undefined) return machine;
  const pools = planPools(device === "cpu" ? "cpu" : "cuda", machine);
  return withBudget(machine, pools.device.id, budget);
}

/** The run to plan. Throws `usage` when there is no such file or the context is longer than the model's. */
function requestOf(path: string, flags: PlanFlags): PlanRequest {
  const model = modelOf(path);
  checkTrainedCtx(model.spec.contextTokens, flags.ctx);
  return { name: path, model, options: optionsFor(model, flags) };
}

function modelOf(path: string): BoundModel {
  // A file of that name wins: whoever has one means it.
  if (!existsSync(path)) {
    if (isPublishedAlias(path)) return publishedModel(path);
    const aliases = PUBLISHED_ALIASES.join(", ");
    throw new UsageError(`no such model file: ${path}; name a GGUF file or one of ${aliases}`);
  }
  return withGguf(path, (file) => bindModel(file));
}

function optionsFor(model: BoundModel, { ctx, slots, device, kvType }: PlanFlags): PlanOptions {
  const options = {
    ...runOptions(model.spec, { backend: "cpu", ctxTokens: ctx, kvType }),
    slots,
    headRows: slots,
  };
  return device === "cpu" ? options : { ...options, backend: "cuda", batchTokens: CUDA_BATCH_TOKENS };
}

function nonEmpty(text: string): string {
  if (text === "") throw new InvalidArgumentError("Expected a file name.");
  return text;
}
