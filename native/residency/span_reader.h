// Reads byte spans of files in order, ahead of a consumer, through a ring of buffers. Every thread reads a span and
// repacks it itself before it takes the next: while some wait for the disk others compute, and no one waits for a
// whole team. Large files go past the page cache (O_DIRECT, else read and dropped), so that loading weights does not
// push everything else out of memory.
//
// Bytes moved: each span once, plus up to two pages at its ends. `npm run bench:load` shows the share of a plain read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ds4 {

/// Where bytes lie: `bytes` > 0, at most the reader's bufferBytes.
struct ReadSpan {
  int file;
  int64_t offset;
  int64_t bytes;
};

/// Why a span could not be read. Offsets and sizes in bytes; `error` is an errno, 0 when the file ended too early.
struct ReadFailure {
  int file = 0;
  int64_t offset = 0;
  int64_t expected = 0;
  int64_t found = 0;
  int error = 0;
};

struct SpanReaderOptions {
  size_t bufferBytes = 0;  // of one buffer: the longest span
  int buffers = 2;         // ring size; one may be the consumer's
  int threads = 1;
  bool bypassCache = true;  // false: plain reads, the pages stay cached
  std::function<void(size_t index, const uint8_t* bytes)> repack;  // on the reading thread; must not throw
  int64_t maxReadBytes = 1 << 30;  // of one system call; tests make short reads with it
  int64_t failAtByte = -1;  // tests: the span that holds this byte of all spans together fails with EIO
};

/// Memory of the buffers; outlives the reader while JavaScript looks at it.
class Staging {
 public:
  /// Throws std::bad_alloc.
  explicit Staging(size_t bytes);
  ~Staging() { release(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  /// Gives the memory back now. Harmless when repeated.
  void release();
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

class SpanReader {
 public:
  /// Duplicates the descriptors, which may be closed afterwards, and starts reading. Throws std::bad_alloc,
  /// std::system_error (no thread, no descriptor).
  SpanReader(const std::vector<int>& descriptors, std::vector<ReadSpan> spans, const SpanReaderOptions& options);
  /// Waits for system calls under way, then frees everything but what `staging` still shares.
  ~SpanReader();
  SpanReader(const SpanReader&) = delete;
  SpanReader& operator=(const SpanReader&) = delete;

  struct View {
    size_t offset;  // within the staging memory
    size_t bytes;
  };
  /// Waits for the next span; its bytes are valid until the call after. False at the end or on failure: see
  /// `failure`. A failure comes in its turn, after all spans before it.
  bool next(View* view);
  /// What went wrong, or nullptr.
  const ReadFailure* failure() const;

  std::shared_ptr<Staging> staging() const;
  /// Whether the reads bypass the page cache by O_DIRECT now (all files).
  bool direct() const;

  /// Bytes of staging memory for these options.
  static size_t stagingBytes(size_t bufferBytes, int buffers);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ds4
