// The flags of the root command: one table for parsing, help and the conversion into plain options. Names and
// defaults follow ds4's.
import { type Command, Option } from "commander";
import { MAX_TOP_LOGPROBS } from "../session/logprobs.ts";
import { SAMPLING_DEFAULTS, SAMPLING_RANGES, type SamplingParams } from "../session/sampling-params.ts";
import type { Thinking } from "../template/conversation.ts";
import { type BackendFlags, backendOption, backendShortcuts, kvTypeOption } from "./backend-flags.ts";
import { collectBias, collectText, integerIn, numberIn, parseSeed } from "./flag-values.ts";

/** Largest context that can be asked for; the model's own limit is checked when it is known. */
const MAX_CTX_TOKENS = 1 << 24;
const MAX_THREADS = 1024;

/** What commander collects, by flag. */
export interface RunFlags extends BackendFlags {
  model?: string;
  prompt?: string;
  promptFile?: string;
  system?: string;
  raw?: boolean;
  rawPrompt?: boolean;
  tokens?: number;
  temp: number;
  topK: number;
  topP: number;
  minP: number;
  seed?: bigint;
  repeatPenalty: number;
  presencePenalty: number;
  frequencyPenalty: number;
  penaltyWindow: number;
  logitBias?: Record<number, number>;
  stop?: string[];
  think?: boolean;
  nothink?: boolean;
  thinkMax?: boolean;
  thinkBudget?: number;
  ctx?: number;
  threads?: number;
  prefillChunk?: number;
  force?: boolean;
  perplexityFile?: string;
  pplCtx?: number;
  pplStride?: number;
  dumpTokens?: boolean;
  dumpLogits?: string;
  dumpLogprobs?: string;
  logprobsTopK: number;
  inspect?: boolean;
  json?: boolean;
  quiet?: boolean;
}

const INT_MAX = 2 ** 31 - 1;
const positive = integerIn(1, INT_MAX);
const rangeOf = (name: keyof typeof SAMPLING_RANGES) => numberIn(SAMPLING_RANGES[name]);

/** Adds the flags, in groups. */
export function addRunFlags(command: Command): void {
  const group = (heading: string, ...options: Option[]) => {
    command.optionsGroup(heading);
    for (const option of options) command.addOption(option);
  };
  const flag = (flags: string, text: string) => new Option(flags, text);
  const D = SAMPLING_DEFAULTS;
  group(
    "Prompt:",
    flag("-p, --prompt <text>", "answer this and stop; without it a chat starts"),
    flag("--prompt-file <file>", "read the prompt from a file (- is standard input)").conflicts("prompt"),
    flag("--system <text>", "system text (also -sys)"),
    flag("--raw", "feed the prompt as it is: no chat encoding, marks in it become special tokens"),
    flag("--raw-prompt", "same as --raw").hideHelp(),
    flag("--think", "think before answering (default)").conflicts(["nothink", "thinkMax"]),
    flag("--nothink", "answer at once").conflicts("thinkMax"),
    flag("--think-max", "think with the model's largest effort"),
    flag("--think-budget <n>", "close the thinking after n tokens").argParser(positive),
  );
  group(
    "Sampling:",
    flag("-n, --tokens <n>", "most tokens to generate (default: what the context has left)").argParser(
      positive,
    ),
    flag("--temp <t>", "temperature, 0 is greedy").argParser(rangeOf("temperature")).default(D.temperature),
    flag("--top-k <n>", "keep the n likeliest tokens, 0 is off").argParser(rangeOf("topK")).default(D.topK),
    flag("--top-p <p>", "keep the likeliest tokens up to this mass")
      .argParser(rangeOf("topP"))
      .default(D.topP),
    flag("--min-p <p>", "drop tokens below this share of the best")
      .argParser(rangeOf("minP"))
      .default(D.minP),
    flag("--seed <n>", "random seed (default: a new one each run)").argParser(parseSeed),
    flag("--repeat-penalty <f>", "divide the logits of recent tokens")
      .argParser(rangeOf("repeatPenalty"))
      .default(D.repeatPenalty),
    flag("--presence-penalty <f>", "subtract once for tokens already generated")
      .argParser(rangeOf("presencePenalty"))
      .default(D.presencePenalty),
    flag("--frequency-penalty <f>", "subtract per occurrence")
      .argParser(rangeOf("frequencyPenalty"))
      .default(D.frequencyPenalty),
    flag("--penalty-window <n>", "tokens that the penalties look back at, 0 is all")
      .argParser(rangeOf("penaltyWindowTokens"))
      .default(D.penaltyWindowTokens),
    flag("--logit-bias <id=value>", "add to a token's logit; repeatable").argParser(collectBias),
    flag("--stop <text>", "end the answer before this text; repeatable").argParser(collectText),
  );
  group(
    "Engine:",
    flag(
      "-m, --model <file>",
      "GGUF file, or the first part of a split one (default: the bundled nano model)",
    ),
    flag("-c, --ctx <n>", "context to allocate (default: 32768, at most the model's own)").argParser(
      integerIn(1, MAX_CTX_TOKENS),
    ),
    flag("-t, --threads <n>", "compute threads (default: chosen by the backend)").argParser(
      integerIn(1, MAX_THREADS),
    ),
    flag("--prefill-chunk <n>", "prompt tokens per pass; results do not depend on it").argParser(positive),
    backendOption(),
    ...backendShortcuts(),
    kvTypeOption(),
    flag("--force", "load the model even if it does not fit in memory"),
  );
  group(
    "Diagnostics:",
    flag("--inspect", "describe the model file and stop, like ds4 inspect"),
    flag("--dump-tokens", "print the prompt's tokens and stop; no weights are loaded"),
    flag("--dump-logits <file>", "write all logits after the prompt as JSON"),
    flag("--dump-logprobs <file>", "write a greedy continuation with alternatives as JSON"),
    flag("--logprobs-top-k <n>", "alternatives per token")
      .argParser(integerIn(1, MAX_TOP_LOGPROBS))
      .default(20),
    flag("--perplexity-file <file>", "score a text: likelihood, perplexity and its error"),
    flag("--ppl-ctx <n>", "window of the scoring (default: the context)").argParser(
      integerIn(2, MAX_CTX_TOKENS),
    ),
    flag("--ppl-stride <n>", "distance of the windows (default: half a window)").argParser(positive),
    flag("--json", "print the result as one JSON document"),
    flag("--quiet", "no warnings, progress or summary"),
  );
}

/** `-sys TEXT` is ds4's own spelling; argument parsers would read it as `-s -y -s`. */
export function normalizeArgv(argv: readonly string[]): string[] {
  const end = argv.indexOf("--");
  return argv.map((arg, index) => {
    if (end !== -1 && index > end) return arg;
    if (arg === "-sys") return "--system";
    return arg.startsWith("-sys=") ? `--system=${arg.slice(5)}` : arg;
  });
}

/** The thinking mode that the flags ask for. */
export function thinkingOf(flags: RunFlags): Thinking {
  if (flags.nothink) return "off";
  return flags.thinkMax ? "max" : "on";
}

/** The sampling parameters that the flags ask for; without `--seed` a fresh random seed. */
export function samplingOf(flags: RunFlags): SamplingParams {
  const random = () => crypto.getRandomValues(new BigUint64Array(1))[0];
  return {
    temperature: flags.temp,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    seed: flags.seed ?? random(),
    repeatPenalty: flags.repeatPenalty,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
    penaltyWindowTokens: flags.penaltyWindow,
    logitBias: flags.logitBias ?? {},
  };
}
