// The flags that choose a backend, shared by every command that runs a model.
import { Option } from "commander";
import { UsageError } from "../core/errors.ts";
import { KV_TYPES, type KvType } from "../core/kv-type.ts";
import type { BackendChoice } from "../session/engine-protocol.ts";

/** What commander collects. */
export interface BackendFlags {
  backend: BackendChoice;
  cpu?: boolean;
  cuda?: boolean;
  kvType: KvType;
}

const CHOICES: readonly BackendChoice[] = ["auto", "cuda", "cpu", "reference"];

/** `--backend`. */
export function backendOption(): Option {
  const text = "auto takes cuda where a GPU holds the model, else cpu, else reference";
  return new Option("--backend <name>", text).choices(CHOICES).default("auto");
}

/** `--cpu` and `--cuda`. */
export function backendShortcuts(): Option[] {
  return [
    new Option("--cuda", "same as --backend cuda").conflicts("cpu"),
    new Option("--cpu", "same as --backend cpu"),
  ];
}

/** `--kv-type`. */
export function kvTypeOption(): Option {
  const text = "attention rows on CUDA: f16x2 takes twice the memory and keeps float32's accuracy";
  return new Option("--kv-type <type>", text).choices(KV_TYPES).default(KV_TYPES[0]);
}

/** The backend that the flags ask for. Throws `usage` when they disagree. */
export function backendOf({ backend, cpu, cuda }: BackendFlags): BackendChoice {
  const short = cpu ? "cpu" : cuda ? "cuda" : undefined;
  if (short === undefined) return backend;
  if (backend === "auto" || backend === short) return short;
  throw new UsageError(`--${short} and --backend ${backend} exclude each other`);
}
