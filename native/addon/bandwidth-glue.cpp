// measureReadBandwidth(bytes, threads, rounds): bytes per second, synchronous (a second or two).
#include <napi.h>

#include <new>

#include "addon/register.h"
#include "common/bandwidth.h"

namespace ds4 {

static Napi::Value measure(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  if (info.Length() != 3 || !info[0].IsNumber() || !info[1].IsNumber() || !info[2].IsNumber()) {
    throw Napi::TypeError::New(env, "measureReadBandwidth: expected (bytes, threads, rounds)");
  }
  const double bytes = info[0].As<Napi::Number>().DoubleValue();
  const int threads = info[1].As<Napi::Number>().Int32Value();
  const int rounds = info[2].As<Napi::Number>().Int32Value();
  if (!(bytes >= 1 << 16 && bytes <= 1e12) || threads < 1 || threads > 1024 || rounds < 1 || rounds > 100) {
    throw Napi::RangeError::New(env, "measureReadBandwidth: bytes 64 KiB..1e12, threads 1..1024, rounds 1..100");
  }
  try {
    return Napi::Number::New(env, measureReadBandwidth(static_cast<size_t>(bytes), threads, rounds));
  } catch (const std::bad_alloc&) {
    throw Napi::Error::New(env, "measureReadBandwidth: not enough memory for the test buffer");
  }
}

static void registerBandwidth(Napi::Env env, Napi::Object exports) {
  exports.Set("measureReadBandwidth", Napi::Function::New(env, measure, "measureReadBandwidth"));
}

static Registration registration(&registerBandwidth);

}  // namespace ds4
