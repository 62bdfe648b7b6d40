#include "cpu/attention_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/isa/op_set.h"

namespace ds4 {

namespace {

void rotate(float* tail, const float* cosines, const float* sines, int pairs, float direction) {
  for (int pair = 0; pair < pairs; pair++) {
    const float x = tail[2 * pair], y = tail[2 * pair + 1];
    const float c = cosines[pair], s = direction * sines[pair];
    tail[2 * pair] = x * c - y * s;
    tail[2 * pair + 1] = x * s + y * c;
  }
}

constexpr int kMaxPairs = 256;
constexpr int kMaxTerms = 512;  // 2 * the largest ratio

}  // namespace

void ropeTable(const int32_t* positions, int64_t tokens, const float* frequencies, int pairs, float* cosines,
               float* sines) {
  for (int64_t token = 0; token < tokens; token++) {
    for (int pair = 0; pair < pairs; pair++) {
      // The product is rounded to float32 first, as in the original model.
      const float angle = static_cast<float>(positions[token]) * frequencies[pair];
      cosines[token * pairs + pair] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sines[token * pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void rotateHeads(Workspace& work, float* rows, int64_t tokens, int64_t heads, int64_t dim, const float* cosines,
                 const float* sines, int pairs, bool normalize, float epsilon, bool inverse) {
  const OpSet& set = ops();
  constexpr int64_t kHeadsPerItem = 16;
  const int64_t items = (heads + kHeadsPerItem - 1) / kHeadsPerItem;
  work.pool.run(tokens * items, [&](int64_t index, int) {
    const int64_t token = index / items, first = index % items * kHeadsPerItem;
    for (int64_t head = first; head < std::min(heads, first + kHeadsPerItem); head++) {
      float* row = rows + (token * heads + head) * dim;
      if (normalize) set.normRow(row, dim, nullptr, epsilon);
      rotate(row + dim - 2 * pairs, cosines + token * pairs, sines + token * pairs, pairs, inverse ? -1.0f : 1.0f);
    }
  });
}

void runCompressor(Workspace& work, const CompressorStep& s) {
  const OpSet& set = ops();
  const int64_t pendingRows = s.start % s.ratio;
  const int64_t firstWindow = s.start / s.ratio;
  const int64_t rows = pendingRows + s.count;  // from the first unfinished window's first token on
  const int64_t closed = rows / s.ratio;
  const bool overlaps = s.projected > s.width;
  const auto row = [&](const float* pending, const float* batch, int64_t index) {
    return index < pendingRows ? pending + index * s.projected : batch + (index - pendingRows) * s.projected;
  };
  work.pool.run(closed, [&](int64_t index, int) {
    const int64_t window = firstWindow + index;
    const float* kv[kMaxTerms];
    const float* gate[kMaxTerms];
    const float* ape[kMaxTerms];
    int terms = 0;
    if (overlaps && window > 0) {
      for (int64_t r = 0; r < s.ratio; r++, terms++) {
        const int64_t at = (index - 1) * s.ratio + r;
        kv[terms] = index > 0 ? row(s.pendingKv, s.kv, at) : s.previousKv + r * s.width;
        gate[terms] = index > 0 ? row(s.pendingGate, s.gate, at) : s.previousGate + r * s.width;
        ape[terms] = s.ape + r * s.projected;
      }
    }
    const int64_t half = overlaps ? s.width : 0;
    for (int64_t r = 0; r < s.ratio; r++, terms++) {
      kv[terms] = row(s.pendingKv, s.kv, index * s.ratio + r) + half;
      gate[terms] = row(s.pendingGate, s.gate, index * s.ratio + r) + half;
      ape[terms] = s.ape + r * s.projected + half;
    }
    float* entry = s.entries + window * s.width;
    set.poolWindow({terms, kv, gate, ape, s.width, s.normWeight, s.normEpsilon}, entry);
    float cosines[kMaxPairs], sines[kMaxPairs];
    const int32_t position = static_cast<int32_t>(window * s.ratio);
    ropeTable(&position, 1, s.frequencies, s.pairs, cosines, sines);
    rotate(entry + s.width - 2 * s.pairs, cosines, sines, s.pairs, 1.0f);
  });
  const size_t rowBytes = s.projected * sizeof(float);
  for (int64_t at = closed * s.ratio; at < rows; at++) {
    if (closed == 0 && at < pendingRows) continue;  // already there
    const int64_t target = (at - closed * s.ratio) * s.projected;
    std::memcpy(s.nextPendingKv + target, row(s.pendingKv, s.kv, at), rowBytes);
    std::memcpy(s.nextPendingGate + target, row(s.pendingGate, s.gate, at), rowBytes);
  }
  if (!overlaps || closed == 0) return;
  for (int64_t r = 0; r < s.ratio; r++) {
    const int64_t at = (closed - 1) * s.ratio + r;
    std::memcpy(s.nextPreviousKv + r * s.width, row(s.pendingKv, s.kv, at), s.width * sizeof(float));
    std::memcpy(s.nextPreviousGate + r * s.width, row(s.pendingGate, s.gate, at), s.width * sizeof(float));
  }
}

namespace {

// The `keep` best of `count` scores, ascending by index. Linear on average; the order is total, so the result is exact.
int64_t selectTop(float* scores, int64_t count, int64_t keep, int32_t* selected) {
  if (count <= keep) {
    for (int64_t i = 0; i < count; i++) selected[i] = static_cast<int32_t>(i);
    return count;
  }
  for (int64_t i = 0; i < count; i++) {
    if (std::isnan(scores[i])) scores[i] = -INFINITY;
  }
  thread_local std::vector<int32_t> order;
  order.resize(count);
  for (int64_t i = 0; i < count; i++) order[i] = static_cast<int32_t>(i);
  const auto better = [scores](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
  std::nth_element(order.begin(), order.begin() + keep, order.end(), better);
  std::copy(order.begin(), order.begin() + keep, selected);
  std::sort(selected, selected + keep);
  return keep;
}

}  // namespace

void runIndexer(Workspace& work, const IndexerStep& s) {
  const OpSet& set = ops();
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.heads)) / std::sqrt(static_cast<float>(s.dim));
  // One token over many entries is split by entries; many tokens by token.
  const int64_t lastVisible = (s.start + s.count) / s.ratio;
  if (s.count == 1 && lastVisible > s.topK) {
    constexpr int64_t kEntriesPerItem = 256;
    float* scores = Workspace::room(work.mixes, lastVisible);
    work.pool.run((lastVisible + kEntriesPerItem - 1) / kEntriesPerItem, [&](int64_t item, int) {
      const int64_t first = item * kEntriesPerItem, count = std::min(kEntriesPerItem, lastVisible - first);
      set.scoreEntries(s.queries, s.headWeights, s.heads, s.dim, s.entries + first * s.dim, count, scale, scores + first);
    });
    s.counts[0] = static_cast<int32_t>(selectTop(scores, lastVisible, s.topK, s.selected));
    return;
  }
  work.pool.run(s.count, [&](int64_t token, int) {
    const int64_t visible = (s.start + token + 1) / s.ratio;
    thread_local std::vector<float> scores;
    scores.resize(std::max<int64_t>(visible, 1));
    if (visible > s.topK) {
      set.scoreEntries(s.queries + token * s.heads * s.dim, s.headWeights + token * s.heads, s.heads, s.dim, s.entries,
                       visible, scale, scores.data());
    }
    s.counts[token] = static_cast<int32_t>(selectTop(scores.data(), visible, s.topK, s.selected + token * s.topK));
  });
}

void runAttention(Workspace& work, const AttentionStep& s) {
  const OpSet& set = ops();
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  constexpr int64_t kHeadsPerItem = 8;
  const int64_t items = (s.heads + kHeadsPerItem - 1) / kHeadsPerItem;
  work.pool.run(s.count * items, [&](int64_t index, int) {
    const int64_t token = index / items, firstHead = index % items * kHeadsPerItem;
    const int64_t position = s.start + token;
    thread_local std::vector<const float*> keys;
    thread_local std::vector<float> scores, padded;
    keys.clear();
    for (int64_t p = std::max<int64_t>(0, position - s.window + 1); p <= position; p++) {
      keys.push_back(s.ring + p % s.ringRows * s.dim);
    }
    if (s.ratio > 0) {
      const int64_t count = s.selected ? s.counts[token] : (position + 1) / s.ratio;
      for (int64_t i = 0; i < count; i++) {
        keys.push_back(s.entries + (s.selected ? s.selected[token * s.topK + i] : i) * s.dim);
      }
    }
    const auto count = static_cast<int64_t>(keys.size());
    scores.resize(4 * ((count + 15) / 16 * 16));
    for (int64_t head = firstHead; head < std::min(s.heads, firstHead + kHeadsPerItem); head += 4) {
      const int64_t at = (token * s.heads + head) * s.dim;
      if (head + 4 <= s.heads) {
        set.attendFour(s.queries + at, s.dim, keys.data(), count, s.sinks + head, scale, scores.data(), s.out + at);
        continue;
      }
      // A head count that is no multiple of four: the missing heads are computed on zeros and dropped.
      const int64_t left = s.heads - head;
      padded.assign(8 * s.dim, 0.0f);
      std::copy_n(s.queries + at, left * s.dim, padded.data());
      float sinks[4] = {};
      std::copy_n(s.sinks + head, left, sinks);
      set.attendFour(padded.data(), s.dim, keys.data(), count, sinks, scale, scores.data(), padded.data() + 4 * s.dim);
      std::copy_n(padded.data() + 4 * s.dim, left * s.dim, s.out + at);
    }
  });
}

}  // namespace ds4
