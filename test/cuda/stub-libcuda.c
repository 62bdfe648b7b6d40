// A libcuda for tests of the calls themselves: memory is the host's, kernels are recorded. Where cuda.h is installed
// (-DWITH_CUDA_H) the compiler also checks every signature against it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_CUDA_H
#include <cuda.h>
#undef cuEventElapsedTime
#undef cuGraphInstantiate
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr, cuuint64_t;
typedef unsigned int cuuint32_t;
typedef struct Opaque *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUgraph, *CUgraphExec;
typedef struct {
  int id;
  char pad[4];
  union {
    char pad[64];
    int programmaticStreamSerializationAllowed;
  } value;
} CUlaunchAttribute;
typedef struct {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned int numAttrs;
} CUlaunchConfig;
#define CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION 6
#endif

#define CUDA_SUCCESS_ 0
#define HANDLE(type, n) ((type)(uintptr_t)(0x7f0000000000ull + (n)))

static uint8_t record[256];  // grid, block, shared, then the first parameters
static size_t limitBytes = 1 << 20;

CUresult cuInit(unsigned int flags) { return flags == 0 ? 0 : 1; }
CUresult cuDriverGetVersion(int* version) { *version = 13000; return 0; }
CUresult cuDeviceGetCount(int* count) { *count = 1; return 0; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }
CUresult cuDeviceGetName(char* name, int len, CUdevice dev) { strncpy(name, "Stub GPU", len); return dev; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) { *value = attribute; return dev; }
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) { *bytes = 150ull << 30; return dev; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice dev) { *context = HANDLE(CUcontext, 1); return dev; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return dev; }
CUresult cuCtxSetCurrent(CUcontext context) { return context == HANDLE(CUcontext, 1) ? 0 : 201; }
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { *free = 100ull << 30; *total = 150ull << 30; return 0; }
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  if (bytes > limitBytes) return 2;
  *address = (uintptr_t)malloc(bytes);
  return 0;
}
CUresult cuMemFree_v2(CUdeviceptr address) { free((void*)(uintptr_t)address); return 0; }
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int flags) { *memory = malloc(bytes); return flags; }
CUresult cuMemFreeHost(void* memory) { free(memory); return 0; }
CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) { return memory && bytes ? flags : 1; }
CUresult cuMemHostUnregister(void* memory) { return memory ? 0 : 1; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  memcpy((void*)(uintptr_t)to, from, bytes);
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  memcpy(to, (void*)(uintptr_t)from, bytes);
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  memcpy((void*)(uintptr_t)to, (void*)(uintptr_t)from, bytes);
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  memset((void*)(uintptr_t)to, value, bytes);
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t words, CUstream stream) {
  for (size_t i = 0; i < words; i++) ((uint32_t*)(uintptr_t)to)[i] = value;
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { *stream = HANDLE(CUstream, 2); return flags == 1 ? 0 : 1; }
CUresult cuStreamDestroy_v2(CUstream stream) { return stream == HANDLE(CUstream, 2) ? 0 : 400; }
CUresult cuStreamSynchronize(CUstream stream) { return stream == HANDLE(CUstream, 2) ? 0 : 719; }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return stream == HANDLE(CUstream, 2) && event == HANDLE(CUevent, 3) ? flags : 400;
}
CUresult cuEventCreate(CUevent* event, unsigned int flags) { *event = HANDLE(CUevent, 3); return flags; }
CUresult cuEventDestroy_v2(CUevent event) { return event == HANDLE(CUevent, 3) ? 0 : 400; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return stream == HANDLE(CUstream, 2) && event == HANDLE(CUevent, 3) ? 0 : 400;
}
CUresult cuEventSynchronize(CUevent event) { return event == HANDLE(CUevent, 3) ? 0 : 400; }
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) { *ms = 2.5f; return begin == end ? 0 : 400; }
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  *module = HANDLE(CUmodule, 4);
  return memcmp(image, "code", 4) == 0 ? 0 : 209;
}
CUresult cuModuleUnload(CUmodule module) { return module == HANDLE(CUmodule, 4) ? 0 : 400; }
CUresult cuModuleGetFunction(CUfunction* kernel, CUmodule module, const char* name) {
  *kernel = HANDLE(CUfunction, 5);
  return module == HANDLE(CUmodule, 4) && strcmp(name, "known") == 0 ? 0 : 500;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction kernel) {
  *value = attribute;
  return kernel == HANDLE(CUfunction, 5) ? 0 : 400;
}
CUresult cuFuncSetAttribute(CUfunction kernel, CUfunction_attribute attribute, int value) {
  return kernel == HANDLE(CUfunction, 5) && attribute == 8 && value == 65536 ? 0 : 1;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction kernel, int threads, size_t bytes) {
  *blocks = threads / 64;
  return kernel == HANDLE(CUfunction, 5) && bytes == 4096 ? 0 : 1;
}
// The kernel "known" takes (void* out, int32, uint32, int64, float, struct of 12 bytes) and writes it all to out.
CUresult cuLaunchKernel(CUfunction kernel, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void** params,
                        void** extra) {
  if (kernel != HANDLE(CUfunction, 5) || stream != HANDLE(CUstream, 2) || extra != NULL) return 400;
  uint32_t shape[8] = {gx, gy, gz, bx, by, bz, shared, 0};
  memcpy(record, shape, 32);
  memcpy(record + 32, params[1], 4);
  memcpy(record + 36, params[2], 4);
  memcpy(record + 40, params[3], 8);
  memcpy(record + 48, params[4], 4);
  memcpy(record + 52, params[5], 12);
  memcpy(*(void**)params[0], record, 64);
  return 0;
}
// Only launches that may overlap with the work before them.
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction kernel, void** params, void** extra) {
  if (c->numAttrs != 1 || c->attrs[0].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
      c->attrs[0].value.programmaticStreamSerializationAllowed != 1)
    return 1;
  return cuLaunchKernel(kernel, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                        c->sharedMemBytes, c->hStream, params, extra);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return stream == HANDLE(CUstream, 2) && mode == 1 ? 0 : 400;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  *graph = HANDLE(CUgraph, 6);
  return stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  *out = HANDLE(CUgraphExec, 7);
  return graph == HANDLE(CUgraph, 6) && flags == 0 ? 0 : 400;
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return graph == HANDLE(CUgraphExec, 7) && stream == HANDLE(CUstream, 2) ? 0 : 400;
}
CUresult cuGraphExecDestroy(CUgraphExec graph) { return graph == HANDLE(CUgraphExec, 7) ? 0 : 400; }
CUresult cuGraphDestroy(CUgraph graph) { return graph == HANDLE(CUgraph, 6) ? 0 : 400; }
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : NULL;
  return *text == NULL;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == 719 ? "unspecified launch failure" : NULL;
  return *text == NULL;
}
