#include "emulation/block.h"

#include <cstdarg>
#include <cstdio>
#include <map>
#include <string>

#include "emulation/launch.h"

namespace emulation {

constinit thread_local Thread* current = nullptr;
constinit thread_local Block* block = nullptr;

void Block::run(Launch& owner, Dim at) {
  launch = &owner;
  block = this;
  prepare(at);
  schedule();
  current = nullptr;
  block = nullptr;
}

void Block::prepare(Dim at) {
  index = at;
  const int count = static_cast<int>(launch->shape.threads);
  threads_.resize(count);
  warps_.resize((count + kWarpLanes - 1) / kWarpLanes);
  for (Warp& warp : warps_) {
    warp.meeting = {};
    warp.live = 0;
  }
  all_ = {};
  ready_.clear();
  now_.clear();
  polling_.clear();
  sleeping_.clear();
  bulkCopies.clear();
  live_ = count;
  // As much as asked for and no more: what lies behind is poisoned too, and what is written there shows.
  dynamicRoom_.assign(launch->shape.sharedBytes + 2 * kSharedAlignment, kPoison);
  const uintptr_t room = reinterpret_cast<uintptr_t>(dynamicRoom_.data());
  dynamic_ = reinterpret_cast<unsigned char*>((room + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment);
  launch->poisonSharedVariables();
  for (int i = 0; i < count; i++) {
    Thread& thread = threads_[i];
    thread.stack = freshStack(stacks_.top(i), enterThread);
    thread.index = {static_cast<unsigned>(i), 0, 0};
    thread.lane = i % kWarpLanes;
    thread.warp = &warps_[i / kWarpLanes];
    thread.exchanges = 0;
    thread.waitsFor = nullptr;
    thread.copies.clear();
    thread.warp->live++;
    ready_.push_back(&thread);
  }
}

void Block::schedule() {
  bool idle = false;  // threads that wait for other blocks found nothing new
  while (live_ > 0) {
    const bool onlyPolling = ready_.empty();
    if (onlyPolling) {
      if (polling_.empty()) {
        launch->fail({kLaunchTimeout, launch->place(index, nullptr) + ": deadlock: " + describeWaiting()});
        return;
      }
      if (!launch->waitForOthers(idle)) return;
      std::swap(now_, polling_);
    } else {
      std::swap(now_, ready_);
    }
    const int before = live_;
    for (Thread* thread : now_) {
      current = thread;
      thread->waitsFor = nullptr;
      emulationSwitch(&scheduler_, thread->stack);
      if (launch->failed()) return;
    }
    now_.clear();
    const bool nothing = onlyPolling && ready_.empty() && live_ == before;
    if (nothing != idle) launch->countIdle(nothing ? 1 : -1);
    idle = nothing;
  }
  const unsigned char* end = dynamic_ + launch->shape.sharedBytes;
  const unsigned char* last = dynamicRoom_.data() + dynamicRoom_.size();
  for (; end < last; end++) {
    if (*end == kPoison) continue;
    launch->fail({kIllegalAddress, launch->place(index, nullptr) + ": writes beyond its dynamic shared memory"});
    return;
  }
}

void Block::enterThread() {
  block->launch->body();
  block->endThread();
}

void Block::endThread() {
  Warp& warp = *current->warp;
  live_--;
  warp.live--;
  if (all_.arrived > 0 && all_.arrived == live_) complete(all_);
  if (warp.meeting.arrived > 0 && warp.meeting.arrived == warp.live) complete(warp.meeting);
  leave();
}

void Block::leave() { emulationSwitch(&current->stack, scheduler_); }

void Block::meet(Meeting& meeting, int expected, const char* what) {
  if (meeting.arrived == 0) {
    meeting.what = what;
  } else if (meeting.what != what && strcmp(meeting.what, what) != 0) {
    fail(kLaunchFailed, "threads meet at different instructions: %s and %s", meeting.what, what);
  }
  meeting.arrived++;
  if (meeting.arrived == expected) {
    complete(meeting);
  } else {
    meeting.waiting.push_back(current);
    current->waitsFor = what;
    leave();
  }
}

void Block::complete(Meeting& meeting) {
  ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
  meeting.waiting.clear();
  meeting.arrived = 0;
  meeting.result = meeting.vote;
  meeting.vote = false;
}

void Block::meetAll(const char* what, bool vote) {
  all_.vote |= vote;
  meet(all_, live_, what);
}

void Block::meetWarp(const char* what) {
  Warp& warp = *current->warp;
  meet(warp.meeting, warp.live, what);
}

void Block::sleep(const char* what) {
  current->waitsFor = what;
  sleeping_.push_back(current);
  leave();
}

void Block::wake() {
  ready_.insert(ready_.end(), sleeping_.begin(), sleeping_.end());
  sleeping_.clear();
}

void Block::waitForOthers() {
  current->waitsFor = "other blocks";
  polling_.push_back(current);
  leave();
}

void Block::fail(Result result, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  launch->fail({result, launch->place(index, current) + ": " + text});
  while (true) leave();
}

std::string Block::describeWaiting() const {
  std::map<std::string, int> counts;
  for (const Thread& thread : threads_) {
    if (thread.waitsFor != nullptr) counts[thread.waitsFor]++;
  }
  std::string text;
  for (const auto& [what, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " threads wait at " + what;
  }
  const int ended = static_cast<int>(threads_.size()) - live_;
  return text + ", " + std::to_string(ended) + " have ended";
}

}  // namespace emulation
