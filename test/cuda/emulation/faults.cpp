#include "emulation/faults.h"

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "emulation/block.h"

namespace emulation {

namespace {

struct sigaction before[2];

struct sigaction& handlerBefore(int signal) { return before[signal == SIGBUS ? 1 : 0]; }

void onFault(int signal, siginfo_t* info, void* context) {
  // The fault comes from the kernel's own instruction, so its stack can be left as in any other place.
  if (current != nullptr) block->fail(kIllegalAddress, "illegal address %p", info->si_addr);
  const struct sigaction& next = handlerBefore(signal);
  if ((next.sa_flags & SA_SIGINFO) != 0) next.sa_sigaction(signal, info, context);
  else if (next.sa_handler == SIG_DFL) sigaction(signal, &next, nullptr);  // the instruction comes again
  else if (next.sa_handler != SIG_IGN) next.sa_handler(signal);
}

/// Where gcc's and clang's -fsanitize puts what it knows of a place in the source.
struct SourcePlace {
  const char* file;
  uint32_t line, column;
};

const char* baseName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

}  // namespace

void catchFaults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction own = {};
    own.sa_sigaction = onFault;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &own, &handlerBefore(signal));
  });
}

void reportFaultsOfThisThread() {
  constexpr size_t kBytes = 64 * 1024;
  stack_t stack = {};
  stack.ss_sp = malloc(kBytes);  // as long as the thread: for ever
  stack.ss_size = kBytes;
  sigaltstack(&stack, nullptr);
}

extern "C" {

// What code compiled with -fsanitize=alignment,bounds calls; the names and arguments are the compilers'.

void __ubsan_handle_type_mismatch_v1(const SourcePlace* at, uintptr_t address) {
  if (current == nullptr) return;
  block->fail(kMisalignedAddress, "misaligned address %p at %s:%u", reinterpret_cast<void*>(address), baseName(at->file),
              at->line);
}

void __ubsan_handle_out_of_bounds(const SourcePlace* at, uintptr_t index) {
  if (current == nullptr) return;
  block->fail(kIllegalAddress, "index %lld beyond its array at %s:%u", static_cast<long long>(index), baseName(at->file),
              at->line);
}
}

}  // namespace emulation
