// The steps of an answer as the server knows them, and the whole answer put together. Wires turn both into their API's
// shapes.
import type { TokenLogprob } from "../session/logprobs.ts";

/** Log-probability of one sampled token and its alternatives. */
export interface TokenLogprobs {
  chosen: TokenLogprob;
  alternatives: readonly TokenLogprob[];
}

/** Counts and times of an answer. */
export interface AnswerUsage {
  promptTokens: number;
  /** Prompt tokens that were not evaluated again. */
  reusedTokens: number;
  /** Sampled tokens, reasoning included. */
  completionTokens: number;
  reasoningTokens: number;
  prefillSeconds: number;
  decodeSeconds: number;
}

/** Why an answer ended. `tool-calls`: the model stopped and at least one call is complete. */
export type AnswerFinish = "stop" | "stop-string" | "length" | "tool-calls";

/** A complete call. */
export interface AnswerCall {
  id: string;
  name: string;
  /** JSON text of the arguments object. */
  argumentsJson: string;
}

/** One step. After `finish` nothing comes. */
export type AnswerEvent =
  | { kind: "prompt"; reusedTokens: number }
  | { kind: "reasoning"; text: string }
  | { kind: "content"; text: string; logprobs?: readonly TokenLogprobs[] }
  | { kind: "tool-start"; index: number; id: string; name: string }
  | { kind: "tool-arguments"; index: number; delta: string }
  | ({ kind: "tool-end"; index: number } & AnswerCall)
  | { kind: "finish"; finish: AnswerFinish; stopString?: string; usage: AnswerUsage };

/** An answer as a whole. */
export interface CollectedAnswer {
  reasoning: string;
  content: string;
  logprobs: TokenLogprobs[];
  /** Complete calls only. */
  calls: AnswerCall[];
  finish: AnswerFinish;
  stopString: string | undefined;
  usage: AnswerUsage;
}

/** Reads events to the end. Throws what the stream throws. */
export async function collectAnswer(events: AsyncIterable<AnswerEvent>): Promise<CollectedAnswer> {
  let reasoning = "";
  let content = "";
  const logprobs: TokenLogprobs[] = [];
  const calls: AnswerCall[] = [];
  for await (const event of events) {
    if (event.kind === "reasoning") reasoning += event.text;
    else if (event.kind === "content") {
      content += event.text;
      logprobs.push(...(event.logprobs ?? []));
    } else if (event.kind === "tool-end") {
      calls.push({ id: event.id, name: event.name, argumentsJson: event.argumentsJson });
    } else if (event.kind === "finish") {
      const { finish, stopString, usage } = event;
      return { reasoning, content, logprobs, calls, finish, stopString, usage };
    }
  }
  throw new Error("internal error: the answer ended without a finish event");
}
