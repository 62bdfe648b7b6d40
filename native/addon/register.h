// How an area adds its exports: one static Registration in its glue file.
#pragma once
#include <napi.h>

#include <vector>

namespace ds4 {

using AddonArea = void (*)(Napi::Env, Napi::Object exports);

/// All areas registered by static initialisers, in no particular order.
inline std::vector<AddonArea>& addonAreas() {
  static std::vector<AddonArea> areas;
  return areas;
}

/// `static ds4::Registration r(&registerQuantize);` in a glue file adds its exports.
struct Registration {
  explicit Registration(AddonArea area) { addonAreas().push_back(area); }
};

}  // namespace ds4
