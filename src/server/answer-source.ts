// What the server needs of whatever samples answers: the engine itself, a scheduler over several slots, or a script in
// tests.
import type { ProgressListener } from "../core/progress.ts";
import type { GenerateEvent, GenerateRequest } from "../session/generate.ts";
import type { Checkpoint } from "../template/conversation.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** Samples answers. `SchedulerEngine` is one. */
export interface AnswerSource {
  /**
   * Streams one answer: `prompt`, `token`s, `finish`. Aborting the signal or leaving the loop stops the work; the
   * stream then ends with a `finish` of reason `cancelled`.
   */
  generate(
    request: GenerateRequest & { cacheKey?: string },
    options?: { signal?: AbortSignal; onProgress?: ProgressListener },
  ): AsyncIterable<GenerateEvent>;
}

/** One number for `/metrics`. */
export interface Gauge {
  /** `memory_bytes`: `ds4_` goes before it. */
  name: string;
  help: string;
  /** `region="kv"`, or nothing. */
  labels: string;
  value: number;
}

/** A loaded model as the server shows it. */
export interface ServedModel {
  /** Its name in the APIs. */
  id: string;
  tokenizer: Tokenizer;
  checkpoint: Checkpoint;
  /** Context allocated: prompt and answer together. */
  ctxTokens: number;
  /** Most tokens of an answer when the request names none; default what the context has left. */
  defaultMaxTokens?: number;
  chunkTokens?: number;
  /** Answers that `source` works on at once; the others wait in the server. */
  concurrency: number;
  /** Size of the file. */
  fileBytes?: number;
  source: AnswerSource;
  /** The source's own numbers; may wait for the running answer. */
  readGauges?(): Promise<Gauge[]>;
}
