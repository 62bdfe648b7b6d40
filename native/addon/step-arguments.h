// Reads the arguments of a step in order. Sizes come first in every step, so that each array can be checked against
// what the step will touch before native code runs.
#pragma once
#include "addon/arguments.h"
#include "addon/matrix-glue.h"

namespace ds4 {

class StepArguments {
 public:
  explicit StepArguments(const Napi::CallbackInfo& info) : info_(info) {}

  Workspace& workspace() { return WorkspaceObject::unwrap(info_.Env(), info_[next_++]); }
  const PackedMatrix& matrix() { return WeightMatrixObject::unwrap(info_.Env(), info_[next_++]); }
  int64_t count(const char* name, double min = 0, double max = 1 << 30) {
    return wholeNumber(info_, next_++, name, min, max);
  }

  float real(const char* name) {
    const Napi::Value value = info_[next_++];
    if (!value.IsNumber()) throw Napi::TypeError::New(info_.Env(), std::string(name) + ": expected a number");
    return value.As<Napi::Number>().FloatValue();
  }

  bool flag(const char* name) {
    const Napi::Value value = info_[next_++];
    if (!value.IsBoolean()) throw Napi::TypeError::New(info_.Env(), std::string(name) + ": expected true or false");
    return value.As<Napi::Boolean>().Value();
  }

  /// At least `length` floats.
  float* floats(const char* name, int64_t length) {
    return typedArray<Napi::Float32Array>(info_, next_++, name, napi_float32_array, length).Data();
  }

  int32_t* ints(const char* name, int64_t length) {
    return typedArray<Napi::Int32Array>(info_, next_++, name, napi_int32_array, length).Data();
  }

  /// Null stays null.
  float* optionalFloats(const char* name, int64_t length) {
    return skipNull() ? nullptr : floats(name, length);
  }

  int32_t* optionalInts(const char* name, int64_t length) { return skipNull() ? nullptr : ints(name, length); }

  Napi::Array list(const char* name) {
    const Napi::Value value = info_[next_++];
    if (!value.IsArray()) throw Napi::TypeError::New(info_.Env(), std::string(name) + ": expected an array");
    return value.As<Napi::Array>();
  }

  /// A RangeError unless `holds`.
  void require(bool holds, const char* message) {
    if (!holds) throw Napi::RangeError::New(info_.Env(), message);
  }

 private:
  bool skipNull() {
    if (!info_[next_].IsNull()) return false;
    next_++;
    return true;
  }

  const Napi::CallbackInfo& info_;
  size_t next_ = 0;
};

}  // namespace ds4
