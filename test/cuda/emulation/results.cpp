#include "emulation/results.h"

#include <utility>

namespace emulation {

namespace {
Failure last, sticky;
}

Result refuse(Result result, std::string text) {
  last = {result, std::move(text)};
  return result;
}

const char* reasonOf(int result) {
  if (sticky.result == result && result != kSuccess) return sticky.text.c_str();
  return last.result == result && result != kSuccess ? last.text.c_str() : nullptr;
}

const char* nameOf(int result) {
  switch (result) {
    case kSuccess: return "CUDA_SUCCESS";
    case kInvalidValue: return "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory: return "CUDA_ERROR_OUT_OF_MEMORY";
    case kInvalidDevice: return "CUDA_ERROR_INVALID_DEVICE";
    case kInvalidImage: return "CUDA_ERROR_INVALID_IMAGE";
    case kInvalidContext: return "CUDA_ERROR_INVALID_CONTEXT";
    case kInvalidHandle: return "CUDA_ERROR_INVALID_HANDLE";
    case kNotFound: return "CUDA_ERROR_NOT_FOUND";
    case kIllegalAddress: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case kLaunchTimeout: return "CUDA_ERROR_LAUNCH_TIMEOUT";
    case kMisalignedAddress: return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case kLaunchFailed: return "CUDA_ERROR_LAUNCH_FAILED";
    case kStreamCaptureInvalidated: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    default: return nullptr;
  }
}

Result stickyResult() { return sticky.result; }
void setSticky(const Failure& failure) { sticky = failure; }
void clearSticky() { sticky = {}; }

}  // namespace emulation
