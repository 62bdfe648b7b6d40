// The driver's modules, kernels and launches.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "emulation/device.h"
#include "emulation/kernel-table.h"
#include "emulation/launch.h"
#include "emulation/streams.h"

namespace emulation {

namespace {

constexpr uint32_t kImageMagic = 0xba55ed50;  // that of a fatbin; what follows its header here is the path of a library
constexpr size_t kImageHeaderBytes = 16;

struct Function {
  const Kernel* kernel;
  size_t mostSharedBytes = kFreeSharedBytes;
};

struct Module {
  KernelTable* table;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

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
  if (attribute != kMostDynamicShared || value < 0 || static_cast<size_t>(value) > mostSharedBytesOfBlock()) {
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
}

}  // namespace emulation
