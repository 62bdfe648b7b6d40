// Unaligned loads from bytes.
#pragma once
#include <cstring>

namespace ds4 {

template <class T>
inline T loadAs(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

}  // namespace ds4
