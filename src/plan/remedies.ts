// What a user can change so that a run fits. Every remedy is found by planning the changed run and checking it, so that
// none is offered that would be refused.
import { formatBytes } from "../core/units.ts";
import type { Machine } from "../machine/machine.ts";
import type { BoundModel } from "../model/weights.ts";
import { checkFits, type Verdict } from "./fit.ts";
import { type PlanOptions, planMemory } from "./memory-plan.ts";

/** A run that may be planned. */
export interface PlanRequest {
  name: string;
  model: BoundModel;
  options: PlanOptions;
}

/** Another file of the same model that can be had, e.g. a published quantization. */
export interface Alternative {
  /** What people call it. */
  alias: string;
  model: BoundModel;
}

/** A change that makes the run fit. */
export interface Remedy {
  kind: "ctx" | "slots" | "file" | "memory";
  /** One line for people. */
  text: string;
  /** The options of the changed run. */
  options: PlanOptions;
  /** `file`: which one. */
  alias?: string;
  /** `memory`: bytes to free, by pool. */
  freeBytes?: Readonly<Record<string, number>>;
}

/** Contexts are offered in multiples of this. */
const CTX_GRANULE_TOKENS = 128;
/** Smaller ones are of no use. */
const MIN_CTX_TOKENS = 512;
/** With another file, a context below this is not worth its download. */
const MIN_FILE_CTX_TOKENS = 4096;

/**
 * Remedies for a refused run, best first: less context, fewer slots, another file, more free memory. Those that leave
 * the reserve free are preferred; where none does, those that merely fit are given.
 */
export function findRemedies(
  request: PlanRequest,
  machine: Machine,
  alternatives: readonly Alternative[] = [],
): Remedy[] {
  for (const accepted of [["fits"], ["fits", "tight"]] as const) {
    const search = new Search(request, machine, accepted);
    const remedies = [search.ctx(), search.slots(), search.file(alternatives)].filter(
      (each) => each !== null,
    );
    if (remedies.length > 0 || accepted.length > 1) return [...remedies, ...search.memory()];
  }
  return [];
}

class Search {
  readonly #request: PlanRequest;
  readonly #machine: Machine;
  readonly #accepted: readonly Verdict[];

  constructor(request: PlanRequest, machine: Machine, accepted: readonly Verdict[]) {
    this.#request = request;
    this.#machine = machine;
    this.#accepted = accepted;
  }

  ctx(): Remedy | null {
    const { model, options } = this.#request;
    const ctxTokens = this.#largestCtx(model, options, MIN_CTX_TOKENS);
    if (ctxTokens === null) return null;
    const text = `--ctx ${ctxTokens} (the largest context that fits)`;
    return { kind: "ctx", text, options: { ...options, ctxTokens } };
  }

  slots(): Remedy | null {
    const { model, options } = this.#request;
    for (let slots = options.slots - 1; slots >= 1; slots--) {
      const changed = {
        ...options,
        slots,
        headRows: Math.max(1, options.headRows - (options.slots - slots)),
      };
      if (this.#passes(model, changed)) return { kind: "slots", text: `--slots ${slots}`, options: changed };
    }
    return null;
  }

  /** The first alternative that fits as asked, or else the first with a useful context. */
  file(alternatives: readonly Alternative[]): Remedy | null {
    const { options } = this.#request;
    for (const { alias, model } of alternatives) {
      if (!this.#passes(model, options)) continue;
      return { kind: "file", text: `the file ${alias}, with the same context`, options, alias };
    }
    for (const { alias, model } of alternatives) {
      const ctxTokens = this.#largestCtx(model, options, MIN_FILE_CTX_TOKENS);
      if (ctxTokens === null) continue;
      const text = `the file ${alias} with --ctx ${ctxTokens}`;
      return { kind: "file", text, options: { ...options, ctxTokens }, alias };
    }
    return null;
  }

  /** More free memory, where the machine has it: programs to be closed, a limit to be raised. */
  memory(): Remedy[] {
    const { model, options, name } = this.#request;
    const { pools } = checkFits(planMemory(name, model, options, this.#machine), this.#machine);
    const short = pools.filter((pool) => pool.marginBytes < 0);
    if (short.some((pool) => pool.needBytes > pool.totalBytes)) return [];
    const freeBytes = Object.fromEntries(short.map((pool) => [pool.pool, -pool.marginBytes]));
    const parts = short.map((pool) => {
      const how = pool.limitedBy === null ? "close other programs" : `raise the limit of ${pool.limitedBy}`;
      return `${formatBytes(-pool.marginBytes)} more of ${pool.pool} memory (${how})`;
    });
    return [{ kind: "memory", text: parts.join(" and "), options, freeBytes }];
  }

  /** The need grows with the context, so halving finds the largest that passes below the one asked for. */
  #largestCtx(model: BoundModel, options: PlanOptions, leastTokens: number): number | null {
    const passes = (granules: number) =>
      this.#passes(model, { ...options, ctxTokens: granules * CTX_GRANULE_TOKENS });
    let good = Math.ceil(leastTokens / CTX_GRANULE_TOKENS);
    let bad = Math.ceil(options.ctxTokens / CTX_GRANULE_TOKENS);
    if (good >= bad || !passes(good)) return null;
    while (bad - good > 1) {
      const middle = Math.floor((good + bad) / 2);
      if (passes(middle)) good = middle;
      else bad = middle;
    }
    return good * CTX_GRANULE_TOKENS;
  }

  #passes(model: BoundModel, options: PlanOptions): boolean {
    const plan = planMemory(this.#request.name, model, options, this.#machine);
    return this.#accepted.includes(checkFits(plan, this.#machine).verdict);
  }
}
