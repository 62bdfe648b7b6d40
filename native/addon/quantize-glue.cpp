// quantizeRows(typeId, values [rows, cols], rows, cols, importance [cols] | null, out: Uint8Array, threads): encodes
// rows into `out`, synchronously on `threads` threads.
#include <napi.h>

#include "addon/arguments.h"
#include "addon/register.h"
#include "quantize/quantize.h"

namespace ds4 {

/// The searches convert to integers: nothing that is not finite may reach them.
static bool allFinite(const float* values, int64_t count) {
  bool finite = true;
  for (int64_t i = 0; i < count; i++) finite &= std::fabs(values[i]) < INFINITY;
  return finite;
}

static void quantize(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const Quantizer* quantizer = findQuantizer(static_cast<int32_t>(wholeNumber(info, 0, "typeId", 0, 255)));
  if (quantizer == nullptr) throw Napi::TypeError::New(env, "typeId: this type cannot be written");
  const int64_t rows = wholeNumber(info, 2, "rows", 0, 1 << 30), cols = wholeNumber(info, 3, "cols", 0, 1 << 30);
  if (cols % quantizer->blockValues != 0) throw Napi::RangeError::New(env, "cols: expected a multiple of the block");
  const int threads = static_cast<int>(wholeNumber(info, 6, "threads", 1, 1024));
  const auto values = typedArray<Napi::Float32Array>(info, 1, "values", napi_float32_array, rows * cols);
  const int64_t outBytes = rows * (cols / quantizer->blockValues) * quantizer->blockBytes;
  auto out = typedArray<Napi::Uint8Array>(info, 5, "out", napi_uint8_array, outBytes);
  const float* importance = nullptr;
  if (!info[4].IsNull()) {
    importance = typedArray<Napi::Float32Array>(info, 4, "importance", napi_float32_array, cols).Data();
    bool negative = false;
    for (int64_t i = 0; i < cols; i++) negative |= importance[i] < 0;
    if (negative || !allFinite(importance, cols)) {
      throw Napi::RangeError::New(env, "importance: expected non-negative finite numbers");
    }
  }
  if (!allFinite(values.Data(), rows * cols)) throw Napi::RangeError::New(env, "values: expected finite numbers");
  quantizeRows(*quantizer, values.Data(), rows, cols, importance, out.Data(), threads);
}

static void registerQuantize(Napi::Env env, Napi::Object exports) {
  exports.Set("quantizeRows", Napi::Function::New(env, quantize, "quantizeRows"));
}

static Registration registration(&registerQuantize);

}  // namespace ds4
