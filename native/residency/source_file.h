// One file that spans are read from, past the page cache where the file system allows it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ds4 {

class SourceFile {
 public:
  /// Duplicates `descriptor`. Throws std::system_error.
  SourceFile(int descriptor, bool bypassCache);
  ~SourceFile();
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  /// Reads up to `bytes` at `offset`, both multiples of the page size as `target` is. Returns the count, 0 at the
  /// end of the file, or a negative errno. Falls back to cached reads for good when the file system refuses.
  int64_t read(uint8_t* target, size_t bytes, int64_t offset);
  /// Drops the range's clean pages (0 bytes: up to the end) from the page cache, unless the file may stay cached.
  void drop(int64_t offset, int64_t bytes) const;
  bool direct() const { return direct_.load(std::memory_order_relaxed); }

 private:
  const bool bypassCache_;
  int cached_ = -1;      // reads through the page cache
  int uncached_ = -1;    // O_DIRECT, or -1
  std::atomic<bool> direct_{false};
};

}  // namespace ds4
