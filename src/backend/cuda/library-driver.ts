// `CudaDriver` on libcuda.
import { cudaError } from "./cuda-error.ts";
import type {
  CudaDriver,
  DeviceAddress,
  DeviceInfo,
  Extent,
  FunctionInfo,
  Handle,
  HostMemory,
  MemoryInfo,
  PinnedMemory,
} from "./driver.ts";
import type { ForeignFunctions, Symbols } from "./driver-symbols.ts";
import { type KernelArg, OverlapConfig, ParameterBlock } from "./kernel-args.ts";

/** CUdevice_attribute. */
const DEVICE_ATTRIBUTE = {
  multiprocessors: 16,
  integrated: 18,
  l2Bytes: 38,
  major: 75,
  minor: 76,
  sharedBytesPerMultiprocessor: 81,
  sharedBytesPerBlock: 97,
} as const;
/** CUfunction_attribute. */
const FUNCTION_ATTRIBUTE = {
  maxThreads: 0,
  staticShared: 1,
  local: 3,
  registers: 4,
  ptxVersion: 5,
  maxDynamicShared: 8,
};
const STREAM_NON_BLOCKING = 1;
/** Only this thread's calls that would break a capture are refused, not other threads'. */
const CAPTURE_THREAD_LOCAL = 1;
const MAX_NAME_BYTES = 256;

/** Calls the driver. Its methods are documented at `CudaDriver`. */
export class LibraryDriver implements CudaDriver {
  readonly version: number;
  readonly #koffi: ForeignFunctions;
  readonly #symbols: Symbols;
  readonly #parameters: ParameterBlock;
  readonly #overlapping: OverlapConfig;
  /** Where the driver writes results; two words. */
  readonly #out = new BigUint64Array(new ArrayBuffer(16));
  readonly #outSecond = this.#out.subarray(1);
  readonly #outInt = new Int32Array(this.#out.buffer);
  readonly #outFloat = new Float32Array(this.#out.buffer);

  /** Initializes the driver. Throws `cuda`. */
  constructor(koffi: ForeignFunctions, symbols: Symbols) {
    this.#koffi = koffi;
    this.#symbols = symbols;
    const addressOf = (memory: ArrayBufferView) => Number(koffi.address(memory));
    this.#parameters = new ParameterBlock(addressOf);
    this.#overlapping = new OverlapConfig(addressOf);
    this.#check("cuInit", symbols.cuInit(0));
    this.#check("cuDriverGetVersion", symbols.cuDriverGetVersion(this.#outInt));
    this.version = this.#outInt[0];
  }

  deviceCount(): number {
    this.#check("cuDeviceGetCount", this.#symbols.cuDeviceGetCount(this.#outInt));
    return this.#outInt[0];
  }

  deviceInfo(ordinal: number): DeviceInfo {
    const device = this.#device(ordinal);
    const name = new Uint8Array(MAX_NAME_BYTES);
    this.#check("cuDeviceGetName", this.#symbols.cuDeviceGetName(name, MAX_NAME_BYTES, device));
    this.#check("cuDeviceTotalMem", this.#symbols.cuDeviceTotalMem_v2(this.#out, device));
    const totalBytes = Number(this.#out[0]);
    const attribute = (which: keyof typeof DEVICE_ATTRIBUTE): number => {
      const id = DEVICE_ATTRIBUTE[which];
      this.#check("cuDeviceGetAttribute", this.#symbols.cuDeviceGetAttribute(this.#outInt, id, device));
      return this.#outInt[0];
    };
    return {
      ordinal,
      name: textOf(name),
      computeCapability: 10 * attribute("major") + attribute("minor"),
      multiprocessors: attribute("multiprocessors"),
      integrated: attribute("integrated") !== 0,
      totalBytes,
      l2Bytes: attribute("l2Bytes"),
      sharedBytesPerBlock: attribute("sharedBytesPerBlock"),
      sharedBytesPerMultiprocessor: attribute("sharedBytesPerMultiprocessor"),
    };
  }

  retainContext(ordinal: number): void {
    const device = this.#device(ordinal);
    this.#check("cuDevicePrimaryCtxRetain", this.#symbols.cuDevicePrimaryCtxRetain(this.#out, device));
    this.#check("cuCtxSetCurrent", this.#symbols.cuCtxSetCurrent(Number(this.#out[0])));
  }

  releaseContext(ordinal: number): void {
    const device = this.#device(ordinal);
    this.#check("cuDevicePrimaryCtxRelease", this.#symbols.cuDevicePrimaryCtxRelease_v2(device));
  }

  memoryInfo(): MemoryInfo {
    this.#check("cuMemGetInfo", this.#symbols.cuMemGetInfo_v2(this.#out, this.#outSecond));
    return { freeBytes: Number(this.#out[0]), totalBytes: Number(this.#out[1]) };
  }

  alloc(bytes: number): DeviceAddress {
    return this.#created("cuMemAlloc", this.#symbols.cuMemAlloc_v2(this.#out, bytes), bytes);
  }

  free(address: DeviceAddress): void {
    this.#check("cuMemFree", this.#symbols.cuMemFree_v2(address));
  }

  allocHost(bytes: number): PinnedMemory {
    const result = this.#symbols.cuMemHostAlloc(this.#out, bytes, 0);
    const address = this.#created("cuMemHostAlloc", result, bytes);
    return { address, view: this.#koffi.view(BigInt(address), bytes) };
  }

  freeHost(memory: PinnedMemory): void {
    this.#check("cuMemFreeHost", this.#symbols.cuMemFreeHost(memory.address));
  }

  pin(memory: HostMemory, bytes: number): void {
    const address = this.#addressOf(memory);
    this.#check("cuMemHostRegister", this.#symbols.cuMemHostRegister_v2(address, bytes, 0), bytes);
  }

  unpin(memory: HostMemory): void {
    const address = this.#addressOf(memory);
    this.#check("cuMemHostUnregister", this.#symbols.cuMemHostUnregister(address));
  }

  copyToDevice(target: DeviceAddress, source: HostMemory, bytes: number, stream: Handle): void {
    checkRoom(source, bytes);
    this.#check("cuMemcpyHtoDAsync", this.#symbols.cuMemcpyHtoDAsync_v2(target, source, bytes, stream));
  }

  copyToHost(target: HostMemory, source: DeviceAddress, bytes: number, stream: Handle): void {
    checkRoom(target, bytes);
    this.#check("cuMemcpyDtoHAsync", this.#symbols.cuMemcpyDtoHAsync_v2(target, source, bytes, stream));
  }

  copyOnDevice(target: DeviceAddress, source: DeviceAddress, bytes: number, stream: Handle): void {
    this.#check("cuMemcpyDtoDAsync", this.#symbols.cuMemcpyDtoDAsync_v2(target, source, bytes, stream));
  }

  fillBytes(target: DeviceAddress, value: number, bytes: number, stream: Handle): void {
    this.#check("cuMemsetD8Async", this.#symbols.cuMemsetD8Async(target, value, bytes, stream));
  }

  fillWords(target: DeviceAddress, value: number, words: number, stream: Handle): void {
    this.#check("cuMemsetD32Async", this.#symbols.cuMemsetD32Async(target, value, words, stream));
  }

  createStream(): Handle {
    return this.#created("cuStreamCreate", this.#symbols.cuStreamCreate(this.#out, STREAM_NON_BLOCKING));
  }

  destroyStream(stream: Handle): void {
    this.#check("cuStreamDestroy", this.#symbols.cuStreamDestroy_v2(stream));
  }

  synchronize(stream: Handle): void {
    this.#check("cuStreamSynchronize", this.#symbols.cuStreamSynchronize(stream));
  }

  waitForEvent(stream: Handle, event: Handle): void {
    this.#check("cuStreamWaitEvent", this.#symbols.cuStreamWaitEvent(stream, event, 0));
  }

  createEvent(): Handle {
    return this.#created("cuEventCreate", this.#symbols.cuEventCreate(this.#out, 0));
  }

  destroyEvent(event: Handle): void {
    this.#check("cuEventDestroy", this.#symbols.cuEventDestroy_v2(event));
  }

  recordEvent(event: Handle, stream: Handle): void {
    this.#check("cuEventRecord", this.#symbols.cuEventRecord(event, stream));
  }

  synchronizeEvent(event: Handle): void {
    this.#check("cuEventSynchronize", this.#symbols.cuEventSynchronize(event));
  }

  elapsedMs(begin: Handle, end: Handle): number {
    this.#check("cuEventElapsedTime", this.#symbols.cuEventElapsedTime(this.#outFloat, begin, end));
    return this.#outFloat[0];
  }

  loadModule(image: Uint8Array): Handle {
    return this.#created("cuModuleLoadData", this.#symbols.cuModuleLoadData(this.#out, image));
  }

  unloadModule(module: Handle): void {
    this.#check("cuModuleUnload", this.#symbols.cuModuleUnload(module));
  }

  moduleFunction(module: Handle, name: string): Handle {
    const text = new TextEncoder().encode(`${name}\0`);
    const result = this.#symbols.cuModuleGetFunction(this.#out, module, text);
    return this.#created(`cuModuleGetFunction(${name})`, result);
  }

  functionInfo(kernel: Handle): FunctionInfo {
    const attribute = (id: number): number => {
      this.#check("cuFuncGetAttribute", this.#symbols.cuFuncGetAttribute(this.#outInt, id, kernel));
      return this.#outInt[0];
    };
    return {
      registers: attribute(FUNCTION_ATTRIBUTE.registers),
      localBytes: attribute(FUNCTION_ATTRIBUTE.local),
      staticSharedBytes: attribute(FUNCTION_ATTRIBUTE.staticShared),
      maxThreadsPerBlock: attribute(FUNCTION_ATTRIBUTE.maxThreads),
      ptxVersion: attribute(FUNCTION_ATTRIBUTE.ptxVersion),
    };
  }

  allowSharedBytes(kernel: Handle, bytes: number): void {
    const id = FUNCTION_ATTRIBUTE.maxDynamicShared;
    this.#check("cuFuncSetAttribute", this.#symbols.cuFuncSetAttribute(kernel, id, bytes));
  }

  residentBlocks(kernel: Handle, threads: number, sharedBytes: number): number {
    const find = this.#symbols.cuOccupancyMaxActiveBlocksPerMultiprocessor;
    const result = find(this.#outInt, kernel, threads, sharedBytes);
    this.#check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result);
    return this.#outInt[0];
  }

  launch(
    kernel: Handle,
    grid: Extent,
    block: Extent,
    sharedBytes: number,
    stream: Handle,
    args: readonly KernelArg[],
    overlaps: boolean,
  ): void {
    this.#parameters.fill(args);
    const { pointersAddress } = this.#parameters;
    if (overlaps) {
      const config = this.#overlapping.fill(grid, block, sharedBytes, stream);
      const result = this.#symbols.cuLaunchKernelEx(config, kernel, pointersAddress, null);
      this.#check("cuLaunchKernelEx", result);
      return;
    }
    this.#check(
      "cuLaunchKernel",
      this.#symbols.cuLaunchKernel(kernel, ...grid, ...block, sharedBytes, stream, pointersAddress, null),
    );
  }

  beginCapture(stream: Handle): void {
    const result = this.#symbols.cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL);
    this.#check("cuStreamBeginCapture", result);
  }

  endCapture(stream: Handle): Handle {
    const recorded = this.#created("cuStreamEndCapture", this.#symbols.cuStreamEndCapture(stream, this.#out));
    try {
      const result = this.#symbols.cuGraphInstantiateWithFlags(this.#out, recorded, 0);
      return this.#created("cuGraphInstantiate", result);
    } finally {
      this.#symbols.cuGraphDestroy(recorded);
    }
  }

  launchGraph(graph: Handle, stream: Handle): void {
    this.#check("cuGraphLaunch", this.#symbols.cuGraphLaunch(graph, stream));
  }

  destroyGraph(graph: Handle): void {
    this.#check("cuGraphExecDestroy", this.#symbols.cuGraphExecDestroy(graph));
  }

  #addressOf(memory: HostMemory): number {
    return typeof memory === "number" ? memory : Number(this.#koffi.address(memory));
  }

  #device(ordinal: number): number {
    this.#check("cuDeviceGet", this.#symbols.cuDeviceGet(this.#outInt, ordinal));
    return this.#outInt[0];
  }

  /** The handle or address that a call wrote. */
  #created(call: string, result: number, bytes?: number): number {
    this.#check(call, result, bytes);
    return Number(this.#out[0]);
  }

  #check(call: string, result: number, bytes?: number): void {
    if (result === 0) return;
    const name = this.#text("cuGetErrorName", result) || `CUDA_ERROR_${result}`;
    throw cudaError(call, name, this.#text("cuGetErrorString", result), bytes);
  }

  #text(call: "cuGetErrorName" | "cuGetErrorString", result: number): string {
    if (this.#symbols[call](result, this.#out) !== 0 || this.#out[0] === 0n) return "";
    return this.#koffi.decode(this.#out, "const char *") as string;
  }
}

function checkRoom(memory: HostMemory, bytes: number): void {
  if (typeof memory === "number" || memory.byteLength >= bytes) return;
  throw new RangeError(`a copy of ${bytes} bytes does not fit in ${memory.byteLength} bytes of host memory`);
}

function textOf(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(bytes.subarray(0, end < 0 ? bytes.length : end));
}
