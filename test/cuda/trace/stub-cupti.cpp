// A libcupti for the test of kernel-trace.cpp: delivers records when it is flushed, as many as STUB_RECORDS says, in pieces
// of a buffer each. STUB_VERSION and STUB_ENABLE_RESULT let it be another version's, or refuse.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

using KernelRecord = DS4_KERNEL_RECORD;

constexpr int kRecordsPerBuffer = 5;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
bool enabled = false;

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/** Kernel `i` runs from 1000 * i to 1000 * i + 1500 ns: each starts before the one before has ended. */
KernelRecord recordOf(int i) {
  static const char* const names[] = {"first", "second<int, 3>"};
  KernelRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = 1796185349112790756ull + 1000ull * i;
  record.end = record.start + 1500;
  record.name = names[i % 2];
  record.gridX = 100 + i;
  record.gridY = 2;
  record.gridZ = 3;
  record.blockX = 256;
  record.blockY = 4;
  record.blockZ = 5;
  record.registersPerThread = 48;
  record.staticSharedMemory = 16;
  record.dynamicSharedMemory = 27904;
  record.graphNodeId = 0x100000000ull + i;
  return record;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  *version = number("STUB_VERSION", CUPTI_API_VERSION);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_STUB";
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc onRequest,
                                                    CUpti_BuffersCallbackCompleteFunc onComplete) {
  request = onRequest;
  complete = onComplete;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  enabled = request != nullptr && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  return static_cast<CUptiResult>(number("STUB_ENABLE_RESULT", enabled ? 0 : 1));
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  if (!enabled || flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_ERROR_INVALID_PARAMETER;
  const int count = number("STUB_RECORDS", 0);
  for (int done = 0; done < count;) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0;
    size_t mostRecords = 0;
    request(&buffer, &bytes, &mostRecords);
    if (buffer == nullptr || bytes < (kRecordsPerBuffer + 1) * sizeof(KernelRecord)) return CUPTI_ERROR_OUT_OF_MEMORY;
    auto* records = reinterpret_cast<KernelRecord*>(buffer);
    // One that is no kernel comes first.
    KernelRecord other = recordOf(0);
    other.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    int n = 0;
    new (records + n++) KernelRecord(other);
    while (n <= kRecordsPerBuffer && done < count) new (records + n++) KernelRecord(recordOf(done++));
    complete(nullptr, 0, buffer, bytes, n * sizeof(KernelRecord));
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBytes, CUpti_Activity** record) {
  const auto* last = reinterpret_cast<KernelRecord*>(*record);
  const auto* first = reinterpret_cast<KernelRecord*>(buffer);
  const size_t index = last == nullptr ? 0 : static_cast<size_t>(last - first) + 1;
  if ((index + 1) * sizeof(KernelRecord) > validBytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(buffer + index * sizeof(KernelRecord));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = number("STUB_DROPPED", 0);
  return CUPTI_SUCCESS;
}

}  // extern "C"
