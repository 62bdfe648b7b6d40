// Argument checks shared by the glue files: every value from JavaScript is checked before native code sees it.
#pragma once
#include <napi.h>

#include <cmath>
#include <string>

namespace ds4 {

/// A whole number within [min, max]; throws a RangeError with the value's name.
inline int64_t wholeNumber(Napi::Env env, const Napi::Value& value, const char* name, double min, double max) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : NAN;
  if (!(number >= min && number <= max) || number != std::floor(number)) {
    throw Napi::RangeError::New(env, std::string(name) + ": expected a whole number in " +
                                         std::to_string(static_cast<int64_t>(min)) + ".." +
                                         std::to_string(static_cast<int64_t>(max)));
  }
  return static_cast<int64_t>(number);
}

/// The same of an argument.
inline int64_t wholeNumber(const Napi::CallbackInfo& info, size_t index, const char* name, double min, double max) {
  return wholeNumber(info.Env(), info[index], name, min, max);
}

/// The same of an object's field.
inline int64_t wholeNumber(const Napi::Object& object, const char* name, double min, double max) {
  return wholeNumber(object.Env(), object.Get(name), name, min, max);
}

/// An argument that must be an object; throws a TypeError.
inline Napi::Object objectArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  const Napi::Value value = info[index];
  if (!value.IsObject()) throw Napi::TypeError::New(info.Env(), std::string(name) + ": expected an object");
  return value.As<Napi::Object>();
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
