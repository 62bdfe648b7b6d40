// What this backend needs of the CUDA driver API, as an interface: `driver-library.ts` implements it on libcuda,
// tests on a fake. Every method throws `cuda` (or `memory`, when memory ran out) if the driver refuses.
import type { KernelArg } from "./kernel-args.ts";

/** A device address. Below 2^53 on every platform of CUDA, so a number keeps it exactly. */
export type DeviceAddress = number;

/** An object of the driver. Never a pointer to follow. */
export type Handle = number;

/** The stream that every context has; work of other streams may not overlap with it. */
export const DEFAULT_STREAM: Handle = 0;

/** Host memory of a copy: a view, or the address of memory that outlives the copy. */
export type HostMemory = ArrayBufferView | number;

/** Page-locked host memory. */
export interface PinnedMemory {
  readonly address: number;
  readonly view: ArrayBuffer;
}

/** What a device is. */
export interface DeviceInfo {
  ordinal: number;
  name: string;
  /** Compute capability times ten, as in sm_90: 90. */
  computeCapability: number;
  multiprocessors: number;
  /** True when the device shares the host's memory. */
  integrated: boolean;
  totalBytes: number;
  l2Bytes: number;
  /** Most dynamic shared memory of a block, after opting in. */
  sharedBytesPerBlock: number;
  sharedBytesPerMultiprocessor: number;
}

/** Free and total memory of the current device. */
export interface MemoryInfo {
  freeBytes: number;
  totalBytes: number;
}

/** What the compiler decided for a kernel. */
export interface FunctionInfo {
  registers: number;
  /** Per thread: spills and arrays. */
  localBytes: number;
  staticSharedBytes: number;
  maxThreadsPerBlock: number;
  /** The virtual architecture that the code was made for, as in compute_90: 90. */
  ptxVersion: number;
}

/** x, y, z. */
export type Extent = readonly [number, number, number];

/** The driver. One context at a time, all calls from one thread. Copies and launches are asynchronous. */
export interface CudaDriver {
  /** CUDA version that the driver supports, times 1000: 13000 for 13.0. */
  readonly version: number;
  deviceCount(): number;
  deviceInfo(ordinal: number): DeviceInfo;
  /** Retains the device's primary context and makes it current. */
  retainContext(ordinal: number): void;
  releaseContext(ordinal: number): void;
  memoryInfo(): MemoryInfo;
  /** Plain device memory, aligned to 256 bytes. Throws `memory`. */
  alloc(bytes: number): DeviceAddress;
  free(address: DeviceAddress): void;
  allocHost(bytes: number): PinnedMemory;
  freeHost(memory: PinnedMemory): void;
  /** Page-locks memory that is already there. */
  pin(memory: HostMemory, bytes: number): void;
  unpin(memory: HostMemory): void;
  copyToDevice(target: DeviceAddress, source: HostMemory, bytes: number, stream: Handle): void;
  copyToHost(target: HostMemory, source: DeviceAddress, bytes: number, stream: Handle): void;
  copyOnDevice(target: DeviceAddress, source: DeviceAddress, bytes: number, stream: Handle): void;
  fillBytes(target: DeviceAddress, value: number, bytes: number, stream: Handle): void;
  /** `words` values of four bytes. */
  fillWords(target: DeviceAddress, value: number, words: number, stream: Handle): void;
  createStream(): Handle;
  destroyStream(stream: Handle): void;
  synchronize(stream: Handle): void;
  /** Work of `stream` after this call waits for `event`. */
  waitForEvent(stream: Handle, event: Handle): void;
  createEvent(): Handle;
  destroyEvent(event: Handle): void;
  recordEvent(event: Handle, stream: Handle): void;
  synchronizeEvent(event: Handle): void;
  /** Milliseconds between two events that have happened. */
  elapsedMs(begin: Handle, end: Handle): number;
  loadModule(image: Uint8Array): Handle;
  unloadModule(module: Handle): void;
  moduleFunction(module: Handle, name: string): Handle;
  functionInfo(kernel: Handle): FunctionInfo;
  /** Allows launches with up to `bytes` of dynamic shared memory. */
  allowSharedBytes(kernel: Handle, bytes: number): void;
  /** Blocks of a kernel that are resident on a multiprocessor at once, `sharedBytes` of dynamic memory each. */
  residentBlocks(kernel: Handle, threads: number, sharedBytes: number): number;
  /** `overlaps`: it may start before the work ahead of it has ended (native/cuda/overlap.cuh). */
  launch(
    kernel: Handle,
    grid: Extent,
    block: Extent,
    sharedBytes: number,
    stream: Handle,
    args: readonly KernelArg[],
    overlaps: boolean,
  ): void;
  /** From here on, work given to `stream` is recorded instead of run. */
  beginCapture(stream: Handle): void;
  /** Ends the capture and makes it runnable. */
  endCapture(stream: Handle): Handle;
  launchGraph(graph: Handle, stream: Handle): void;
  destroyGraph(graph: Handle): void;
}

/** The driver, or why there is none. */
export type CudaLoad = { driver: CudaDriver; reason: null } | { driver: null; reason: string };
