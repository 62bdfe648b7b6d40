// What a kernel file gives the driver: its kernels by name, each as a function that takes its parameters from where
// cuLaunchKernel's callers put them, and where its `__shared__` variables of the thread at hand lie.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ds4::cuda {}  // so that every kernel file can be asked for it

namespace emulation __attribute__((visibility("default"))) {

struct SharedVariables {
  void* data;
  size_t bytes;
};

/// A loaded kernel file. `__shared__` variables are thread_local: a block runs on one thread of the operating system.
struct KernelFile {
  void* (*anchor)();  // of any thread_local variable of the file: makes them all, for this thread

  SharedVariables sharedVariables() const;
};

struct Kernel {
  const char* name;
  std::function<std::function<void()>(void**)> bind;  // copies the parameters
  const KernelFile* module = nullptr;
};

struct KernelTable {
  KernelFile file;
  std::vector<Kernel> kernels;
};

template <class... Parameters>
Kernel makeKernel(const char* name, void (*function)(Parameters...)) {
  return {name, [function](void** parameters) -> std::function<void()> {
            size_t at = 0;
            // Braces: in the order of the parameters.
            const std::tuple<Parameters...> values{*static_cast<std::remove_cv_t<Parameters>*>(parameters[at++])...};
            return [function, values] { std::apply(function, values); };
          }};
}

/// The function that every kernel file exports under this name.
constexpr const char* kTableFunction = "ds4EmulatedKernels";
using TableFunction = KernelTable* (*)();

}  // namespace emulation
