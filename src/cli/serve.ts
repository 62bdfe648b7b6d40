// What `ds4 serve` and `ds4-server` do: listens at once, loads the model, serves until a signal or a fault ends it.

import { readModel, resolveModelPath } from "../api/open-model.ts";
import { servedModel } from "../api/served-model.ts";
import { withGguf } from "../gguf/open-gguf.ts";
import { oomScoreText, raiseOomScoreFor } from "../machine/oom-score.ts";
import { SchedulerEngine } from "../scheduler/scheduler-engine.ts";
import { AnswerRunner } from "../server/answer-run.ts";
import type { ServedModel } from "../server/answer-source.ts";
import { createApp } from "../server/app.ts";
import { listen } from "../server/http-server.ts";
import { SHUTDOWN_GRACE_MS } from "../server/limits.ts";
import { openMemoryFiles, saveWhenIdle } from "../server/memory-files.ts";
import { ServerMetrics } from "../server/metrics.ts";
import { ALL_ROUTES } from "../server/routes/all-routes.ts";
import { ServerState } from "../server/server-state.ts";
import { type PlannedMemory, plannedGauges } from "../server/source-gauges.ts";
import { backendOf } from "./backend-flags.ts";
import { EXIT } from "./exit-codes.ts";
import { checkTrainedCtx } from "./flag-values.ts";
import { packageVersion } from "./package-version.ts";
import { ProgressBar } from "./progress-bar.ts";
import { Ending, shutDown } from "./serve-ending.ts";
import { apiKeysOf, type ServeFlags } from "./serve-flags.ts";
import { type OpenLog, openServeLog } from "./serve-log.ts";
import { chooseRoom, type Room } from "./serve-room.ts";
import { note, type Terminal } from "./terminal.ts";

const HEALTH_CHECK_MS = 500;
/** After a fatal fault, the time in which health checks and running clients can still see it. */
const FAULT_GRACE_MS = 1000;

/** Serves until stopped; returns the exit code. Throws `usage`, `memory` and what loading throws. */
export async function runServe(flags: ServeFlags, terminal: Terminal): Promise<number> {
  const choice = backendOf(flags);
  const apiKeys = apiKeysOf(flags);
  const path = resolveModelPath(flags.model);
  const { room, model } = withGguf(path, (file) => {
    const room = chooseRoom(file, flags, choice, terminal);
    return { room, model: readModel(file, path) };
  });
  checkTrainedCtx(model.trainedCtxTokens, flags.ctx);
  const log = openServeLog(terminal, flags.trace);
  const memories = openMemoryFiles(flags.kvDiskDir, log);
  const state = new ServerState();
  const metrics = new ServerMetrics();
  const version = packageVersion();
  const app = createApp({ state, metrics, log, apiKeys, corsOrigins: flags.cors ?? [], version }, ALL_ROUTES);
  const http = await listen(app, { host: flags.host, port: flags.port });
  const end = new Ending();
  try {
    if (apiKeys.length === 0 && !isLoopback(flags.host)) {
      note(
        terminal,
        `warning: ${flags.host} is open to the network and no --api-key is set: anyone can use it`,
      );
    }
    note(terminal, `listening on ${http.url}, loading ${path}`);
    const oomScore = raiseOomScoreFor(model.sizeBytes);
    if (oomScore !== undefined) note(terminal, oomScoreText(oomScore));
    const engine = await end.unlessStopped(openEngine(path, flags, room, terminal, log));
    if (engine === undefined) return EXIT.interrupted;
    try {
      const runner = new AnswerRunner({
        model: withPlan(
          servedModel(model, engine, { id: flags.alias, defaultMaxTokens: flags.tokens }),
          room.planned,
        ),
        maxQueued: flags.maxQueue,
        metrics,
        log,
        calls: memories.calls,
        answers: memories.answers,
        onFault: (error) => engine.health.state === "failed" && end.fail(error.message, state, log),
      });
      state.serve(runner);
      const { slots, ctxTokens } = engine.info;
      note(terminal, `ready: ${runner.model.id} on ${http.url}, ${slots} slots of ${ctxTokens} tokens`);
      // A worker can also die while nobody asks it anything.
      const watch = setInterval(() => {
        const { state: health, reason } = engine.health;
        if (health === "failed") end.fail(reason ?? "the engine stopped", state, log);
      }, HEALTH_CHECK_MS);
      const stopSaving = saveWhenIdle(memories, () => state.answerCount === 0);
      const reason = await end.reason.finally(() => {
        clearInterval(watch);
        stopSaving();
      });
      await shutDown(state, http, reason === "fault" ? FAULT_GRACE_MS : SHUTDOWN_GRACE_MS, terminal);
      return reason === "fault" ? EXIT.failure : EXIT.ok;
    } finally {
      memories.save();
      await engine.close();
    }
  } finally {
    end.dispose();
    http.destroy();
    log.close();
  }
}

async function openEngine(
  path: string,
  flags: ServeFlags,
  { slots, checkpointBytes }: Room,
  terminal: Terminal,
  log: OpenLog,
) {
  const bar = new ProgressBar(terminal);
  const engine = await SchedulerEngine.open({
    modelPath: path,
    backend: backendOf(flags),
    threads: flags.threads,
    kvType: flags.kvType,
    ctxTokens: flags.ctx,
    headRows: slots,
    force: flags.force === true,
    slots,
    checkpointBytes,
    queueLimit: flags.maxQueue,
    chunkTokens: flags.prefillChunk,
    kvDiskFolder: flags.kvDiskDir,
    kvDiskBytes: flags.kvDiskSpaceMb * 2 ** 20,
    onProgress: bar.listener,
    onLog: log.line,
  }).finally(() => bar.clear());
  for (const warning of engine.info.warnings) note(terminal, `warning: ${warning}`);
  return engine;
}

/** The model with its numbers set beside the plan. */
function withPlan(model: ServedModel, planned: PlannedMemory): ServedModel {
  const readGauges = async () => [
    ...((await model.readGauges?.()) ?? []),
    ...plannedGauges(planned, process.memoryUsage.rss()),
  ];
  return { ...model, readGauges };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127\./.test(host);
}
