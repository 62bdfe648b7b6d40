// The thread team and the working memory that the steps of a forward pass share. One step runs at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu/matmul.h"
#include "cpu/thread_pool.h"

namespace ds4 {

struct Workspace {
  explicit Workspace(int threads) : pool(threads) {}

  ThreadPool pool;
  PreparedInput input, sharedInput;
  std::vector<MatmulJob> jobs;
  std::vector<float> mixes;
  // Mixture of experts: tokens grouped by expert.
  std::vector<int32_t> rowToken;     // [rows] token of each grouped row, experts ascending
  std::vector<int32_t> slotRow;      // [tokens * used] grouped row of each routing slot
  std::vector<int32_t> expertBegin;  // [experts + 1]
  std::vector<int32_t> identity;     // 0, 1, 2, …
  std::vector<float> gate, up, down;

  /// Bytes in use by the vectors. Their sizes, not their capacities: what was never written is not resident.
  /// src/plan/workspace-size.ts computes the largest value this can have.
  size_t bytes() const {
    const size_t ints = rowToken.size() + slotRow.size() + expertBegin.size() + identity.size();
    const size_t floats = mixes.size() + gate.size() + up.size() + down.size();
    return input.bytes() + sharedInput.bytes() + jobs.size() * sizeof(MatmulJob) + 4 * (ints + floats);
  }

  /// How many values each vector comes to hold: see src/plan/workspace-size.ts.
  struct Counts {
    int64_t inputValues, sharedInputValues, mixes, rowToken, slotRow, expertBegin, identity, gate, down;
  };

  /// Grows every vector to its final size, so that no batch does later. Throws std::bad_alloc.
  void reserve(const Counts& counts) {
    input.reserve(counts.inputValues);
    sharedInput.reserve(counts.sharedInputValues);
    room(mixes, counts.mixes);
    room(rowToken, counts.rowToken);
    room(slotRow, counts.slotRow);
    room(expertBegin, counts.expertBegin);
    const size_t known = identity.size();
    room(identity, counts.identity);
    for (size_t i = known; i < identity.size(); i++) identity[i] = static_cast<int32_t>(i);
    room(gate, counts.gate);
    room(up, counts.gate);
    room(down, counts.down);
  }

  /// `vector` with room for `count` values; never shrinks, so that steady state does not allocate.
  template <class T>
  static T* room(std::vector<T>& vector, int64_t count) {
    if (vector.size() < static_cast<size_t>(count)) vector.resize(count);
    return vector.data();
  }
};

}  // namespace ds4
