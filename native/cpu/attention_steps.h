// Steps of the attention block for the tokens of one sequence (or of the whole batch where no state is involved).
#pragma once
#include <cstdint>

#include "cpu/workspace.h"

namespace ds4 {

/// Cosines and sines [tokens, pairs] of float32(position * frequency).
void ropeTable(const int32_t* positions, int64_t tokens, const float* frequencies, int pairs, float* cosines,
               float* sines);

/// Rows [tokens, heads, dim]: norm each head (when `normalize`), then rotate its last 2 * pairs values by the token's
/// angles, backwards when `inverse`.
void rotateHeads(Workspace& work, float* rows, int64_t tokens, int64_t heads, int64_t dim, const float* cosines,
                 const float* sines, int pairs, bool normalize, float epsilon, bool inverse);

/// State and weights of one compressor, for one sequence.
struct CompressorStep {
  int64_t ratio, width, projected;  // projected = 2 * width where windows overlap (ratio 4), else width
  int64_t start, count;             // position of the first token, tokens
  const float* kv;                  // [count, projected] raw projections of the batch
  const float* gate;
  // Unfinished window's rows before the batch (read) and after it (written; the same memory when no window closes).
  const float* pendingKv;
  const float* pendingGate;
  float* nextPendingKv;
  float* nextPendingGate;
  // Overlap only: the a halves of the last finished window, before and after.
  const float* previousKv;
  const float* previousGate;
  float* nextPreviousKv;
  float* nextPreviousGate;
  const float* ape;         // [ratio, projected]
  const float* normWeight;  // [width]
  float normEpsilon;
  const float* frequencies;  // [pairs], compressed layers'
  int pairs;
  float* entries;  // [capacity / ratio, width]
};

/// Writes the entries that the batch closes and the state after it.
void runCompressor(Workspace& work, const CompressorStep& step);

/// Scores entries and keeps the best per token, ascending by index; ties: lower index; NaN ranks last.
struct IndexerStep {
  int64_t start, count, ratio;
  int heads;
  int64_t dim;
  const float* queries;      // [count, heads, dim]
  const float* headWeights;  // [count, heads]
  const float* entries;      // [*, dim]
  int64_t topK;
  int32_t* selected;  // [count, topK]
  int32_t* counts;    // [count]
};
void runIndexer(Workspace& work, const IndexerStep& step);

/// Attention of one sequence's tokens over its window ring and compressed entries.
struct AttentionStep {
  int64_t start, count, heads, dim, window;
  const float* queries;     // [count, heads, dim]
  const float* ring;        // [ringRows, dim]: row of position p at p % ringRows
  int64_t ringRows;
  int64_t ratio;            // 0: no compressed entries
  const float* entries;     // [*, dim]
  const int32_t* selected;  // [count, topK], or null: all visible entries
  const int32_t* counts;
  int64_t topK;
  const float* sinks;  // [heads]
  float* out;          // [count, heads, dim]
};
void runAttention(Workspace& work, const AttentionStep& step);

}  // namespace ds4
