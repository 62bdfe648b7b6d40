// The ops of the level in use against the same formulas in double precision.
#include <algorithm>
#include <cstring>

#include "cpu/attention_steps.h"
#include "cpu/expert_steps.h"
#include "cpu/isa/op_set.h"
#include "kernel-test.h"

namespace ds4 {

namespace {

using Doubles = std::vector<double>;

Doubles widen(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// The same bound for every value: relative to the largest.
Doubles bound(const Doubles& expected, double relative) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  return Doubles(expected.size(), relative * largest + 1e-30);
}

double rmsFactor(const double* x, int64_t width, double epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < width; i++) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(width) + epsilon);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void testNorm(Report& report, Random& random) {
  for (const int64_t width : {16, 48, 100, 512, 4096}) {
    for (const bool weighted : {false, true}) {
      std::vector<float> x = random.values(width, 3.0f), weight = random.values(width);
      const double factor = rmsFactor(widen(x).data(), width, 1e-6);
      Doubles expected;
      for (int64_t i = 0; i < width; i++) expected.push_back(x[i] * factor * (weighted ? weight[i] : 1.0));
      ops().normRow(x.data(), width, weighted ? weight.data() : nullptr, 1e-6f);
      report.compare(x, expected, bound(expected, 1e-6), "norm of %d values", static_cast<int>(width));
    }
  }
}

// comb [n, n] to nearly doubly stochastic: softmax over rows, then columns and rows in turn.
void balance(Doubles& m, int n, int iterations, double epsilon) {
  const auto normalize = [&](int line, int step) {
    for (int l = 0; l < n; l++) {
      double sum = epsilon;
      for (int i = 0; i < n; i++) sum += m[l * line + i * step];
      for (int i = 0; i < n; i++) m[l * line + i * step] /= sum;
    }
  };
  for (int row = 0; row < n; row++) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += std::exp(m[row * n + i]);
    for (int i = 0; i < n; i++) m[row * n + i] = std::exp(m[row * n + i]) / sum + epsilon;
  }
  normalize(1, n);
  for (int i = 1; i < iterations; i++) normalize(n, 1), normalize(1, n);
}

void testStreams(Report& report, Random& random, int n, int64_t hidden) {
  const int rows = 2 * n + n * n;
  const std::vector<float> base = random.values(rows), scale = random.values(3), weight = random.values(hidden);
  const std::vector<float> mixes = random.values(rows, 4.0f);
  std::vector<float> streams = random.values(n * hidden, 2.0f);
  HyperRead read{n, hidden, base.data(), scale.data(), weight.data(), 1e-6f, 1e-6f, 20};
  const Doubles wide = widen(streams);
  const double factor = rmsFactor(wide.data(), n * hidden, 1e-6);
  Doubles post, comb;
  const auto readMixed = [&] {
    Doubles x(hidden);
    for (int k = 0; k < n; k++) {
      const double pre = sigmoid(mixes[k] * factor * scale[0] + base[k]) + 1e-6;
      for (int64_t i = 0; i < hidden; i++) x[i] += pre * wide[k * hidden + i];
    }
    const double norm = rmsFactor(x.data(), hidden, 1e-6);
    for (int64_t i = 0; i < hidden; i++) x[i] *= norm * weight[i];
    return x;
  };
  for (int k = 0; k < n; k++) post.push_back(2 * sigmoid(mixes[n + k] * factor * scale[1] + base[n + k]));
  for (int i = 0; i < n * n; i++) comb.push_back(mixes[2 * n + i] * factor * scale[2] + base[2 * n + i]);
  balance(comb, n, 20, 1e-6);
  std::vector<float> x(hidden), head(hidden), gotPost(n), gotComb(n * n);
  ops().readStreams(read, streams.data(), mixes.data(), x.data(), gotPost.data(), gotComb.data());
  ops().readHead(read, streams.data(), mixes.data(), head.data());
  const Doubles expected = readMixed();
  const char* label = "%s of %d streams of %d";
  report.compare(x, expected, bound(expected, 3e-6), label, "read", n, static_cast<int>(hidden));
  report.compare(head, expected, bound(expected, 3e-6), label, "head read", n, static_cast<int>(hidden));
  report.compare(gotPost, post, bound(post, 2e-6), label, "post weights", n, static_cast<int>(hidden));
  report.compare(gotComb, comb, bound(comb, 5e-6), label, "mixing matrix", n, static_cast<int>(hidden));

  Doubles written(n * hidden);
  for (int k = 0; k < n; k++) {
    for (int64_t i = 0; i < hidden; i++) {
      double value = gotPost[k] * static_cast<double>(x[i]);
      for (int j = 0; j < n; j++) value += gotComb[j * n + k] * wide[j * hidden + i];
      written[k * hidden + i] = value;
    }
  }
  ops().writeStreams(n, hidden, streams.data(), x.data(), gotPost.data(), gotComb.data());
  report.compare(streams, written, bound(written, 1e-6), label, "write", n, static_cast<int>(hidden));
}

void testAttention(Report& report, Random& random, int64_t dim, int64_t count) {
  const std::vector<float> q = random.values(4 * dim), memory = random.values(count * dim, 3.0f);
  const std::vector<float> sinks = random.values(4, 2.0f);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::vector<const float*> keys;
  for (int64_t i = 0; i < count; i++) keys.push_back(memory.data() + (count - 1 - i) * dim);
  Doubles expected(4 * dim);
  for (int h = 0; h < 4; h++) {
    double total = std::exp(static_cast<double>(sinks[h]));
    for (int64_t key = 0; key < count; key++) {
      double score = 0;
      for (int64_t d = 0; d < dim; d++) score += static_cast<double>(q[h * dim + d]) * keys[key][d];
      const double weight = std::exp(score * scale);
      total += weight;
      for (int64_t d = 0; d < dim; d++) expected[h * dim + d] += weight * keys[key][d];
    }
    for (int64_t d = 0; d < dim; d++) expected[h * dim + d] /= total;
  }
  std::vector<float> scores(4 * ((count + 15) / 16 * 16)), out(4 * dim);
  ops().attendFour(q.data(), dim, keys.data(), count, sinks.data(), scale, scores.data(), out.data());
  report.compare(out, expected, bound(expected, 4e-6), "attention, width %d, %d keys", static_cast<int>(dim),
                 static_cast<int>(count));
}

void testEntryScores(Report& report, Random& random, int heads, int64_t dim, int64_t count) {
  const std::vector<float> query = random.values(heads * dim), weights = random.values(heads);
  const std::vector<float> entries = random.values(count * dim);
  Doubles expected(count), bounds(count);
  for (int64_t entry = 0; entry < count; entry++) {
    for (int h = 0; h < heads; h++) {
      double match = 0;
      for (int64_t d = 0; d < dim; d++) match += static_cast<double>(query[h * dim + d]) * entries[entry * dim + d];
      expected[entry] += 0.25 * weights[h] * std::max(match, 0.0);
    }
    bounds[entry] = 1e-5;
  }
  std::vector<float> scores(count);
  ops().scoreEntries(query.data(), weights.data(), heads, dim, entries.data(), count, 0.25f, scores.data());
  report.compare(scores, expected, bounds, "%d entries against %d heads", static_cast<int>(count), heads);
}

void testSwiglu(Report& report, Random& random, int64_t width) {
  std::vector<float> gate = random.values(width, 60.0f), up = random.values(width, 20.0f), out(width);
  gate[0] = -200.0f, gate[1] = 200.0f, up[2] = -50.0f, gate[3] = 0.0f;
  Doubles expected, bounds;
  for (int64_t i = 0; i < width; i++) {
    const double g = std::min<double>(gate[i], 10);
    expected.push_back(g * sigmoid(g) * std::clamp<double>(up[i], -10, 10));
    bounds.push_back(1e-6 * std::fabs(expected.back()) + 1e-30);
  }
  ops().swiglu(gate.data(), up.data(), width, 10.0f, out.data());
  report.compare(out, expected, bounds, "swiglu of %d values", static_cast<int>(width));
}

void testAddScaled(Report& report, Random& random, int64_t width) {
  std::vector<float> out = random.values(width);
  const std::vector<float> x = random.values(width);
  Doubles expected;
  for (int64_t i = 0; i < width; i++) expected.push_back(out[i] + 0.3125 * x[i]);
  ops().addScaled(out.data(), x.data(), 0.3125f, width);
  report.compare(out, expected, bound(expected, 1e-7), "scaled sum of %d values", static_cast<int>(width));
}

void testPool(Report& report, Random& random, int terms, int64_t width) {
  const std::vector<float> kv = random.values(terms * width), gate = random.values(terms * width, 8.0f);
  const std::vector<float> ape = random.values(terms * width), weight = random.values(width);
  std::vector<const float*> rows[3];
  for (int t = 0; t < terms; t++) {
    rows[0].push_back(kv.data() + t * width);
    rows[1].push_back(gate.data() + t * width);
    rows[2].push_back(ape.data() + t * width);
  }
  Doubles expected(width);
  for (int64_t c = 0; c < width; c++) {
    double total = 0;
    for (int t = 0; t < terms; t++) {
      const double share = std::exp(static_cast<double>(gate[t * width + c]) + ape[t * width + c]);
      total += share;
      expected[c] += share * kv[t * width + c];
    }
    expected[c] /= total;
  }
  const double factor = rmsFactor(expected.data(), width, 1e-6);
  for (int64_t c = 0; c < width; c++) expected[c] *= factor * weight[c];
  std::vector<float> entry(width);
  ops().poolWindow({terms, rows[0].data(), rows[1].data(), rows[2].data(), width, weight.data(), 1e-6f}, entry.data());
  report.compare(entry, expected, bound(expected, 4e-6), "pool of %d terms, width %d", terms, static_cast<int>(width));
}

// Every head normed, then its last pairs turned by the token's angles.
void testRotation(Report& report, Random& random, bool inverse) {
  const int64_t tokens = 3, heads = 18, dim = 48;
  const int pairs = 8;
  const std::vector<int32_t> positions = {0, 7, 90001};
  std::vector<float> frequencies;
  for (int i = 0; i < pairs; i++) frequencies.push_back(static_cast<float>(std::pow(10000.0, -i / 8.0)));
  std::vector<float> rows = random.values(tokens * heads * dim), cosines(tokens * pairs), sines(tokens * pairs);
  Doubles expected = widen(rows);
  for (int64_t row = 0; row < tokens * heads; row++) {
    double* head = expected.data() + row * dim;
    const double factor = rmsFactor(head, dim, 1e-6);
    for (int64_t d = 0; d < dim; d++) head[d] *= factor;
    double* tail = head + dim - 2 * pairs;
    for (int pair = 0; pair < pairs; pair++, tail += 2) {
      const double angle = static_cast<float>(positions[row / heads]) * frequencies[pair];
      const double c = std::cos(angle), s = (inverse ? -1 : 1) * std::sin(angle), x = tail[0], y = tail[1];
      tail[0] = x * c - y * s, tail[1] = x * s + y * c;
    }
  }
  Workspace work(2);
  ropeTable(positions.data(), tokens, frequencies.data(), pairs, cosines.data(), sines.data());
  rotateHeads(work, rows.data(), tokens, heads, dim, cosines.data(), sines.data(), pairs, true, 1e-6f, inverse);
  report.compare(rows, expected, bound(expected, 1e-6), "rotation, inverse %d", inverse);
}

// Ids must be exact, so the scores are spread wider than any rounding.
void testRouter(Report& report, Random& random) {
  const int64_t tokens = 5, experts = 24, used = 6;
  std::vector<float> logits(tokens * experts), bias(experts, 0.0f), weights(tokens * used);
  for (int64_t i = 0; i < tokens * experts; i++) logits[i] = 0.125f * static_cast<float>(i * 29 % 97) - 6;
  for (float& b : bias) b = 0.01f * random.value();
  Doubles expected;
  std::vector<float> ids;
  std::vector<int32_t> gotIds(tokens * used);
  for (int64_t token = 0; token < tokens; token++) {
    Doubles score;
    std::vector<int> order;
    for (int e = 0; e < experts; e++) {
      score.push_back(std::sqrt(std::log1p(std::exp(static_cast<double>(logits[token * experts + e])))));
      order.push_back(e);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score[a] + bias[a] > score[b] + bias[b]; });
    double total = 0;
    for (int slot = 0; slot < used; slot++) total += score[order[slot]];
    for (int slot = 0; slot < used; slot++) {
      ids.push_back(static_cast<float>(order[slot]));
      expected.push_back(1.5 * score[order[slot]] / total);
    }
  }
  Workspace work(1);
  RouterStep step{tokens, experts, used, logits.data(), bias.data(), nullptr, nullptr, 1.5f, true, gotIds.data(), weights.data()};
  const bool finite = runRouter(work, step);
  report.compare({gotIds.begin(), gotIds.end()}, widen(ids), Doubles(finite ? ids.size() : 0), "router: experts");
  report.compare(weights, expected, bound(expected, 1e-6), "router: weights");
}

}  // namespace

void testOps(Report& report) {
  Random random(2);
  testNorm(report, random);
  for (const int64_t hidden : {32, 272, 1024}) testStreams(report, random, 4, hidden);
  testStreams(report, random, 2, 64);
  for (const int64_t dim : {16, 80, 512}) {
    for (const int64_t count : {1, 2, 3, 16, 17, 131}) testAttention(report, random, dim, count);
  }
  for (const int64_t count : {1, 4, 7, 33}) testEntryScores(report, random, 8, 64, count);
  testSwiglu(report, random, 16);
  testSwiglu(report, random, 2048);
  for (const int64_t width : {1, 7, 33, 256}) testAddScaled(report, random, width);
  for (const int terms : {1, 4, 8, 128}) testPool(report, random, terms, 64);
  testRotation(report, random, false);
  testRotation(report, random, true);
  testRouter(report, random);
}

}  // namespace ds4
