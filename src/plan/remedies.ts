// What a user can change so that a run fits. Every remedy is found by planning the changed run and checking it, so that
// none is offered that would be refused.
import { formatBytes, GIB, MIB } from "../core/units.ts";
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
  /** Less than the reserve stays free then. */
  tight: boolean;
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
 * Remedies for a refused run: less context, fewer slots, another file, more free memory. Each kind is sought so that the
 * reserve stays free, else so that it merely fits, which its text says; those come later.
 */
export function findRemedies(
  request: PlanRequest,
  machine: Machine,
  alternatives: readonly Alternative[] = [],
): Remedy[] {
  const roomy = new Search(request, machine, ["fits"]);
  const tight = new Search(request, machine, ["fits", "tight"]);
  const kinds = [
    (search: Search) => search.ctx(),
    (search: Search) => search.slots(),
    (search: Search) => search.file(alternatives),
  ];
  const found = kinds.map(
    (find) => find(roomy) ?? marked(find(tight), "tight: the reserve does not stay free"),
  );
  const remedies = found.filter((each) => each !== null);
  return [...remedies.sort((a, b) => Number(a.tight) - Number(b.tight)), ...tight.memory()];
}

function marked(remedy: Remedy | null, mark: string): Remedy | null {
  return remedy && { ...remedy, text: `${remedy.text}; ${mark}`, tight: true };
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
    return { kind: "ctx", text, tight: false, options: { ...options, ctxTokens } };
  }

  slots(): Remedy | null {
    const { model, options } = this.#request;
    for (let slots = options.slots - 1; slots >= 1; slots--) {
      const changed = {
        ...options,
        slots,
        headRows: Math.max(1, options.headRows - (options.slots - slots)),
      };
      if (this.#passes(model, changed)) {
        return { kind: "slots", text: `--slots ${slots}`, tight: false, options: changed };
      }
    }
    return null;
  }

  /** The first alternative that fits as asked, or else the first with a useful context. */
  file(alternatives: readonly Alternative[]): Remedy | null {
    const { options } = this.#request;
    for (const { alias, model } of alternatives) {
      if (!this.#passes(model, options)) continue;
      return { kind: "file", text: `the file ${alias}, with the same context`, tight: false, options, alias };
    }
    for (const { alias, model } of alternatives) {
      const ctxTokens = this.#largestCtx(model, options, MIN_FILE_CTX_TOKENS);
      if (ctxTokens === null) continue;
      const text = `the file ${alias} with --ctx ${ctxTokens}`;
      return { kind: "file", text, tight: false, options: { ...options, ctxTokens }, alias };
    }
    return null;
  }

  /** More free memory, where the machine has it: programs to be closed, a limit to be raised. */
  memory(): Remedy[] {
    const { model, options, name } = this.#request;
    const { pools } = checkFits(planMemory(name, model, options, this.#machine), this.#machine);
    const short = pools.filter((pool) => pool.marginBytes < 0);
    if (short.some((pool) => pool.needBytes > pool.totalBytes)) return [];
    const freeBytes = Object.fromEntries(short.map((pool) => [pool.pool, roundedUp(-pool.marginBytes)]));
    const parts = short.map((pool) => {
      const more = `${formatBytes(freeBytes[pool.pool])} more of ${pool.pool} memory`;
      if (pool.limitedBy === null) return `${more} (close other programs)`;
      return `${more} (raise ${pool.limitedBy === "--budget" ? "--budget" : `the limit of ${pool.limitedBy}`})`;
    });
    return [{ kind: "memory", text: parts.join(" and "), tight: true, options, freeBytes }];
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

/** To the next MiB below a GiB, else to the next hundredth of one, so that the number shown is enough. */
function roundedUp(bytes: number): number {
  const step = bytes < GIB ? MIB : GIB / 100;
  return Math.ceil(Math.ceil(bytes / step) * step);
}
