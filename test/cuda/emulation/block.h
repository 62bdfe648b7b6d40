// One block of a launch: its threads, each a stack of its own on one thread of the operating system, and where they meet.
// A thread runs until it has to wait for others; then the next that can goes on. So a block whose threads all wait for
// something that cannot come is found at once, and runs of the same block are the same.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "emulation/fiber.h"
#include "emulation/results.h"

namespace emulation __attribute__((visibility("default"))) {

constexpr int kWarpLanes = 32, kLaneBytes = 64;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

/// An asynchronous copy into shared memory that has not come yet. `from` null: zeros.
struct PendingCopy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Thread;

/// Where threads wait until all of them have come.
struct Meeting {
  const char* what = nullptr;  // the instruction of the first to come
  int arrived = 0;
  bool vote = false, result = false;
  std::vector<Thread*> waiting;
};

struct Warp {
  Meeting meeting;
  int live = 0;
  // Two rounds: a lane may be at the next exchange while others still read this one's.
  alignas(kLaneBytes) unsigned char slots[2][kWarpLanes][kLaneBytes];
  uint32_t present[2] = {};
};

struct Thread {
  void* stack = nullptr;
  Dim index;
  int lane = 0;
  Warp* warp = nullptr;
  unsigned exchanges = 0;
  const char* waitsFor = nullptr;
  std::vector<PendingCopy> copies;  // a group ends with an entry of no bytes
};

class Launch;

/// The block that runs on this thread of the operating system.
class Block {
 public:
  /// Runs block `index` to its end, or until it or another block of the launch has failed.
  void run(Launch& launch, Dim index);

  Dim index;
  Launch* launch = nullptr;
  unsigned char* dynamicMemory() { return dynamic_; }

  void meetAll(const char* what, bool vote = false);
  bool voteResult() const { return all_.result; }
  void meetWarp(const char* what);
  /// Waits until a thread of this block calls `wake`, or for ever.
  void sleep(const char* what);
  void wake();
  /// Gives way until other blocks may have done something.
  void waitForOthers();
  /// Makes this failure the launch's and leaves the thread for good.
  [[noreturn]] void fail(Result result, const char* format, ...) __attribute__((format(printf, 3, 4)));

  /// Copies into shared memory that complete on a barrier there.
  std::vector<std::pair<const uint64_t*, PendingCopy>> bulkCopies;

 private:
  static void enterThread();
  void prepare(Dim index);
  void schedule();
  void leave();
  void meet(Meeting& meeting, int expected, const char* what);
  void complete(Meeting& meeting);
  void endThread();
  std::string describeWaiting() const;

  Stacks stacks_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Meeting all_;
  std::vector<Thread*> ready_, now_, polling_, sleeping_;
  std::vector<unsigned char> dynamicRoom_;
  unsigned char* dynamic_ = nullptr;
  void* scheduler_ = nullptr;
  int live_ = 0;
};

/// The thread of a kernel that runs now, and its block. Null outside of kernels.
extern constinit thread_local Thread* current;
extern constinit thread_local Block* block;

/// Values that all lanes of a warp gave.
template <class Value>
class Lanes {
 public:
  Lanes(const unsigned char (*slots)[kLaneBytes], uint32_t present) : slots_(slots), present_(present) {}
  Value operator[](int lane) const {
    Value value;
    memcpy(&value, slots_[lane], sizeof value);
    return value;
  }
  bool has(int lane) const { return (present_ >> lane & 1) != 0; }

 private:
  const unsigned char (*slots_)[kLaneBytes];
  uint32_t present_;
};

/// Gives the warp a value and waits for the other lanes'. Lanes that have ended take no part.
template <class Value>
Lanes<Value> exchange(const char* what, const Value& value) {
  static_assert(sizeof value <= kLaneBytes);
  Thread& self = *current;
  Warp& warp = *self.warp;
  const unsigned round = self.exchanges++ & 1;
  if (warp.meeting.arrived == 0) warp.present[round] = 0;
  warp.present[round] |= 1u << self.lane;
  memcpy(warp.slots[round][self.lane], &value, sizeof value);
  block->meetWarp(what);
  return {warp.slots[round], warp.present[round]};
}

/// `from` must be a multiple of `bytes`.
inline void checkAlignment(const void* from, size_t bytes, const char* what) {
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    block->fail(kMisalignedAddress, "misaligned address %p: %s needs a multiple of %zu", from, what, bytes);
  }
}

}  // namespace emulation
