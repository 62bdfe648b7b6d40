// Entry point of the N-API addon: every area registers its own exports, nothing is computed here.
#include <napi.h>

#include "addon/register.h"

static Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("abiVersion", Napi::Number::New(env, 1));
  for (auto area : ds4::addonAreas()) area(env, exports);
  return exports;
}

NODE_API_MODULE(ds4, init)
