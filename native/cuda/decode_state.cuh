// Where a sequence stands, in device memory, so that a captured decode step is replayed without new arguments.
#pragma once
#include <cstdint>

/// One per sequence of a pass; 16 bytes. Kernels that touch a sequence's state read it instead of taking sizes by
/// value: between replays only this changes. Grids are sized for the largest case and surplus blocks leave at once.
struct DecodeState {
  int32_t start;  // tokens the sequence held before the pass: position of its first row
  int32_t count;  // its rows in this pass
  int32_t slots;  // bit i: which of the two slots of the compressors with slot bit i is valid before the pass
  int32_t reserved;
};
