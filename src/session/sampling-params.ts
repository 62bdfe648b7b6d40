// The numbers that steer sampling, their defaults and accepted ranges. One table serves the checks here and
// the flags of the command line.
import { Ds4Error } from "../core/errors.ts";
import { MAX_SEED } from "../core/random.ts";

/** How the next token is chosen. See `sampler.ts` for the order in which the filters act. */
export interface SamplingParams {
  /** Divides the logits; 0 takes the likeliest token (lowest id on a tie). Default 1. */
  temperature: number;
  /** Keep only this many likeliest tokens; 0 keeps all. Default 0. */
  topK: number;
  /** Keep the fewest likeliest tokens whose mass reaches this share; 1 keeps all. Default 1. */
  topP: number;
  /** Drop tokens less likely than this share of the likeliest; 0 keeps all. Default 0.05. */
  minP: number;
  /** Positive logits of recent tokens are divided by it, negative multiplied; 1 does nothing. Default 1. */
  repeatPenalty: number;
  /** Subtracted once from the logit of every token generated within the window. Default 0. */
  presencePenalty: number;
  /** Subtracted once per occurrence within the generated window. Default 0. */
  frequencyPenalty: number;
  /** How many last tokens the penalties look at; 0 looks at all. Default 1024. */
  penaltyWindowTokens: number;
  /** Added to the logit of a token id; -100 effectively bans, 100 forces. Default none. */
  logitBias: Readonly<Record<number, number>>;
  /** Start of the random sequence, 0..2^64-1. */
  seed: number | bigint;
}

/** Defaults: those of the model's makers, with ds4's min-p, which cuts the noise of quantized tails. */
export const SAMPLING_DEFAULTS: Readonly<SamplingParams> = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0.05,
  repeatPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  penaltyWindowTokens: 1024,
  logitBias: {},
  seed: 0,
};

/** Accepted range of a numeric parameter, both ends included. */
export interface ParamRange {
  min: number;
  max: number;
  integer: boolean;
}

/** Names of the parameters that are plain numbers. */
export type NumericParam = Exclude<keyof SamplingParams, "logitBias" | "seed">;

const INT_MAX = 2 ** 31 - 1;

/** Ranges of the numeric parameters. Presence and frequency may be negative, as in OpenAI's API. */
export const SAMPLING_RANGES: Readonly<Record<NumericParam, ParamRange>> = {
  temperature: { min: 0, max: 100, integer: false },
  topK: { min: 0, max: INT_MAX, integer: true },
  topP: { min: 0, max: 1, integer: false },
  minP: { min: 0, max: 1, integer: false },
  repeatPenalty: { min: 0.01, max: 100, integer: false },
  presencePenalty: { min: -2, max: 2, integer: false },
  frequencyPenalty: { min: -2, max: 2, integer: false },
  penaltyWindowTokens: { min: 0, max: INT_MAX, integer: true },
};

/** Largest absolute logit bias; beyond it a token is certain or impossible anyway. */
export const MAX_LOGIT_BIAS = 100;
/** Most biased tokens of one request; OpenAI's own limit is 300. */
export const MAX_LOGIT_BIAS_ENTRIES = 1024;

/** `0..1` or `an integer in 0..100`, for messages. */
export function describeRange(range: ParamRange): string {
  return `${range.integer ? "an integer" : "a number"} in ${range.min}..${range.max}`;
}

/** Whether `value` lies in `range`. */
export function inRange(value: number, range: ParamRange): boolean {
  if (!Number.isFinite(value) || value < range.min || value > range.max) return false;
  return !range.integer || Number.isInteger(value);
}

/** Fills in defaults. Throws `request` naming the parameter, what came and what is accepted. */
export function resolveSampling(params: Partial<SamplingParams>, vocabSize: number): SamplingParams {
  const resolved: SamplingParams = { ...SAMPLING_DEFAULTS };
  for (const [key, value] of Object.entries(params)) {
    if (!(key in SAMPLING_DEFAULTS)) {
      const known = Object.keys(SAMPLING_DEFAULTS).join(", ");
      throw new Ds4Error("request", `unknown sampling parameter ${key}; known are ${known}`);
    }
    if (value !== undefined) Object.assign(resolved, { [key]: value });
  }
  for (const name of Object.keys(SAMPLING_RANGES) as NumericParam[]) {
    if (!inRange(resolved[name], SAMPLING_RANGES[name])) {
      throw new Ds4Error(
        "request",
        `${name}: expected ${describeRange(SAMPLING_RANGES[name])}, got ${resolved[name]}`,
      );
    }
  }
  checkSeed(resolved.seed);
  checkBias(resolved.logitBias, vocabSize);
  return resolved;
}

function checkSeed(seed: number | bigint): void {
  const valid =
    typeof seed === "bigint" ? seed >= 0n && seed <= MAX_SEED : Number.isSafeInteger(seed) && seed >= 0;
  if (!valid) {
    throw new Ds4Error(
      "request",
      `seed: expected an integer in 0..2^64-1 (above 2^53 as bigint), got ${seed}`,
    );
  }
}

function checkBias(bias: Readonly<Record<number, number>>, vocabSize: number): void {
  const entries = Object.entries(bias);
  if (entries.length > MAX_LOGIT_BIAS_ENTRIES) {
    throw new Ds4Error(
      "request",
      `logitBias: at most ${MAX_LOGIT_BIAS_ENTRIES} entries are accepted, got ${entries.length}`,
    );
  }
  for (const [key, value] of entries) {
    const id = Number(key);
    if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
      throw new Ds4Error("request", `logitBias: expected token ids in 0..${vocabSize - 1}, got ${key}`);
    }
    if (!Number.isFinite(value) || Math.abs(value) > MAX_LOGIT_BIAS) {
      throw new Ds4Error(
        "request",
        `logitBias of token ${key}: expected a number in -${MAX_LOGIT_BIAS}..${MAX_LOGIT_BIAS}, got ${value}`,
      );
    }
  }
}
