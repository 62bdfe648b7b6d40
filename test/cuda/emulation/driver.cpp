// The driver's device, context and memory. Signatures are those of cuda.h with pointers of our own as handles.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emulation/device.h"
#include "emulation/faults.h"
#include "emulation/memory.h"
#include "emulation/streams.h"

namespace emulation {

namespace {

constexpr size_t kDeviceBytes = size_t{64} << 30;

int contexts = 0;

Result writeBytes(uintptr_t to, const void* from, size_t bytes) {
  if (!isDeviceMemory(to, bytes)) return refuse(kInvalidValue, "no allocation holds the target of a copy or fill");
  memmove(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}

}  // namespace

extern "C" {

int cuInit(unsigned int) {
  catchFaults();
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : refuse(kInvalidDevice, "there is one emulated device");
}

int cuDeviceGetName(char* name, int length, int) {
  strncpy(name, "Emulated GPU", static_cast<size_t>(length));
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {  // CUdevice_attribute
    case 16: *value = static_cast<int>(multiprocessors()); break;
    case 18: *value = 0; break;         // integrated
    case 38: *value = 32 << 20; break;  // second-level cache
    case 75: *value = kComputeCapability / 10; break;
    case 76: *value = kComputeCapability % 10; break;
    case 81: *value = static_cast<int>(sharedBytesOfMultiprocessor()); break;
    case 97: *value = static_cast<int>(mostSharedBytesOfBlock()); break;
    default: return refuse(kInvalidValue, "device attribute " + std::to_string(attribute) + " is not emulated");
  }
  return kSuccess;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kDeviceBytes;
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  contexts++;
  *context = &contexts;
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  if (contexts == 0) return refuse(kInvalidContext, "the context is not retained");
  if (--contexts > 0) return kSuccess;
  clearSticky();
  freeAllDevice();
  return kSuccess;
}

int cuCtxSetCurrent(void* context) { return context == &contexts ? kSuccess : kInvalidContext; }

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = kDeviceBytes;
  return kSuccess;
}

int cuMemAlloc_v2(uintptr_t* address, size_t bytes) {
  if (bytes == 0) return refuse(kInvalidValue, "an allocation of no bytes");
  *address = allocateDevice(bytes);
  return *address == 0 ? refuse(kOutOfMemory, "out of memory") : kSuccess;
}

int cuMemFree_v2(uintptr_t address) {
  Failure failure;
  if (!freeDevice(address, failure)) return refuse(kInvalidValue, "no such allocation");
  return failure.result == kSuccess ? kSuccess : refuse(failure.result, failure.text);
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
  constexpr size_t kAlignment = 4096;
  *memory = aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *memory == nullptr ? refuse(kOutOfMemory, "out of memory") : kSuccess;
}

int cuMemFreeHost(void* memory) {
  free(memory);
  return kSuccess;
}

int cuMemHostRegister_v2(const void* memory, size_t bytes, unsigned int) {
  return memory != nullptr && bytes > 0 ? kSuccess : refuse(kInvalidValue, "no memory to register");
}

int cuMemHostUnregister(const void*) { return kSuccess; }

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { return writeBytes(to, from, bytes); });
}

int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] {
    if (!isDeviceMemory(from, bytes)) return refuse(kInvalidValue, "no allocation holds the source of a copy");
    memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  });
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] {
    if (!isDeviceMemory(from, bytes)) return refuse(kInvalidValue, "no allocation holds the source of a copy");
    return writeBytes(to, reinterpret_cast<const void*>(from), bytes);
  });
}

int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { return writeBytes(to, std::string(bytes, static_cast<char>(value)).data(), bytes); });
}

int cuMemsetD32Async(uintptr_t to, unsigned int value, size_t words, Stream* stream) {
  return enqueue(stream, [=] {
    const std::vector<unsigned int> all(words, value);
    return writeBytes(to, all.data(), words * sizeof value);
  });
}

int cuGetErrorName(int result, const char** text) {
  *text = nameOf(result);
  return *text == nullptr ? kInvalidValue : kSuccess;
}

int cuGetErrorString(int result, const char** text) {
  *text = reasonOf(result);
  return *text == nullptr ? kInvalidValue : kSuccess;
}
}

}  // namespace emulation
