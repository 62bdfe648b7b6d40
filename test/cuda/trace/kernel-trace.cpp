// The start and end of every kernel on the device, also of those inside a replayed graph, as CUPTI's activity records tell
// them. libcuda loads this library when a process initializes CUDA with CUDA_INJECTION64_PATH naming it; nothing in the
// process has to know of it. The records go to a CSV file when the process ends. Built and used by scripts/cuda-trace.ts.
//
// Environment: DS4_CUPTI, the path of libcupti; DS4_TRACE_CSV, where the records go; DS4_TRACE_RECORDS, how many of the
// last ones are kept. The file exists from the moment that tracing runs; its last line, "# end ...", is written at exit.
// Where tracing cannot run, one line on stderr says why, no file appears and the process goes on.
#include <cupti.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

// The layout of a record belongs to the headers' version: whoever compiles this names the newest one of cupti_activity.h.
#ifndef DS4_KERNEL_RECORD
#error "compile with -DDS4_KERNEL_RECORD=CUpti_ActivityKernelN, N being the newest in cupti_activity.h"
#endif

namespace {

using KernelRecord = DS4_KERNEL_RECORD;

constexpr size_t kBufferBytes = size_t{1} << 20;
// Buffers that CUPTI may hold at a time; it counts what it drops beyond them.
constexpr int kMostBuffers = 128;
constexpr size_t kDefaultRecords = size_t{1} << 17;
constexpr size_t kMostRecords = size_t{1} << 22;
// Distinct kernels with a name of their own; a program has a few hundred at most.
constexpr size_t kMostNames = 4096;

/** What is kept of a record. */
struct Launch {
  uint64_t start;
  uint64_t end;
  uint64_t graphNode;
  uint32_t name;
  int32_t grid[3];
  int32_t block[3];
  int32_t registers;
  int32_t staticShared;
  int32_t dynamicShared;
};

/** The calls into CUPTI. */
struct Cupti {
  decltype(&cuptiGetVersion) getVersion;
  decltype(&cuptiGetResultString) getResultString;
  decltype(&cuptiActivityRegisterCallbacks) registerCallbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityFlushAll) flushAll;
  decltype(&cuptiActivityGetNextRecord) getNextRecord;
  decltype(&cuptiActivityGetNumDroppedRecords) getDropped;
};

/** All state. Never destroyed: CUPTI's thread may call while the process ends. */
struct Trace {
  Cupti cupti{};
  std::FILE* file = nullptr;
  std::mutex mutex;
  // Below: under the mutex.
  std::vector<Launch> ring;
  size_t capacity = 0;
  uint64_t seen = 0;
  uint64_t dropped = 0;
  uint64_t untimed = 0;
  int buffers = 0;
  std::vector<std::string> names;
  std::unordered_map<std::string, uint32_t> nameIndexes;
};

Trace& trace() {
  static Trace* const instance = new Trace;
  return *instance;
}

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::fputs("kernel trace: ", stderr);
  std::vfprintf(stderr, format, args);
  std::fputc('\n', stderr);
  va_end(args);
}

/** Versions count one by one up to CUDA 12; from 13 on they are 10000 * major + 100 * minor + patch. */
uint32_t layoutVersion(uint32_t version) { return version < 10000 ? version : version / 100; }

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) say("%s has no %s: DS4_CUPTI must name NVIDIA's libcupti", std::getenv("DS4_CUPTI"), name);
  return function != nullptr;
}

/** Opens CUPTI and checks that its records have the layout that was compiled in. */
bool openCupti(Cupti& cupti) {
  const char* path = std::getenv("DS4_CUPTI");
  if (path == nullptr || *path == '\0') {
    say("DS4_CUPTI does not name libcupti: start through npm run cuda:trace");
    return false;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    say("CUPTI does not load: %s; it comes with the CUDA toolkit (extras/CUPTI) or the package nvidia-cuda-cupti",
        dlerror());
    return false;
  }
  const bool all = find(library, "cuptiGetVersion", cupti.getVersion) &&
                   find(library, "cuptiGetResultString", cupti.getResultString) &&
                   find(library, "cuptiActivityRegisterCallbacks", cupti.registerCallbacks) &&
                   find(library, "cuptiActivityEnable", cupti.enable) &&
                   find(library, "cuptiActivityFlushAll", cupti.flushAll) &&
                   find(library, "cuptiActivityGetNextRecord", cupti.getNextRecord) &&
                   find(library, "cuptiActivityGetNumDroppedRecords", cupti.getDropped);
  if (!all) return false;
  uint32_t version = 0;
  if (cupti.getVersion(&version) != CUPTI_SUCCESS ||
      layoutVersion(version) != layoutVersion(CUPTI_API_VERSION)) {
    say("%s is version %u, the headers that this was compiled with are %u: records may have another layout; "
        "use headers and library of one CUDA toolkit",
        path, version, static_cast<unsigned>(CUPTI_API_VERSION));
    return false;
  }
  return true;
}

bool check(const Cupti& cupti, const char* call, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return true;
  const char* text = nullptr;
  if (cupti.getResultString(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown result";
  say("%s: %s (%d); is another profiler attached, and is the driver as new as this CUPTI (version %u)?", call, text,
      static_cast<int>(result), static_cast<unsigned>(CUPTI_API_VERSION));
  return false;
}

void CUPTIAPI giveBuffer(uint8_t** buffer, size_t* bytes, size_t* mostRecords) {
  Trace& t = trace();
  *buffer = nullptr;
  *bytes = 0;
  *mostRecords = 0;
  const std::lock_guard lock(t.mutex);
  if (t.buffers >= kMostBuffers) return;
  // CUPTI wants 8 bytes; aligned_alloc's size is a multiple.
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  if (*buffer == nullptr) return;
  *bytes = kBufferBytes;
  t.buffers++;
}

uint32_t nameIndex(Trace& t, const char* text) {
  std::string name = text == nullptr ? "unknown" : text;
  // A name of a template may hold what separates fields.
  for (char& c : name) {
    if (c == ',' || c == '\n' || c == '\r' || c == '"') c = ' ';
  }
  const auto found = t.nameIndexes.find(name);
  if (found != t.nameIndexes.end()) return found->second;
  if (t.names.size() >= kMostNames) return kMostNames - 1;
  const auto index = static_cast<uint32_t>(t.names.size());
  t.names.push_back(t.names.size() + 1 == kMostNames ? "others" : name);
  t.nameIndexes.emplace(std::move(name), index);
  return index;
}

void keep(Trace& t, const KernelRecord& record) {
  if (record.start == 0 || record.end < record.start) {
    t.untimed++;
    return;
  }
  const Launch launch{record.start,
                      record.end,
                      record.graphNodeId,
                      nameIndex(t, record.name),
                      {record.gridX, record.gridY, record.gridZ},
                      {record.blockX, record.blockY, record.blockZ},
                      record.registersPerThread,
                      record.staticSharedMemory,
                      record.dynamicSharedMemory};
  if (t.ring.size() < t.capacity) {
    t.ring.push_back(launch);
  } else {
    t.ring[t.seen % t.capacity] = launch;
  }
  t.seen++;
}

void CUPTIAPI takeBuffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t validBytes) {
  Trace& t = trace();
  const std::lock_guard lock(t.mutex);
  CUpti_Activity* record = nullptr;
  while (validBytes > 0 && t.cupti.getNextRecord(buffer, validBytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    try {
      keep(t, *reinterpret_cast<const KernelRecord*>(record));
    } catch (const std::bad_alloc&) {
      t.dropped++;
    }
  }
  size_t dropped = 0;
  if (t.cupti.getDropped(context, stream, &dropped) == CUPTI_SUCCESS) t.dropped += dropped;
  if (buffer != nullptr) t.buffers--;
  std::free(buffer);
}

void writeLaunch(std::FILE* file, const Trace& t, const Launch& l) {
  std::fprintf(file, "%llu,%llu,%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%llu\n", static_cast<unsigned long long>(l.start),
               static_cast<unsigned long long>(l.end), t.names[l.name].c_str(), l.grid[0], l.grid[1], l.grid[2],
               l.block[0], l.block[1], l.block[2], l.registers, l.staticShared, l.dynamicShared,
               static_cast<unsigned long long>(l.graphNode));
}

void atProcessEnd() {
  Trace& t = trace();
  // Forced: also buffers that are not full.
  check(t.cupti, "cuptiActivityFlushAll", t.cupti.flushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  const std::lock_guard lock(t.mutex);
  const size_t kept = t.ring.size();
  const size_t first = t.seen > kept ? t.seen % t.capacity : 0;
  for (size_t i = 0; i < kept; i++) writeLaunch(t.file, t, t.ring[(first + i) % kept]);
  std::fprintf(t.file, "# end kept %zu seen %llu dropped %llu untimed %llu\n", kept,
               static_cast<unsigned long long>(t.seen), static_cast<unsigned long long>(t.dropped),
               static_cast<unsigned long long>(t.untimed));
  const bool bad = std::ferror(t.file) != 0;
  if (std::fclose(t.file) != 0 || bad) say("%s cannot be written: is the disk full?", std::getenv("DS4_TRACE_CSV"));
}

/** Zero when DS4_TRACE_RECORDS is no count. */
size_t recordCapacity() {
  const char* text = std::getenv("DS4_TRACE_RECORDS");
  if (text == nullptr) return kDefaultRecords;
  char* end = nullptr;
  const unsigned long long count = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || count < 1 || count > kMostRecords) {
    say("DS4_TRACE_RECORDS: expected 1..%zu, got \"%s\"", kMostRecords, text);
    return 0;
  }
  return count;
}

bool startCupti(const Cupti& cupti) {
  return check(cupti, "cuptiActivityRegisterCallbacks", cupti.registerCallbacks(giveBuffer, takeBuffer)) &&
         check(cupti, "cuptiActivityEnable", cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
}

void start() {
  Trace& t = trace();
  const char* path = std::getenv("DS4_TRACE_CSV");
  if (path == nullptr || *path == '\0') return say("DS4_TRACE_CSV names no file");
  t.capacity = recordCapacity();
  if (t.capacity == 0 || !openCupti(t.cupti)) return;
  t.ring.reserve(t.capacity);
  t.file = std::fopen(path, "w");
  if (t.file == nullptr) return say("%s: %s", path, std::strerror(errno));
  std::fputs("start_ns,end_ns,name,grid_x,grid_y,grid_z,block_x,block_y,block_z,registers,static_shared,"
             "dynamic_shared,graph_node\n",
             t.file);
  std::fflush(t.file);
  if (!startCupti(t.cupti)) {
    std::fclose(t.file);
    std::remove(path);
    return;
  }
  // After CUPTI's own exit handlers are in place, so that this one runs before them.
  std::atexit(atProcessEnd);
}

}  // namespace

/** Called by libcuda inside cuInit. */
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      start();
    } catch (...) {
      say("no memory for the trace");
    }
  });
  return 1;
}
