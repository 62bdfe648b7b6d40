// Argument checks shared by the glue files: every value from JavaScript is checked before native code sees it.
#pragma once
#include <napi.h>

#include <cmath>
#include <string>

namespace ds4 {

/// A whole number within [min, max]; throws a RangeError naming the argument.
inline int64_t wholeNumber(const Napi::CallbackInfo& info, size_t index, const char* name, double min, double max) {
  const Napi::Value value = info[index];
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : NAN;
  if (!(number >= min && number <= max) || number != std::floor(number)) {
    throw Napi::RangeError::New(info.Env(), std::string(name) + ": expected a whole number in " +
                                                std::to_string(static_cast<int64_t>(min)) + ".." +
                                                std::to_string(static_cast<int64_t>(max)));
  }
  return static_cast<int64_t>(number);
}

/// The elements of a typed array of the given type with at least `minLength` of them; throws a TypeError.
template <class Array>
Array typedArray(const Napi::CallbackInfo& info, size_t index, const char* name, napi_typedarray_type type,
                 size_t minLength) {
  const Napi::Value value = info[index];
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type) {
    throw Napi::TypeError::New(info.Env(), std::string(name) + ": a typed array of another kind was expected");
  }
  Array array = value.As<Array>();
  if (array.ElementLength() < minLength) {
    throw Napi::RangeError::New(info.Env(), std::string(name) + ": expected at least " + std::to_string(minLength) +
                                                " elements, got " + std::to_string(array.ElementLength()));
  }
  return array;
}

}  // namespace ds4
