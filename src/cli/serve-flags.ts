// The flags of `ds4 serve`: names and defaults follow ds4-server's where it has the flag.
import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError, Option } from "commander";
import { UsageError } from "../core/errors.ts";
import { MAX_QUEUED_REQUESTS } from "../server/limits.ts";
import { type BackendFlags, backendOption, backendShortcuts, kvTypeOption } from "./backend-flags.ts";
import { collectText, integerIn } from "./flag-values.ts";

/** What commander collects. */
export interface ServeFlags extends BackendFlags {
  model?: string;
  alias?: string;
  host: string;
  port: number;
  ctx?: number;
  tokens?: number;
  slots?: number;
  checkpointMb?: number;
  kvDiskDir?: string;
  kvDiskSpaceMb: number;
  maxQueue: number;
  apiKey?: string[];
  apiKeyFile?: string;
  cors?: string[];
  trace?: string;
  threads?: number;
  prefillChunk: number;
  force?: boolean;
  quiet?: boolean;
}

/** Slots when none are asked for: a client's side requests must not evict its conversation. */
export const DEFAULT_SLOTS = 2;
const MAX_SLOTS = 256;
const INT_MAX = 2 ** 31 - 1;

/** Adds the flags, in groups. */
export function addServeFlags(command: Command): Command {
  const group = (heading: string, ...options: Option[]) => {
    command.optionsGroup(heading);
    for (const option of options) command.addOption(option);
  };
  const flag = (flags: string, text: string) => new Option(flags, text);
  const positive = integerIn(1, INT_MAX);
  group(
    "Server:",
    flag("--host <address>", "address to listen on; 0.0.0.0 is every network").default("127.0.0.1"),
    flag("--port <n>", "port to listen on, 0 takes a free one").argParser(integerIn(0, 65535)).default(8000),
    flag("--api-key <key>", "refuse requests without this key; repeatable").argParser(collectText),
    flag("--api-key-file <file>", "keys from a file, one a line"),
    flag("--cors <origin>", "let pages of this origin use the server, * for all; repeatable").argParser(
      collectOrigin,
    ),
    flag("--max-queue <n>", "requests that may wait; more get 429")
      .argParser(integerIn(0, 100_000))
      .default(MAX_QUEUED_REQUESTS),
    flag(
      "--trace <file>",
      "append requests, prompts and answers to a file; prompts are written nowhere else",
    ),
    flag("--quiet", "no log, warnings or progress"),
  );
  group(
    "Engine:",
    flag("-m, --model <file>", "GGUF file, or the first part of a split one (default: the nano model)"),
    flag("--alias <name>", "the model's name in the APIs (default: the file's name)"),
    flag("-c, --ctx <n>", "context of each slot (default: 32768, at most the model's)").argParser(
      integerIn(1, 1 << 24),
    ),
    flag(
      "-n, --tokens <n>",
      "most tokens of an answer when the request says none (default: the rest)",
    ).argParser(positive),
    flag(
      "--slots <n>",
      `conversations held at once (default: ${DEFAULT_SLOTS}, 1 where memory is short)`,
    ).argParser(integerIn(1, MAX_SLOTS)),
    flag(
      "--checkpoint-mb <n>",
      "memory for states that a conversation can go back to (default: a quarter of what is free, at most 2048)",
    ).argParser(integerIn(0, 1 << 20)),
    flag("--kv-disk-dir <folder>", "save states of conversations here, and find them again after a restart"),
    flag("--kv-disk-space-mb <n>", "most space for them")
      .argParser(integerIn(1, 1 << 30))
      .default(4096),
    flag("-t, --threads <n>", "compute threads (default: chosen by the backend)").argParser(
      integerIn(1, 1024),
    ),
    flag("--prefill-chunk <n>", "most prompt tokens per pass").argParser(positive).default(512),
    backendOption(),
    ...backendShortcuts(),
    kvTypeOption(),
    flag("--force", "load the model even if it does not fit in memory"),
  );
  return command;
}

function collectOrigin(text: string, previous: string[] = []): string[] {
  if (text === "*") return [...previous, text];
  try {
    if (new URL(text).origin === text) return [...previous, text];
  } catch {
    // falls through to the refusal
  }
  throw new InvalidArgumentError("Expected an origin such as http://localhost:3000, or *.");
}

/** The keys of both flags. Throws `usage` for a file that cannot be read or holds none. */
export function apiKeysOf({ apiKey = [], apiKeyFile }: ServeFlags): string[] {
  if (apiKeyFile === undefined) return apiKey;
  let text: string;
  try {
    text = readFileSync(apiKeyFile, "utf8");
  } catch (error) {
    throw new UsageError(`--api-key-file ${apiKeyFile}: ${(error as Error).message}`);
  }
  const keys = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (keys.length === 0) throw new UsageError(`--api-key-file ${apiKeyFile}: expected a key in it`);
  return [...apiKey, ...keys];
}
