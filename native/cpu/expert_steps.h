// Router and mixture of experts. Tokens are grouped by expert, so that each weight is read once per batch.
#pragma once
#include <cstdint>

#include "cpu/workspace.h"

namespace ds4 {

struct RouterStep {
  int64_t tokens, experts, used;
  const float* logits;       // [tokens, experts]
  const float* bias;         // [experts], or null for table routing
  const int32_t* table;      // [vocab, used], or null
  const int32_t* tokenIds;   // [tokens]
  float weightsScale;
  bool normalize;
  int32_t* ids;    // [tokens, used]
  float* weights;  // [tokens, used]
};

/// False when a score is not finite (nothing in `ids` may be used then).
bool runRouter(Workspace& work, const RouterStep& step);

struct ExpertWeights {
  const PackedMatrix *gate, *up, *down;                    // [experts, inner, hidden], [experts, hidden, inner]
  const PackedMatrix *sharedGate, *sharedUp, *sharedDown;  // one slice
  float limit, sharedLimit;
};

/// h [tokens * used, inner] (rows grouped by expert, order kept in the workspace) and shared h [tokens, sharedInner].
void runExpertsUp(Workspace& work, const ExpertWeights& weights, const float* x, int64_t tokens, int64_t used,
                  const int32_t* ids, float* h, float* sharedH);

/// out [tokens, hidden] = shared + sum over slots of weight * expert, slots in routing order. Follows runExpertsUp.
void runExpertsDown(Workspace& work, const ExpertWeights& weights, const float* h, const float* sharedH, int64_t tokens,
                    int64_t used, const float* slotWeights, float* out);

}  // namespace ds4
