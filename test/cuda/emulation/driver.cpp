// The driver's device, memory and kernels. Signatures are those of cuda.h with pointers of our own as handles.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "emulation/device.h"
#include "emulation/faults.h"
#include "emulation/kernel-table.h"
#include "emulation/launch.h"
#include "emulation/memory.h"
#include "emulation/streams.h"

namespace emulation {

namespace {

constexpr size_t kDeviceBytes = size_t{64} << 30;
constexpr uint32_t kImageMagic = 0xba55ed50;  // that of a fatbin; what follows its header here is the path of a library
constexpr size_t kImageHeaderBytes = 16;

int contexts = 0;

struct Function {
  const Kernel* kernel;
  size_t mostSharedBytes = kFreeSharedBytes;
};

struct Module {
  KernelTable* table;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

Result writeBytes(uintptr_t to, const void* from, size_t bytes) {
  if (!isDeviceMemory(to, bytes)) return refuse(kInvalidValue, "no allocation holds the target of a copy or fill");
  memmove(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}

Result checkShape(const Function& function, const Shape& shape, unsigned blockY, unsigned blockZ) {
  const std::string name = std::string("kernel ") + function.kernel->name;
  if (blockY != 1 || blockZ != 1) return refuse(kInvalidValue, name + ": only blocks [n, 1, 1] are emulated");
  if (shape.threads < 1 || shape.threads > kMostThreads) {
    return refuse(kInvalidValue, name + ": " + std::to_string(shape.threads) + " threads in a block");
  }
  const Dim& grid = shape.grid;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > kMostGridYZ || grid.z > kMostGridYZ) {
    return refuse(kInvalidValue, name + ": a grid of [" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " +
                                     std::to_string(grid.z) + "]");
  }
  if (shape.sharedBytes <= function.mostSharedBytes) return kSuccess;
  return refuse(kInvalidValue, name + ": " + std::to_string(shape.sharedBytes) + " bytes of shared memory, allowed are " +
                                   std::to_string(function.mostSharedBytes));
}

struct LaunchConfig {
  unsigned int gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Stream* stream;
};

}  // namespace

extern "C" {

int cuInit(unsigned int) {
  catchFaults();
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : refuse(kInvalidDevice, "there is one emulated device");
}

int cuDeviceGetName(char* name, int length, int) {
  strncpy(name, "Emulated GPU", static_cast<size_t>(length));
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {  // CUdevice_attribute
    case 16: *value = static_cast<int>(multiprocessors()); break;
    case 18: *value = 0; break;         // integrated
    case 38: *value = 32 << 20; break;  // second-level cache
    case 75: *value = kComputeCapability / 10; break;
    case 76: *value = kComputeCapability % 10; break;
    case 81: *value = static_cast<int>(kSharedBytesOfMultiprocessor); break;
    case 97: *value = static_cast<int>(kMostSharedBytes); break;
    default: return refuse(kInvalidValue, "device attribute " + std::to_string(attribute) + " is not emulated");
  }
  return kSuccess;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kDeviceBytes;
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  contexts++;
  *context = &contexts;
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  if (contexts == 0) return refuse(kInvalidContext, "the context is not retained");
  if (--contexts > 0) return kSuccess;
  clearSticky();
  freeAllDevice();
  return kSuccess;
}

int cuCtxSetCurrent(void* context) { return context == &contexts ? kSuccess : kInvalidContext; }

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = kDeviceBytes;
  return kSuccess;
}

int cuMemAlloc_v2(uintptr_t* address, size_t bytes) {
  if (bytes == 0) return refuse(kInvalidValue, "an allocation of no bytes");
  *address = allocateDevice(bytes);
  return *address == 0 ? refuse(kOutOfMemory, "out of memory") : kSuccess;
}

int cuMemFree_v2(uintptr_t address) {
  Failure failure;
  if (!freeDevice(address, failure)) return refuse(kInvalidValue, "no such allocation");
  return failure.result == kSuccess ? kSuccess : refuse(failure.result, failure.text);
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
  constexpr size_t kAlignment = 4096;
  *memory = aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *memory == nullptr ? refuse(kOutOfMemory, "out of memory") : kSuccess;
}

int cuMemFreeHost(void* memory) {
  free(memory);
  return kSuccess;
}

int cuMemHostRegister_v2(const void* memory, size_t bytes, unsigned int) {
  return memory != nullptr && bytes > 0 ? kSuccess : refuse(kInvalidValue, "no memory to register");
}

int cuMemHostUnregister(const void*) { return kSuccess; }

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { return writeBytes(to, from, bytes); });
}

int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] {
    if (!isDeviceMemory(from, bytes)) return refuse(kInvalidValue, "no allocation holds the source of a copy");
    memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  });
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] {
    if (!isDeviceMemory(from, bytes)) return refuse(kInvalidValue, "no allocation holds the source of a copy");
    return writeBytes(to, reinterpret_cast<const void*>(from), bytes);
  });
}

int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { return writeBytes(to, std::string(bytes, static_cast<char>(value)).data(), bytes); });
}

int cuMemsetD32Async(uintptr_t to, unsigned int value, size_t words, Stream* stream) {
  return enqueue(stream, [=] {
    const std::vector<unsigned int> all(words, value);
    return writeBytes(to, all.data(), words * sizeof value);
  });
}

int cuModuleLoadData(Module** module, const unsigned char* image) {
  uint32_t magic = 0;
  memcpy(&magic, image, sizeof magic);
  if (magic != kImageMagic) return refuse(kInvalidImage, "no image of emulated kernels");
  const char* path = reinterpret_cast<const char*>(image) + kImageHeaderBytes;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // stays: its threads' variables may be in use
  void* table = library == nullptr ? nullptr : dlsym(library, kTableFunction);
  if (table == nullptr) return refuse(kInvalidImage, std::string("no emulated kernels: ") + dlerror());
  KernelTable* kernels = reinterpret_cast<TableFunction>(table)();
  for (Kernel& kernel : kernels->kernels) kernel.module = &kernels->file;
  *module = new Module{kernels, {}};
  return kSuccess;
}

int cuModuleUnload(Module* module) {
  delete module;
  return kSuccess;
}

int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  for (const Kernel& kernel : module->table->kernels) {
    if (strcmp(kernel.name, name) != 0) continue;
    std::unique_ptr<Function>& place = module->functions[name];
    if (place == nullptr) place = std::make_unique<Function>(Function{&kernel});
    *function = place.get();
    return kSuccess;
  }
  return refuse(kNotFound, std::string("no kernel ") + name);
}

int cuFuncGetAttribute(int* value, int attribute, const Function*) {
  switch (attribute) {  // CUfunction_attribute
    case 0: *value = static_cast<int>(kMostThreads); break;
    case 5: *value = kComputeCapability; break;  // of its code
    default: *value = 0;                         // registers, local and shared memory: not known
  }
  return kSuccess;
}

int cuFuncSetAttribute(Function* function, int attribute, int value) {
  constexpr int kMostDynamicShared = 8;
  if (attribute != kMostDynamicShared || value < 0 || static_cast<size_t>(value) > kMostSharedBytes) {
    return refuse(kInvalidValue, "function attribute " + std::to_string(attribute) + " = " + std::to_string(value));
  }
  function->mostSharedBytes = static_cast<size_t>(value);
  return kSuccess;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const Function*, int threads, size_t sharedBytes) {
  *blocks = static_cast<int>(residentBlocks(static_cast<unsigned>(threads), sharedBytes));
  return kSuccess;
}

int cuLaunchKernel(Function* function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,
                   unsigned blockZ, unsigned sharedBytes, Stream* stream, void** parameters, void**) {
  const Shape shape{{gridX, gridY, gridZ}, blockX, sharedBytes};
  if (const Result result = checkShape(*function, shape, blockY, blockZ); result != kSuccess) return result;
  return enqueue(stream, [kernel = function->kernel, shape, call = function->kernel->bind(parameters)] {
    Launch launch(*kernel, shape, call);
    setSticky(launch.run());
    return stickyResult();
  });
}

int cuLaunchKernelEx(const LaunchConfig* c, Function* function, void** parameters, void** extra) {
  return cuLaunchKernel(function, c->gridX, c->gridY, c->gridZ, c->blockX, c->blockY, c->blockZ, c->sharedBytes, c->stream,
                        parameters, extra);
}

int cuGetErrorName(int result, const char** text) {
  *text = nameOf(result);
  return *text == nullptr ? kInvalidValue : kSuccess;
}

int cuGetErrorString(int result, const char** text) {
  *text = reasonOf(result);
  return *text == nullptr ? kInvalidValue : kSuccess;
}
}

}  // namespace emulation
