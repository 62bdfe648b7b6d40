#include "cpu/expert_steps.h"

#include <algorithm>
#include <cmath>
#include <atomic>

#include "cpu/isa/op_set.h"

namespace ds4 {

namespace {

float sqrtSoftplus(float x) { return std::sqrt(std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)))); }

// The `used` largest score + bias, best first, lower index on ties. False when one is not finite.
bool chooseExperts(const float* scores, const float* bias, int64_t experts, int64_t used, int32_t* ids) {
  thread_local std::vector<float> ranks;
  ranks.resize(experts);
  for (int64_t e = 0; e < experts; e++) {
    ranks[e] = scores[e] + bias[e];
    if (!std::isfinite(ranks[e])) return false;
  }
  for (int64_t slot = 0; slot < used; slot++) {
    int64_t best = 0;
    for (int64_t e = 1; e < experts; e++) {
      if (ranks[e] > ranks[best]) best = e;
    }
    ids[slot] = static_cast<int32_t>(best);
    ranks[best] = -INFINITY;
  }
  return true;
}

MatmulJob expertJob(const PackedMatrix& weight, int64_t slice, const PreparedInput& input, const int32_t* rows,
                    int64_t count, float* out) {
  MatmulJob job;
  job.weight = &weight;
  job.slice = slice;
  job.rowEnd = weight.rows;
  job.input = &input;
  job.inputRows = rows;
  job.count = count;
  job.out = out;
  job.outStride = weight.rows;
  return job;
}

// Counting sort of the routing slots by expert.
void groupByExpert(Workspace& work, const int32_t* ids, int64_t tokens, int64_t used, int64_t experts) {
  int32_t* begin = Workspace::room(work.expertBegin, experts + 1);
  int32_t* rowToken = Workspace::room(work.rowToken, tokens * used);
  int32_t* slotRow = Workspace::room(work.slotRow, tokens * used);
  std::fill(begin, begin + experts + 1, 0);
  for (int64_t slot = 0; slot < tokens * used; slot++) begin[ids[slot] + 1]++;
  for (int64_t e = 0; e < experts; e++) begin[e + 1] += begin[e];
  std::vector<int32_t>& next = work.identity;  // borrowed as the running end of each group, rebuilt below
  int32_t* cursor = Workspace::room(next, std::max(experts, tokens * used));
  std::copy(begin, begin + experts, cursor);
  for (int64_t slot = 0; slot < tokens * used; slot++) {
    const int32_t row = cursor[ids[slot]]++;
    rowToken[row] = static_cast<int32_t>(slot / used);
    slotRow[slot] = row;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(next.size()); i++) cursor[i] = static_cast<int32_t>(i);
}

bool anyInt(const PackedMatrix& a, const PackedMatrix& b) { return !usesFloatInput(a.type) || !usesFloatInput(b.type); }

}  // namespace

bool runRouter(Workspace& work, const RouterStep& s) {
  std::atomic<bool> finite{true};
  work.pool.run(s.tokens, [&](int64_t token, int) {
    thread_local std::vector<float> scores;
    scores.resize(s.experts);
    for (int64_t e = 0; e < s.experts; e++) scores[e] = sqrtSoftplus(s.logits[token * s.experts + e]);
    int32_t* ids = s.ids + token * s.used;
    if (s.table != nullptr) std::copy_n(s.table + s.tokenIds[token] * s.used, s.used, ids);
    else if (!chooseExperts(scores.data(), s.bias, s.experts, s.used, ids)) finite = false;
    if (!finite.load(std::memory_order_relaxed)) return;
    float sum = 1e-20f;  // as in the original: never a division by zero
    for (int64_t slot = 0; slot < s.used; slot++) sum += scores[ids[slot]];
    if (!std::isfinite(sum)) finite = false;
    const float factor = s.weightsScale / (s.normalize ? sum : 1.0f);
    for (int64_t slot = 0; slot < s.used; slot++) s.weights[token * s.used + slot] = scores[ids[slot]] * factor;
  });
  return finite;
}

void runExpertsUp(Workspace& work, const ExpertWeights& w, const float* x, int64_t tokens, int64_t used,
                  const int32_t* ids, float* h, float* sharedH) {
  const int64_t experts = w.gate->slices, inner = w.gate->rows, sharedInner = w.sharedGate->rows;
  groupByExpert(work, ids, tokens, used, experts);
  const bool needInt = anyInt(*w.gate, *w.up) || anyInt(*w.sharedGate, *w.sharedUp);
  work.input.prepare(x, tokens, w.gate->cols, w.gate->cols, needInt, work.pool);
  const int64_t rows = tokens * used;
  float* gate = Workspace::room(work.gate, rows * inner + tokens * sharedInner);
  float* up = Workspace::room(work.up, rows * inner + tokens * sharedInner);
  work.jobs.clear();
  for (int64_t e = 0; e < experts; e++) {
    const int64_t first = work.expertBegin[e], count = work.expertBegin[e + 1] - first;
    if (count == 0) continue;
    const int32_t* list = work.rowToken.data() + first;
    work.jobs.push_back(expertJob(*w.gate, e, work.input, list, count, gate + first * inner));
    work.jobs.push_back(expertJob(*w.up, e, work.input, list, count, up + first * inner));
  }
  work.jobs.push_back(expertJob(*w.sharedGate, 0, work.input, nullptr, tokens, gate + rows * inner));
  work.jobs.push_back(expertJob(*w.sharedUp, 0, work.input, nullptr, tokens, up + rows * inner));
  runMatmuls(work.jobs.data(), work.jobs.size(), work.pool);
  const OpSet& set = ops();
  work.pool.run(rows + tokens, [&](int64_t row, int) {
    if (row < rows) {
      set.swiglu(gate + row * inner, up + row * inner, inner, w.limit, h + row * inner);
    } else {
      const int64_t at = (row - rows) * sharedInner;
      set.swiglu(gate + rows * inner + at, up + rows * inner + at, sharedInner, w.sharedLimit, sharedH + at);
    }
  });
}

void runExpertsDown(Workspace& work, const ExpertWeights& w, const float* h, const float* sharedH, int64_t tokens,
                    int64_t used, const float* slotWeights, float* out) {
  const int64_t experts = w.down->slices, hidden = w.down->rows, rows = tokens * used;
  work.input.prepare(h, rows, w.down->cols, w.down->cols, !usesFloatInput(w.down->type), work.pool);
  work.sharedInput.prepare(sharedH, tokens, w.sharedDown->cols, w.sharedDown->cols, !usesFloatInput(w.sharedDown->type),
                           work.pool);
  float* down = Workspace::room(work.down, rows * hidden);
  work.jobs.clear();
  for (int64_t e = 0; e < experts; e++) {
    const int64_t first = work.expertBegin[e], count = work.expertBegin[e + 1] - first;
    if (count == 0) continue;
    work.jobs.push_back(
        expertJob(*w.down, e, work.input, work.identity.data() + first, count, down + first * hidden));
  }
  work.jobs.push_back(expertJob(*w.sharedDown, 0, work.sharedInput, nullptr, tokens, out));
  runMatmuls(work.jobs.data(), work.jobs.size(), work.pool);
  const OpSet& set = ops();
  work.pool.run(tokens, [&](int64_t token, int) {
    for (int64_t slot = token * used; slot < (token + 1) * used; slot++) {
      set.addScaled(out + token * hidden, down + work.slotRow[slot] * hidden, slotWeights[slot], hidden);
    }
  });
}

}  // namespace ds4
