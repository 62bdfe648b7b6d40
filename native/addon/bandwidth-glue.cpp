// What the machine can do at best, to measure kernels against.
//   measureReadBandwidth(bytes, threads, rounds): bytes per second, synchronous (a second or two)
//   measureMultiplyAdds(workspace): float32 multiply-adds per second of the level in use, on all its threads
#include <napi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "addon/matrix-glue.h"
#include "addon/register.h"
#include "common/bandwidth.h"
#include "cpu/isa/op_set.h"

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

// The fastest of twenty runs of some milliseconds: long against handing them out, short against other programs' turns.
static Napi::Value measureMultiplyAdds(const Napi::CallbackInfo& info) {
  ThreadPool& pool = WorkspaceObject::unwrap(info.Env(), info[0]).pool;
  const OpSet& set = ops();
  constexpr int64_t kRounds = 1 << 20;
  double best = 0;
  for (int run = 0; run < 20; run++) {
    std::atomic<int64_t> total{0};
    const auto start = std::chrono::steady_clock::now();
    pool.run(pool.size(), [&](int64_t, int) {
      float sink = 0.5f;
      total += set.multiplyAdds(kRounds, &sink);
      if (sink == 0) total = 0;  // never: the sums are used, so they are computed
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(total.load()) / seconds.count());
  }
  return Napi::Number::New(info.Env(), best);
}

static void registerBandwidth(Napi::Env env, Napi::Object exports) {
  exports.Set("measureMultiplyAdds", Napi::Function::New(env, measureMultiplyAdds, "measureMultiplyAdds"));
  exports.Set("measureReadBandwidth", Napi::Function::New(env, measure, "measureReadBandwidth"));
}

static Registration registration(&registerBandwidth);

}  // namespace ds4
