// Results of driver calls, and what went wrong in words. A kernel that fails takes the context down, as on a device: every
// later call that works on the stream gives the same result until the context is released.
#pragma once
#include <string>

namespace emulation __attribute__((visibility("default"))) {

/// CUresult.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
  kStreamCaptureInvalidated = 901,
};

/// A result and its reason.
struct Failure {
  Result result = kSuccess;
  std::string text;
};

/// Remembers the reason for cuGetErrorString; the result.
Result refuse(Result result, std::string text);
/// The last reason for a result, or null.
const char* reasonOf(int result);
/// The name that cuda.h gives a result, or null.
const char* nameOf(int result);

/// What took the context down; kSuccess: nothing.
Result stickyResult();
void setSticky(const Failure& failure);
void clearSticky();

}  // namespace emulation
