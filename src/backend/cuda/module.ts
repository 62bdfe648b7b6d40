// The kernels: loaded code, functions found by name.
import { CudaError } from "./cuda-error.ts";
import type { CudaDriver, Extent, FunctionInfo, Handle } from "./driver.ts";
import type { KernelArg } from "./kernel-args.ts";
import { splitKernelImage } from "./kernel-image.ts";
import type { DeviceStream } from "./stream.ts";

/** Dynamic shared memory of a block that needs no permission. */
const FREE_SHARED_BYTES = 48 * 1024;

interface Kernel {
  handle: Handle;
  allowedSharedBytes: number;
  /** True when its code waits for the work before it; see native/cuda/overlap.cuh. */
  waits: boolean;
}

/** The first architecture whose kernels may overlap. Code made for earlier ones does not wait, on any device. */
const FIRST_OVERLAPPING = 90;

/** The functions of a kernel image. */
export class KernelModule {
  readonly #driver: CudaDriver;
  readonly #modules: Handle[] = [];
  readonly #kernels = new Map<string, Kernel>();
  #closed = false;
  #launches = 0;

  /** Loads the code for the current device. Throws `cuda` when the image holds none; nothing stays loaded then. */
  constructor(driver: CudaDriver, image: Uint8Array) {
    this.#driver = driver;
    try {
      for (const part of splitKernelImage(image)) this.#modules.push(driver.loadModule(part));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Launches since the module was loaded. */
  get launches(): number {
    return this.#launches;
  }

  /**
   * Queues a kernel. An empty grid is no launch. Throws `cuda` for an unknown name; failures inside of the kernel appear
   * when the stream is synchronized. `overlaps`: the kernel waits by itself for the work before it, and may start early.
   */
  launch(
    stream: DeviceStream,
    name: string,
    grid: Extent,
    block: Extent,
    sharedBytes: number,
    args: readonly KernelArg[],
    overlaps = false,
  ): void {
    if (grid[0] === 0 || grid[1] === 0 || grid[2] === 0) return;
    const kernel = this.#allowed(name, sharedBytes);
    this.#driver.launch(
      kernel.handle,
      grid,
      block,
      sharedBytes,
      stream.handle,
      args,
      overlaps && kernel.waits,
    );
    this.#launches++;
  }

  /** Blocks of a kernel that are resident on a multiprocessor at once. */
  residentBlocks(name: string, threads: number, sharedBytes: number): number {
    const { handle } = this.#allowed(name, sharedBytes);
    return this.#driver.residentBlocks(handle, threads, sharedBytes);
  }

  /** Registers, spills and shared memory of a kernel. */
  info(name: string): FunctionInfo {
    return this.#driver.functionInfo(this.#kernel(name).handle);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#kernels.clear();
    for (const module of this.#modules.splice(0)) this.#driver.unloadModule(module);
  }

  #allowed(name: string, sharedBytes: number): Kernel {
    const kernel = this.#kernel(name);
    if (sharedBytes > kernel.allowedSharedBytes) {
      this.#driver.allowSharedBytes(kernel.handle, sharedBytes);
      kernel.allowedSharedBytes = sharedBytes;
    }
    return kernel;
  }

  #kernel(name: string): Kernel {
    let kernel = this.#kernels.get(name);
    if (kernel === undefined) {
      const handle = this.#find(name);
      const waits = this.#driver.functionInfo(handle).ptxVersion >= FIRST_OVERLAPPING;
      kernel = { handle, allowedSharedBytes: FREE_SHARED_BYTES, waits };
      this.#kernels.set(name, kernel);
    }
    return kernel;
  }

  #find(name: string): Handle {
    let missing: unknown;
    for (const module of this.#modules) {
      try {
        return this.#driver.moduleFunction(module, name);
      } catch (error) {
        if (!(error instanceof CudaError) || error.result !== "CUDA_ERROR_NOT_FOUND") throw error;
        missing = error;
      }
    }
    throw missing;
  }
}
