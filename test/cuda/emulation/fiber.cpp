#include "emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#if defined(__x86_64__)
asm(R"(
.text
.globl emulationSwitch
.hidden emulationSwitch
.type emulationSwitch, @function
emulationSwitch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulationSwitch, .-emulationSwitch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulationSwitch
.hidden emulationSwitch
.type emulationSwitch, %function
emulationSwitch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emulationSwitch, .-emulationSwitch
)");
#else
#error "the emulation of CUDA knows how to switch stacks on x86-64 and 64-bit ARM only"
#endif

namespace emulation {

void* freshStack(void* top, void (*entry)()) {
#if defined(__x86_64__)
  // Six registers, the address that `ret` takes, and one word so that the stack is aligned as after a call.
  constexpr size_t kWords = 8, kReturn = 6;
#else
  constexpr size_t kWords = 20, kReturn = 11;
#endif
  uint64_t* stack = static_cast<uint64_t*>(top) - kWords;
  memset(stack, 0, kWords * sizeof *stack);
  stack[kReturn] = reinterpret_cast<uint64_t>(entry);
  return stack;
}

Stacks::~Stacks() {
  for (uint8_t* room : rooms_) {
    if (room != nullptr) munmap(room, kStacksPerRoom * kStackBytes);
  }
}

void* Stacks::top(size_t index) {
  uint8_t*& room = rooms_[index / kStacksPerRoom];
  if (room == nullptr) {
    void* memory = mmap(nullptr, kStacksPerRoom * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    room = static_cast<uint8_t*>(memory);
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < kStacksPerRoom; i++) mprotect(room + i * kStackBytes, page, PROT_NONE);
  }
  return room + (index % kStacksPerRoom + 1) * kStackBytes;
}

}  // namespace emulation
