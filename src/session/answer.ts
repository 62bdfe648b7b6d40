// The text of one answer, from tokens: channels by the ids of the think tags, stop strings in content, counts.
import type { TopLogits } from "../backend/backend.ts";
import type {
  Channel,
  FinishReason,
  GenerateRequest,
  ThinkingTags,
  TokenDecoder,
  TokenEvent,
} from "./generate.ts";
import { topLogprobs } from "./logprobs.ts";
import { StopMatcher } from "./stop-strings.ts";

/** The log-probabilities of a token event, if they are wanted; see `topLogprobs`. */
export function logprobsOf(
  logits: Float32Array | TopLogits,
  tokenId: number,
  count: number | undefined,
): Partial<TokenEvent> {
  if (count === undefined) return {};
  const { chosen, top } = topLogprobs(logits, tokenId, count);
  return { logprob: chosen, alternatives: top };
}

/** The state of one answer: channel, held-back text, counts. */
export class Answer {
  completionTokens = 0;
  thinkingTokens = 0;
  stopString: string | undefined;
  stopTokenId: number | undefined;
  #channel: Channel;
  readonly #decoder: TokenDecoder;
  readonly #matcher: StopMatcher;
  readonly #thinking: ThinkingTags | undefined;

  /** Throws `request` on wrong stop strings. */
  constructor(decoder: TokenDecoder, request: GenerateRequest) {
    this.#decoder = decoder;
    this.#matcher = new StopMatcher(request.stopStrings ?? []);
    this.#thinking = request.thinking;
    this.#channel = request.thinking?.startsOpen ? "thinking" : "content";
  }

  /** Whether the next token belongs to the thinking. */
  get isThinking(): boolean {
    return this.#channel === "thinking";
  }

  /** The closing tag once the thinking budget is spent. */
  forcedToken(): number | undefined {
    const budget = this.#thinking?.budgetTokens;
    const spent = budget !== undefined && this.#channel === "thinking" && this.thinkingTokens >= budget;
    return spent ? this.#thinking?.closeId : undefined;
  }

  /** Adds a sampled token. `stopString` is set when it completes one. */
  take(tokenId: number, logprobs: Partial<TokenEvent>): TokenEvent {
    this.completionTokens++;
    const before = this.#channel;
    if (before === "thinking") this.thinkingTokens++;
    const tags = this.#thinking;
    if (tags !== undefined && (tokenId === tags.closeId || tokenId === tags.openId)) {
      // A tag has no text of its own; it only releases what the decoder held for the channel it ends.
      const text = this.#release(this.#decoder.end());
      this.#channel = tokenId === tags.openId ? "thinking" : "content";
      return { kind: "token", tokenId, channel: before, text, ...logprobs };
    }
    const text = this.#release(this.#decoder.push(tokenId));
    return { kind: "token", tokenId, channel: before, text, ...logprobs };
  }

  /** Releases what is held back; what is left of the last event is the caller's. */
  finish(reason: FinishReason) {
    let text = this.stopString === undefined ? this.#release(this.#decoder.end()) : "";
    const found = this.stopString !== undefined;
    if (!found && this.#channel === "content") text += this.#matcher.finish();
    return {
      kind: "finish" as const,
      finishReason: found ? ("stop-string" as const) : reason,
      stopString: this.stopString,
      stopTokenId: this.stopTokenId,
      text,
      channel: this.#channel,
      completionTokens: this.completionTokens,
      thinkingTokens: this.thinkingTokens,
    };
  }

  #release(text: string): string {
    if (this.#channel === "thinking") return text;
    const match = this.#matcher.push(text);
    if (match.matched !== undefined) this.stopString = match.matched;
    return match.text;
  }
}
