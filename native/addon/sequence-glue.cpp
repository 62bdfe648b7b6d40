// Steps with sequence state and routing: compressor, indexer, attention, router, experts.
#include "addon/register.h"
#include "addon/step-arguments.h"
#include "cpu/attention_steps.h"
#include "cpu/expert_steps.h"

namespace ds4 {

// compress(workspace, ratio, width, projected, start, count, pairs, kv, gate, pendingKv, pendingGate, nextPendingKv,
//          nextPendingGate, previousKv, previousGate, nextPreviousKv, nextPreviousGate, ape, normWeight, normEpsilon,
//          frequencies, entries)
static void compress(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  CompressorStep s{};
  s.ratio = args.count("ratio", 1, 256);
  s.width = args.count("width", 16, 1 << 16);
  s.projected = args.count("projected", 16, 1 << 17);
  args.require(s.width % 16 == 0 && (s.projected == s.width || s.projected == 2 * s.width),
               "width: expected a multiple of 16; projected: once or twice the width");
  s.start = args.count("start");
  s.count = args.count("count", 1);
  s.pairs = static_cast<int>(args.count("pairs", 0, static_cast<double>(std::min<int64_t>(256, s.width / 2))));
  const bool overlaps = s.projected > s.width;
  s.kv = args.floats("kv", s.count * s.projected);
  s.gate = args.floats("gate", s.count * s.projected);
  const int64_t pending = s.ratio * s.projected, previous = overlaps ? s.ratio * s.width : 0;
  s.pendingKv = args.floats("pendingKv", pending);
  s.pendingGate = args.floats("pendingGate", pending);
  s.nextPendingKv = args.floats("nextPendingKv", pending);
  s.nextPendingGate = args.floats("nextPendingGate", pending);
  s.previousKv = args.floats("previousKv", previous);
  s.previousGate = args.floats("previousGate", previous);
  s.nextPreviousKv = args.floats("nextPreviousKv", previous);
  s.nextPreviousGate = args.floats("nextPreviousGate", previous);
  s.ape = args.floats("ape", pending);
  s.normWeight = args.floats("normWeight", s.width);
  s.normEpsilon = args.real("normEpsilon");
  s.frequencies = args.floats("frequencies", s.pairs);
  s.entries = args.floats("entries", (s.start + s.count) / s.ratio * s.width);
  runCompressor(work, s);
}

// selectEntries(workspace, start, count, ratio, heads, dim, topK, queries, headWeights, entries, selected, counts)
static void selectEntries(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  IndexerStep s{};
  s.start = args.count("start");
  s.count = args.count("count", 1);
  s.ratio = args.count("ratio", 1, 256);
  s.heads = static_cast<int>(args.count("heads", 1, 4096));
  s.dim = args.count("dim", 16, 1 << 16);
  args.require(s.dim % 16 == 0, "dim: expected a multiple of 16");
  s.topK = args.count("topK", 1, 1 << 20);
  s.queries = args.floats("queries", s.count * s.heads * s.dim);
  s.headWeights = args.floats("headWeights", s.count * s.heads);
  s.entries = args.floats("entries", (s.start + s.count) / s.ratio * s.dim);
  s.selected = args.ints("selected", s.count * s.topK);
  s.counts = args.ints("counts", s.count);
  runIndexer(work, s);
}

// attend(workspace, start, count, heads, dim, window, ringRows, ratio, topK, queries, ring, entries, selected | null,
//        counts | null, sinks, out)
static void attend(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  AttentionStep s{};
  s.start = args.count("start");
  s.count = args.count("count", 1);
  s.heads = args.count("heads", 1, 1 << 16);
  s.dim = args.count("dim", 16, 1 << 16);
  args.require(s.dim % 16 == 0, "dim: expected a multiple of 16");
  s.window = args.count("window", 1);
  s.ringRows = args.count("ringRows", 1);
  args.require(s.ringRows >= s.window - 1 + s.count || s.ringRows >= s.start + s.count,
               "ringRows: the ring does not hold the window and the batch");
  s.ratio = args.count("ratio", 0, 256);
  s.topK = args.count("topK", 0, 1 << 20);
  s.queries = args.floats("queries", s.count * s.heads * s.dim);
  s.ring = args.floats("ring", s.ringRows * s.dim);
  const int64_t visible = s.ratio > 0 ? (s.start + s.count) / s.ratio : 0;
  s.entries = args.floats("entries", visible * s.dim);
  s.selected = args.optionalInts("selected", s.count * s.topK);
  s.counts = args.optionalInts("counts", s.count);
  args.require((s.selected == nullptr) == (s.counts == nullptr), "selected and counts: expected both or neither");
  for (int64_t token = 0; s.selected != nullptr && token < s.count; token++) {
    args.require(s.counts[token] >= 0 && s.counts[token] <= s.topK, "counts: out of range");
    for (int64_t i = 0; i < s.counts[token]; i++) {
      const int32_t entry = s.selected[token * s.topK + i];
      args.require(entry >= 0 && entry < visible, "selected: an entry is out of range");
    }
  }
  s.sinks = args.floats("sinks", s.heads);
  s.out = args.floats("out", s.count * s.heads * s.dim);
  runAttention(work, s);
}

// route(workspace, tokens, experts, used, vocab, weightsScale, normalize, logits, bias | null, table | null, tokenIds,
//       ids, weights) -> all scores finite
static Napi::Value route(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  RouterStep s{};
  s.tokens = args.count("tokens", 1);
  s.experts = args.count("experts", 1, 1 << 16);
  s.used = args.count("used", 1, static_cast<double>(s.experts));
  const int64_t vocab = args.count("vocab", 1);
  s.weightsScale = args.real("weightsScale");
  s.normalize = args.flag("normalize");
  s.logits = args.floats("logits", s.tokens * s.experts);
  s.bias = args.optionalFloats("bias", s.experts);
  s.table = args.optionalInts("table", vocab * s.used);
  args.require((s.bias == nullptr) != (s.table == nullptr), "bias and table: expected exactly one");
  s.tokenIds = args.ints("tokenIds", s.tokens);
  s.ids = args.ints("ids", s.tokens * s.used);
  s.weights = args.floats("weights", s.tokens * s.used);
  for (int64_t token = 0; s.table != nullptr && token < s.tokens; token++) {
    args.require(s.tokenIds[token] >= 0 && s.tokenIds[token] < vocab, "tokenIds: out of range");
    for (int64_t slot = 0; slot < s.used; slot++) {
      const int32_t expert = s.table[s.tokenIds[token] * s.used + slot];
      args.require(expert >= 0 && expert < s.experts, "table: an expert is out of range");
    }
  }
  return Napi::Boolean::New(info.Env(), runRouter(work, s));
}

namespace {

ExpertWeights expertWeights(StepArguments& args) {
  ExpertWeights w{};
  w.gate = &args.matrix();
  w.up = &args.matrix();
  w.down = &args.matrix();
  w.sharedGate = &args.matrix();
  w.sharedUp = &args.matrix();
  w.sharedDown = &args.matrix();
  const bool routed = w.gate->slices == w.up->slices && w.gate->slices == w.down->slices &&
                      w.gate->rows == w.up->rows && w.gate->cols == w.up->cols && w.down->cols == w.gate->rows &&
                      w.down->rows == w.gate->cols && w.gate->rows % 16 == 0;
  const bool shared = w.sharedGate->rows == w.sharedUp->rows && w.sharedGate->cols == w.gate->cols &&
                      w.sharedUp->cols == w.gate->cols && w.sharedDown->cols == w.sharedGate->rows &&
                      w.sharedDown->rows == w.gate->cols && w.sharedGate->rows % 16 == 0;
  args.require(routed && shared, "experts: the matrices' shapes do not go together");
  return w;
}

}  // namespace

// expertsUp(workspace, gate, up, down, sharedGate, sharedUp, sharedDown, tokens, used, limit, sharedLimit, x, ids, h,
//           sharedH)
static void expertsUp(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  ExpertWeights w = expertWeights(args);
  const int64_t tokens = args.count("tokens", 1), used = args.count("used", 1, static_cast<double>(w.gate->slices));
  w.limit = args.real("limit");
  w.sharedLimit = args.real("sharedLimit");
  const float* x = args.floats("x", tokens * w.gate->cols);
  const int32_t* ids = args.ints("ids", tokens * used);
  for (int64_t i = 0; i < tokens * used; i++) {
    args.require(ids[i] >= 0 && ids[i] < w.gate->slices, "ids: an expert is out of range");
  }
  float* h = args.floats("h", tokens * used * w.gate->rows);
  float* sharedH = args.floats("sharedH", tokens * w.sharedGate->rows);
  runExpertsUp(work, w, x, tokens, used, ids, h, sharedH);
}

// expertsDown(workspace, gate, up, down, sharedGate, sharedUp, sharedDown, tokens, used, h, sharedH, weights, out):
// right after expertsUp with the same tokens
static void expertsDown(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const ExpertWeights w = expertWeights(args);
  const int64_t tokens = args.count("tokens", 1), used = args.count("used", 1, static_cast<double>(w.gate->slices));
  args.require(static_cast<int64_t>(work.expertBegin.size()) > w.gate->slices &&
                   work.expertBegin[w.gate->slices] == tokens * used,
               "expertsDown: expected to follow expertsUp with the same tokens");
  const float* h = args.floats("h", tokens * used * w.gate->rows);
  const float* sharedH = args.floats("sharedH", tokens * w.sharedGate->rows);
  const float* weights = args.floats("weights", tokens * used);
  float* out = args.floats("out", tokens * w.down->rows);
  runExpertsDown(work, w, h, sharedH, tokens, used, weights, out);
}

static void registerSequence(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, auto body) { exports.Set(name, Napi::Function::New(env, body, name)); };
  add("compress", compress);
  add("selectEntries", selectEntries);
  add("attend", attend);
  add("route", route);
  add("expertsUp", expertsUp);
  add("expertsDown", expertsDown);
}

static Registration registration(&registerSequence);

}  // namespace ds4
