// What long work reports and who may stop it. Libraries call these hooks; only the CLI draws.

/** One report of a long task. `done` and `total` share the unit named by `unit`. */
export interface Progress {
  /** Short label, e.g. "convert" or "prefill". */
  label: string;
  done: number;
  total: number;
  unit: "bytes" | "tokens" | "tensors";
  /** Part of `done` that an earlier run did: rates leave it out. Default 0. */
  doneBefore?: number;
  /** What is being worked on now, e.g. a tensor's name. */
  detail?: string;
}

/** Called at most some tens of times a second; must not throw. */
export type ProgressListener = (progress: Progress) => void;
