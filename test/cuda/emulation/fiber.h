// A stack that can be left in the middle of a call and entered again: what one thread of a kernel runs on. A few
// instructions instead of ucontext, whose switch asks the operating system for the signal mask each time.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulation __attribute__((visibility("default"))) {

extern "C" {
/// Keeps the registers that a call must keep on the stack, its address in `*from`, and goes on where `to` was left.
void emulationSwitch(void** from, void* to);
}

/// What a stack ends with when it has not run yet: the first switch to it "returns" to `entry`, which must not return.
void* freshStack(void* top, void (*entry)());

/// Room for many stacks, one after another; below each lies a page that may not be touched.
class Stacks {
 public:
  ~Stacks();
  /// The top of stack `index`. Stacks are made as they are asked for.
  void* top(size_t index);

 private:
  static constexpr size_t kStackBytes = 256 * 1024, kStacksPerRoom = 64, kMostRooms = 16;
  uint8_t* rooms_[kMostRooms] = {};
};

}  // namespace emulation
