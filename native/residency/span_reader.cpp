#include "residency/span_reader.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "residency/source_file.h"

namespace ds4 {

namespace {

// Spans begin anywhere but reads begin and end on pages: room for the largest page in use (64 KiB, ARM64).
constexpr size_t kSlackBytes = 64 << 10;

size_t slotBytes(size_t bufferBytes) {
  return (bufferBytes + kSlackBytes - 1) / kSlackBytes * kSlackBytes + kSlackBytes;
}

}  // namespace

Staging::Staging(size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(memory);
}

void Staging::release() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
}

struct SpanReader::State {
  std::vector<std::unique_ptr<SourceFile>> files;
  std::vector<ReadSpan> spans;
  std::vector<int64_t> begins;  // of each span within all spans' bytes
  SpanReaderOptions options;
  std::shared_ptr<Staging> staging;
  size_t slot = 0;
  int64_t page = 4096;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable filled, freed;
  // Guarded by `mutex`. Span i uses slot i % buffers.
  size_t claimed = 0;   // spans that threads took on
  size_t consumed = 0;  // spans the consumer is done with
  size_t handed = 0;    // spans given to the consumer
  std::vector<char> ready;
  bool stopping = false;
  size_t failedSpan = SIZE_MAX;  // the first one
  ReadFailure failure;
  bool failed = false;  // the consumer has reached it

  int64_t alignDown(int64_t value) const { return value / page * page; }

  /// True when all of the span's bytes are in its slot.
  bool fill(size_t index, ReadFailure* failure) {
    const ReadSpan& span = spans[index];
    SourceFile& file = *files[span.file];
    uint8_t* target = staging->data() + slot * (index % options.buffers);
    const int64_t begin = alignDown(span.offset);
    const int64_t end = alignDown(span.offset + span.bytes + page - 1);
    const int64_t needed = span.offset + span.bytes - begin;
    const auto fail = [&](int64_t found, int error) {
      *failure = {span.file, span.offset, span.bytes, std::max<int64_t>(0, begin + found - span.offset), error};
      return false;
    };
    if (options.failAtByte >= begins[index] && options.failAtByte < begins[index] + span.bytes) return fail(0, EIO);
    int64_t have = 0;
    while (have < needed) {
      const int64_t from = alignDown(have);  // after a read that ended within a page, from its start again
      const int64_t length = std::min(end - begin - from, std::max(page, alignDown(options.maxReadBytes)));
      const int64_t count = file.read(target + from, static_cast<size_t>(length), begin + from);
      if (count < 0) return fail(have, static_cast<int>(-count));
      if (from + count <= have) return fail(have, 0);
      have = from + count;
    }
    file.drop(begin, end - begin);
    if (options.repack) options.repack(index, target + (span.offset - begin));
    return true;
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      freed.wait(lock, [&] {
        return stopping || claimed >= spans.size() || claimed < consumed + static_cast<size_t>(options.buffers);
      });
      if (stopping || claimed >= spans.size()) return;
      const size_t index = claimed++;
      lock.unlock();
      ReadFailure why;
      const bool good = fill(index, &why);
      lock.lock();
      if (good) {
        ready[index] = 1;
      } else {
        if (index < failedSpan) {
          failedSpan = index;
          failure = why;
        }
        stopping = true;  // spans before this one are claimed already and will be finished
      }
      filled.notify_all();
    }
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    freed.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

size_t SpanReader::stagingBytes(size_t bufferBytes, int buffers) { return slotBytes(bufferBytes) * buffers; }

SpanReader::SpanReader(const std::vector<int>& descriptors, std::vector<ReadSpan> spans,
                       const SpanReaderOptions& options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.options = options;
  state.spans = std::move(spans);
  state.page = std::max<int64_t>(sysconf(_SC_PAGESIZE), 4096);
  state.slot = slotBytes(options.bufferBytes);
  for (int descriptor : descriptors) state.files.push_back(std::make_unique<SourceFile>(descriptor, options.bypassCache));
  state.ready.assign(state.spans.size(), 0);
  int64_t begin = 0;
  for (const ReadSpan& span : state.spans) {
    state.begins.push_back(begin);
    begin += span.bytes;
  }
  state.staging = std::make_shared<Staging>(stagingBytes(options.bufferBytes, options.buffers));
  try {
    for (int i = 0; i < options.threads; i++) state.threads.emplace_back([&state] { state.work(); });
  } catch (...) {
    state.stop();
    throw;
  }
}

SpanReader::~SpanReader() { state_->stop(); }

bool SpanReader::next(View* view) {
  State& state = *state_;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.consumed = state.handed;
  state.freed.notify_all();
  const size_t index = state.handed;
  if (index >= state.spans.size() || state.failed) return false;
  state.filled.wait(lock, [&] { return state.ready[index] || state.failedSpan <= index; });
  if (!state.ready[index]) {
    state.failed = true;
    return false;
  }
  state.handed++;
  const ReadSpan& span = state.spans[index];
  const size_t within = static_cast<size_t>(span.offset - state.alignDown(span.offset));
  *view = {state.slot * (index % state.options.buffers) + within, static_cast<size_t>(span.bytes)};
  return true;
}

const ReadFailure* SpanReader::failure() const { return state_->failed ? &state_->failure : nullptr; }

std::shared_ptr<Staging> SpanReader::staging() const { return state_->staging; }

bool SpanReader::direct() const {
  return std::all_of(state_->files.begin(), state_->files.end(), [](const auto& file) { return file->direct(); });
}

}  // namespace ds4
