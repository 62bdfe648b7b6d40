// An opened scheduler as what answers are made with.
import { statSync } from "node:fs";
import { basename } from "node:path";
import type { SchedulerEngine } from "../scheduler/scheduler-engine.ts";
import type { ServedModel } from "../server/answer-source.ts";
import { schedulerGauges } from "../server/source-gauges.ts";
import type { OpenModel } from "./open-model.ts";

/** What the owner of the model decides. */
export interface ServedModelOptions {
  /** Its name in answers. Default: the file's name without `.gguf`. */
  id?: string;
  /** Most tokens of an answer when a request names none. Default: what the context has left. */
  defaultMaxTokens?: number;
}

/** Puts file and scheduler together. Throws `io` errors of the file. */
export function servedModel(
  { path, tokenizer, checkpoint }: OpenModel,
  engine: SchedulerEngine,
  { id, defaultMaxTokens }: ServedModelOptions = {},
): ServedModel {
  return {
    id: id ?? basename(path).replace(/\.gguf$/i, ""),
    tokenizer,
    checkpoint,
    ctxTokens: engine.info.ctxTokens,
    defaultMaxTokens,
    // The scheduler has a line of its own.
    concurrency: Number.POSITIVE_INFINITY,
    fileBytes: statSync(path).size,
    source: engine,
    readGauges: async () => schedulerGauges(await engine.stats()),
  };
}
