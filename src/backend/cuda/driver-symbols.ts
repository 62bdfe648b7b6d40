// The functions of libcuda with their C types. The versioned names are those that cuda.h of CUDA 12 and 13 maps to;
// drivers keep the old ones.

/** Parameter types in koffi's words. */
type CType = "int" | "unsigned int" | "uint64_t" | "size_t" | "void *" | "uint8_t";

/** An out parameter or a host memory argument: a view, or an address. */
export type HostPointer = ArrayBufferView | number | null;

const INT = "int";
const UINT = "unsigned int";
/** CUdeviceptr and all handles: pointers that are never followed here. */
const WORD = "uint64_t";
const SIZE = "size_t";
const POINTER = "void *";

/** Every function returns CUresult. */
const SIGNATURES = {
  cuInit: [UINT],
  cuDriverGetVersion: [POINTER],
  cuDeviceGetCount: [POINTER],
  cuDeviceGet: [POINTER, INT],
  cuDeviceGetName: [POINTER, INT, INT],
  cuDeviceGetAttribute: [POINTER, INT, INT],
  cuDeviceTotalMem_v2: [POINTER, INT],
  cuDevicePrimaryCtxRetain: [POINTER, INT],
  cuDevicePrimaryCtxRelease_v2: [INT],
  cuCtxSetCurrent: [WORD],
  cuMemGetInfo_v2: [POINTER, POINTER],
  cuMemAlloc_v2: [POINTER, SIZE],
  cuMemFree_v2: [WORD],
  cuMemHostAlloc: [POINTER, SIZE, UINT],
  cuMemFreeHost: [WORD],
  cuMemHostRegister_v2: [WORD, SIZE, UINT],
  cuMemHostUnregister: [WORD],
  cuMemcpyHtoDAsync_v2: [WORD, POINTER, SIZE, WORD],
  cuMemcpyDtoHAsync_v2: [POINTER, WORD, SIZE, WORD],
  cuMemcpyDtoDAsync_v2: [WORD, WORD, SIZE, WORD],
  cuMemsetD8Async: [WORD, "uint8_t", SIZE, WORD],
  cuMemsetD32Async: [WORD, UINT, SIZE, WORD],
  cuStreamCreate: [POINTER, UINT],
  cuStreamDestroy_v2: [WORD],
  cuStreamSynchronize: [WORD],
  cuStreamWaitEvent: [WORD, WORD, UINT],
  cuEventCreate: [POINTER, UINT],
  cuEventDestroy_v2: [WORD],
  cuEventRecord: [WORD, WORD],
  cuEventSynchronize: [WORD],
  cuEventElapsedTime: [POINTER, WORD, WORD],
  cuModuleLoadData: [POINTER, POINTER],
  cuModuleUnload: [WORD],
  cuModuleGetFunction: [POINTER, WORD, POINTER],
  cuFuncGetAttribute: [POINTER, INT, WORD],
  cuFuncSetAttribute: [WORD, INT, INT],
  cuOccupancyMaxActiveBlocksPerMultiprocessor: [POINTER, WORD, INT, SIZE],
  cuLaunchKernel: [WORD, UINT, UINT, UINT, UINT, UINT, UINT, UINT, WORD, POINTER, POINTER],
  cuLaunchKernelEx: [POINTER, WORD, POINTER, POINTER],
  cuStreamBeginCapture_v2: [WORD, INT],
  cuStreamEndCapture: [WORD, POINTER],
  cuGraphInstantiateWithFlags: [POINTER, WORD, "uint64_t"],
  cuGraphLaunch: [WORD, WORD],
  cuGraphExecDestroy: [WORD],
  cuGraphDestroy: [WORD],
  cuGetErrorName: [INT, POINTER],
  cuGetErrorString: [INT, POINTER],
} as const satisfies Record<string, readonly CType[]>;

/** Name of a function of libcuda. */
export type SymbolName = keyof typeof SIGNATURES;

type ArgumentOf<T> = T extends "void *" ? HostPointer : number;
type ArgumentsOf<T extends readonly CType[]> = { -readonly [Index in keyof T]: ArgumentOf<T[Index]> };

/** The functions, callable. */
export type Symbols = {
  [Name in SymbolName]: (...args: ArgumentsOf<(typeof SIGNATURES)[Name]>) => number;
};

/** What of koffi is used. */
export interface ForeignFunctions {
  load(path: string): { func(name: string, result: string, parameters: readonly string[]): unknown };
  address(memory: ArrayBufferView): bigint | number;
  view(address: bigint | number, bytes: number): ArrayBuffer;
  decode(memory: ArrayBufferView, type: string): unknown;
}

/** Loads the library and finds all functions. Throws an Error naming what is missing. */
export function bindSymbols(koffi: ForeignFunctions, path: string): Symbols {
  const library = koffi.load(path);
  const entries = Object.entries(SIGNATURES).map(([name, parameters]) => {
    return [name, library.func(name, "int", parameters)];
  });
  return Object.fromEntries(entries) as Symbols;
}
