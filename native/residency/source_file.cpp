#include "residency/source_file.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace ds4 {

SourceFile::SourceFile(int descriptor, bool bypassCache) : bypassCache_(bypassCache) {
  cached_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (cached_ < 0) throw std::system_error(errno, std::generic_category(), "cannot duplicate a file descriptor");
  if (!bypassCache) return;
#if defined(__linux__) && defined(O_DIRECT)
  // By descriptor, not by name: the header was read from this very file, whatever the name means by now.
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", cached_);
  uncached_ = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  direct_ = uncached_ >= 0;
  if (uncached_ < 0) posix_fadvise(cached_, 0, 0, POSIX_FADV_SEQUENTIAL);
#elif defined(F_NOCACHE)
  fcntl(cached_, F_NOCACHE, 1);
#endif
}

SourceFile::~SourceFile() {
  drop(0, 0);  // all: what `drop` left because it lay in large pages over the ends of a range, and the header
  if (uncached_ >= 0) close(uncached_);
  close(cached_);
}

int64_t SourceFile::read(uint8_t* target, size_t bytes, int64_t offset) {
  for (;;) {
    const bool direct = direct_.load(std::memory_order_relaxed);
    const ssize_t count = pread(direct ? uncached_ : cached_, target, bytes, static_cast<off_t>(offset));
    if (count >= 0) return count;
    if (errno == EINTR) continue;
    if (direct && errno == EINVAL) {
      direct_ = false;
      continue;
    }
    return -errno;
  }
}

void SourceFile::drop(int64_t offset, int64_t bytes) const {
#if defined(__linux__)
  if (bypassCache_) posix_fadvise(cached_, offset, bytes, POSIX_FADV_DONTNEED);
#else
  (void)offset;
  (void)bytes;
#endif
}

}  // namespace ds4
