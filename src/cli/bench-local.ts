// Measures a model file in this process: load, sweep, repeat, then the memory's own speed to set decode against.

import { resolveModelPath } from "../api/open-model.ts";
import type { Backend } from "../backend/backend.ts";
import { loadNative } from "../backend/native.ts";
import type { BenchFacts } from "../bench/bench-facts.ts";
import { type FrontierRow, runFrontierBench } from "../bench/frontier-bench.ts";
import { CancelledError } from "../core/errors.ts";
import { MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { oomScoreText, raiseOomScoreFor } from "../machine/oom-score.ts";
import { bindModel } from "../model/weights.ts";
import { regionBytes } from "../plan/memory-plan.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { fileFingerprint, machineFacts, peakRssBytes } from "./bench-facts-probe.ts";
import { type BenchFlags, sweepSettings } from "./bench-flags.ts";
import { writeOutcome } from "./bench-output.ts";
import { benchTokens } from "./bench-prompt.ts";
import { openBackend } from "./open-backend.ts";
import { ProgressBar } from "./progress-bar.ts";
import { interruptible } from "./run-context.ts";
import { note, type Terminal } from "./terminal.ts";

/** Far above every cache, far below a model. */
const BANDWIDTH_BUFFER_BYTES = 512 * MIB;
const BANDWIDTH_ROUNDS = 3;

/** Runs the sweep and writes the outcome; what was measured before Ctrl+C is written too. */
export async function benchLocally(flags: BenchFlags, terminal: Terminal, argv: readonly string[]) {
  const facts = machineFacts(argv);
  const file = openGguf(resolveModelPath(flags.model));
  const bar = new ProgressBar(terminal);
  let backend: Backend | undefined;
  const rows: FrontierRow[] = [];
  let repeat: FrontierRow | undefined;
  let cancelled: CancelledError | undefined;
  try {
    const tokenizer = tokenizerFromGguf(file);
    const model = bindModel(file);
    const sweep = sweepSettings(flags, model.spec.contextTokens);
    facts.ctxAllocTokens = sweep.allocTokens;
    // Before the weights: what is wrong with the prompt should not cost a load.
    const tokens = benchTokens(tokenizer, flags, sweep.ctxMax);
    const { threads, kvType, force } = flags;
    const demand = { threads, kvType, force, ctxTokens: facts.ctxAllocTokens };
    const oomScore = raiseOomScoreFor(file.sizeBytes);
    if (oomScore !== undefined) note(terminal, oomScoreText(oomScore));
    const loadStarted = performance.now();
    const opened = openBackend(file, { ...demand, backend: flags.backend }, { onProgress: bar.listener });
    backend = opened.backend;
    facts.loadMs = performance.now() - loadStarted;
    facts.planBytes = regionBytes(opened.plan);
    bar.clear();
    for (const warning of opened.warnings) note(terminal, `warning: ${warning}`);
    describeRun(facts, file, backend, flags);
    if (facts.chunkTokens < (flags.prefillChunk ?? 1)) {
      note(terminal, `warning: --prefill-chunk: this backend takes at most ${backend.maxBatchTokens} tokens`);
    }
    const onRow = (row: FrontierRow) => {
      rows.push(row);
      facts.peakRssBytes = peakRssBytes();
      facts.heldBytes = heldBytes(backend!);
    };
    const options = {
      ...sweep,
      chunkTokens: flags.prefillChunk,
      bannedTokens: tokenizer.stopIds,
      ...{ onRow, onProgress: bar.listener },
    };
    ({ repeat } = await interruptible((signal) =>
      runFrontierBench(backend!, tokens, { ...options, signal }),
    ));
    measureDeviceBandwidth(facts, backend);
  } catch (error) {
    if (!(error instanceof CancelledError) || rows.length === 0) throw error;
    cancelled = error;
  } finally {
    bar.clear();
    backend?.close();
    file.close();
  }
  // After the model is freed, so that the test buffer neither counts nor competes.
  if (cancelled === undefined && facts.bandwidthKind === "memory reads") {
    facts.readBandwidth = measureReadBandwidth(facts, flags.threads);
  }
  writeOutcome({ rows, repeat, facts }, flags, terminal);
  if (cancelled !== undefined) throw cancelled;
}

function describeRun(facts: BenchFacts, file: GgufFile, backend: Backend, flags: BenchFlags): void {
  facts.backend = backend.name;
  facts.backendDescription = backend.description;
  facts.modelFile = file.name;
  facts.modelBytes = file.sizeBytes;
  facts.modelFingerprint = fileFingerprint(file);
  facts.chunkTokens = Math.min(flags.prefillChunk ?? backend.maxBatchTokens, backend.maxBatchTokens);
  facts.weightBytesPerToken = backend.stats().weightBytesPerToken;
}

function heldBytes(backend: Backend): number {
  const { weightBytes, kvBytes, scratchBytes } = backend.stats();
  return weightBytes + kvBytes + scratchBytes;
}

function measureDeviceBandwidth(facts: BenchFacts, backend: Backend): void {
  if (backend.deviceCopyRate === undefined) return;
  facts.bandwidthKind = "device copies";
  facts.readBandwidth = backend.deviceCopyRate();
}

// 0 where there is no native code to measure with.
function measureReadBandwidth(facts: BenchFacts, threads: number | undefined): number {
  const { addon } = loadNative();
  if (addon === null) return 0;
  const measure = addon.measureReadBandwidth as (bytes: number, threads: number, rounds: number) => number;
  return measure(BANDWIDTH_BUFFER_BYTES, threads ?? facts.coreCount, BANDWIDTH_ROUNDS);
}
