#include "residency/cached_bytes.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ds4 {

namespace {

constexpr int64_t kWindow = int64_t{1} << 30;  // mapped at a time

#if defined(__APPLE__)
using Residence = char;
#else
using Residence = unsigned char;
#endif

}  // namespace

int64_t cachedBytes(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return -errno;
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<Residence> pages;
  int64_t cached = 0;
  for (int64_t begin = 0; begin < status.st_size; begin += kWindow) {
    const int64_t bytes = std::min<int64_t>(kWindow, status.st_size - begin);
    void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, descriptor, begin);
    if (mapped == MAP_FAILED) return -errno;
    pages.assign(static_cast<size_t>((bytes + page - 1) / page), 0);
    const int result = mincore(mapped, static_cast<size_t>(bytes), pages.data());
    const int error = errno;
    munmap(mapped, static_cast<size_t>(bytes));
    if (result != 0) return -error;
    for (Residence state : pages) cached += state & 1;
  }
  return cached * page;
}

}  // namespace ds4
