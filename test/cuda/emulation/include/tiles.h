// The tensor core's products C [16, 8] += A [16, K] B [K, 8], K = 8 values of `PerWord` in each word. Lane l holds of A the
// rows l / 4 (words 0 and 2) and l / 4 + 8 (1 and 3), of B the column l / 4, in both the words l % 4 (first half of K) and
// l % 4 + 4; of C the same rows, columns 2 * (l % 4) and the next.
#pragma once
#include <array>
#include <cstdint>

#include "emulation/block.h"

namespace emulation {

template <class Value, int PerWord, class Sum, class Number, class Unpack>
inline void multiplyTiles(const char* what, Number (&c)[4], std::array<uint32_t, 4> a, std::array<uint32_t, 2> b,
                          Unpack unpack) {
  struct Operands {
    Value a[4][PerWord], b[2][PerWord];
  };
  Operands own;
  for (int i = 0; i < PerWord; i++) {
    for (int word = 0; word < 4; word++) own.a[word][i] = unpack(a[word], i);
    for (int word = 0; word < 2; word++) own.b[word][i] = unpack(b[word], i);
  }
  const Lanes<Operands> all = exchange(what, own);
  const int row = current->lane / 4, pair = current->lane % 4;
  Sum sums[4] = {static_cast<Sum>(c[0]), static_cast<Sum>(c[1]), static_cast<Sum>(c[2]), static_cast<Sum>(c[3])};
  for (int quad = 0; quad < 4; quad++) {
    const Operands ofRow = all[4 * row + quad];
    const Operands columns[2] = {all[4 * (2 * pair) + quad], all[4 * (2 * pair + 1) + quad]};
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < PerWord; i++) {
        for (int at = 0; at < 4; at++) {
          sums[at] += static_cast<Sum>(ofRow.a[at / 2 + 2 * half][i]) * static_cast<Sum>(columns[at % 2].b[half][i]);
        }
      }
    }
  }
  for (int at = 0; at < 4; at++) c[at] = static_cast<Number>(sums[at]);
}

}  // namespace emulation
