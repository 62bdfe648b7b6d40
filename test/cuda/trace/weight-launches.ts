// Which weights each launch reads: a driver between the backend and the real one notes the launches and finds the weights
// by their addresses among the arguments. So it holds for whatever order and cut of the work the backend chooses.
import type { CudaDriver, Handle } from "../../../src/backend/cuda/driver.ts";
import type { KernelArg } from "../../../src/backend/cuda/kernel-args.ts";
import { rowBytes } from "../../../src/blocks/ggml-types.ts";
import type { BoundModel } from "../../../src/model/weights.ts";
import { PANEL_ROWS, type PlacedMatrix, planWeights } from "../../../src/plan/weight-layout.ts";

/** One launch. */
export interface LaunchWeights {
  kernel: string;
  /** Weights that it reads, of routed experts those that a token uses, of the embedding one row. */
  bytes: number;
  /** Names without block and suffix, in file order. */
  tensors: string[];
}

interface Launch {
  kernel: string;
  /** Words of the arguments, some of which are addresses. */
  words: number[];
}

/** Notes the launches of a step. */
export class LaunchWatcher {
  /** Give this to the backend. */
  readonly driver: CudaDriver;
  readonly #model: BoundModel;
  readonly #placed: readonly PlacedMatrix[];
  readonly #arenaBytes: number;
  readonly #names = new Map<Handle, string>();
  #arena = 0;
  #launches: Launch[] = [];

  constructor(driver: CudaDriver, model: BoundModel) {
    const { matrices, arenaBytes } = planWeights(model);
    this.#model = model;
    this.#placed = matrices;
    this.#arenaBytes = arenaBytes;
    this.driver = this.#watch(driver);
  }

  /** Forgets what was launched so far. */
  restart(): void {
    this.#launches = [];
  }

  /** The launches since `restart`. */
  launches(): LaunchWeights[] {
    const hits = this.#launches.map(({ words }) => this.#hits(words));
    // A tensor that several launches share is read by each in part: by the addresses that they are given of it.
    const addresses = new Map<PlacedMatrix, Set<number>>();
    for (const [placed, some] of hits.flatMap((each) => [...each])) {
      addresses.set(placed, new Set([...(addresses.get(placed) ?? []), ...some]));
    }
    return this.#launches.map(({ kernel }, i) => {
      const parts = [...hits[i]].map(([placed, some]) => {
        const bytes = (this.#readBytes(placed) * some.size) / addresses.get(placed)!.size;
        return { bytes, tensor: shortName(placed.tensor.name), at: placed.offsetBytes };
      });
      parts.sort((a, b) => a.at - b.at);
      const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
      return { kernel, bytes, tensors: parts.map(({ tensor }) => tensor) };
    });
  }

  #watch(driver: CudaDriver): CudaDriver {
    const watched: Partial<CudaDriver> = {
      alloc: (bytes) => {
        const address = driver.alloc(bytes);
        if (bytes === this.#arenaBytes) this.#arena = address;
        return address;
      },
      moduleFunction: (module, name) => {
        const kernel = driver.moduleFunction(module, name);
        this.#names.set(kernel, name);
        return kernel;
      },
      launch: (kernel, grid, block, sharedBytes, stream, args, overlaps) => {
        const words = args.flatMap(addressesOf);
        this.#launches.push({ kernel: this.#names.get(kernel) ?? "unknown", words });
        driver.launch(kernel, grid, block, sharedBytes, stream, args, overlaps);
      },
    };
    return new Proxy(driver, {
      get: (target, key) => {
        const own = watched[key as keyof CudaDriver];
        if (own !== undefined) return own;
        const value = Reflect.get(target, key, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  /** The weights whose addresses are among the words, and which addresses within them. */
  #hits(words: readonly number[]): Map<PlacedMatrix, Set<number>> {
    const hits = new Map<PlacedMatrix, Set<number>>();
    for (const address of words) {
      const offset = address - this.#arena;
      if (offset < 0 || offset >= this.#arenaBytes) continue;
      const placed = this.#placed.find((each) => isWithin(each, offset));
      if (placed !== undefined) hits.set(placed, (hits.get(placed) ?? new Set()).add(address));
    }
    return hits;
  }

  #readBytes({ tensor, slices, cols, bytes }: PlacedMatrix): number {
    if (tensor === this.#model.embedding) return rowBytes(tensor.type, cols);
    return slices > 1 ? (bytes / slices) * this.#model.spec.expertUsedCount : bytes;
  }
}

/** True for the start of the matrix and of its panels: two numbers that look like an address together hardly are one. */
function isWithin({ tensor, cols, offsetBytes, bytes }: PlacedMatrix, offset: number): boolean {
  const inside = offset - offsetBytes;
  return inside >= 0 && inside < bytes && inside % (PANEL_ROWS * rowBytes(tensor.type, cols)) === 0;
}

/** All words of an argument that may be addresses. */
function addressesOf(arg: KernelArg): number[] {
  if ("address" in arg) return [arg.address];
  if ("p" in arg) return arg.p === null ? [] : [arg.p.address];
  if (!("struct" in arg)) return [];
  const view = new DataView(arg.struct.buffer, arg.struct.byteOffset, arg.struct.byteLength);
  return Array.from({ length: Math.floor(view.byteLength / 8) }, (_, i) =>
    Number(view.getBigUint64(8 * i, true)),
  );
}

function shortName(name: string): string {
  return name.replace(/^blk\.\d+\./, "").replace(/\.weight$/, "");
}
