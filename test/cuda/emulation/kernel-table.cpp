#include "emulation/kernel-table.h"

#include <link.h>

#include <cstdint>
#include <map>

namespace emulation {

namespace {

struct Search {
  uintptr_t inside;
  SharedVariables found;
};

int compareModule(dl_phdr_info* info, size_t, void* context) {
  Search& search = *static_cast<Search*>(context);
  if (info->dlpi_tls_data == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
    if (search.inside < begin || search.inside >= begin + segment.p_memsz) continue;
    search.found = {info->dlpi_tls_data, segment.p_memsz};
    return 1;
  }
  return 0;
}

}  // namespace

SharedVariables KernelFile::sharedVariables() const {
  thread_local std::map<const KernelFile*, SharedVariables> known;
  const auto at = known.find(this);
  if (at != known.end()) return at->second;
  Search search{reinterpret_cast<uintptr_t>(anchor()), {nullptr, 0}};
  dl_iterate_phdr(compareModule, &search);
  return known[this] = search.found;
}

}  // namespace emulation
