// Steps without sequence state: products, hyper-connections, norms, rotation, embedding.
#include <algorithm>

#include "addon/register.h"
#include "addon/step-arguments.h"
#include "cpu/attention_steps.h"
#include "cpu/isa/op_set.h"

namespace ds4 {

// multiply(workspace, rows, x [rows, cols], matrices[], outs[]): outs[i] [rows, matrices[i].rows]; one input for all.
static void multiply(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t rows = args.count("rows", 1);
  const Napi::Array matrices = [&] {
    args.require(info[3].IsArray() && info[3].As<Napi::Array>().Length() > 0, "matrices: expected a non-empty array");
    return info[3].As<Napi::Array>();
  }();
  const PackedMatrix& first = WeightMatrixObject::unwrap(info.Env(), matrices.Get(0u));
  const float* x = args.floats("x", rows * first.cols);
  args.list("matrices");
  const Napi::Array outs = args.list("outs");
  args.require(outs.Length() == matrices.Length(), "outs: expected one per matrix");
  bool needInt = false;
  work.jobs.clear();
  for (uint32_t i = 0; i < matrices.Length(); i++) {
    const PackedMatrix& matrix = WeightMatrixObject::unwrap(info.Env(), matrices.Get(i));
    const Napi::Value out = outs.Get(i);
    args.require(matrix.cols == first.cols, "matrices: expected equal column counts");
    args.require(out.IsTypedArray() && out.As<Napi::TypedArray>().TypedArrayType() == napi_float32_array &&
                     out.As<Napi::TypedArray>().ElementLength() >= static_cast<size_t>(rows * matrix.rows),
                 "outs: expected Float32Arrays of rows x matrix rows");
    needInt |= !usesFloatInput(matrix.type);
    MatmulJob job;
    job.weight = &matrix;
    job.rowEnd = matrix.rows;
    job.input = &work.input;
    job.count = rows;
    job.out = out.As<Napi::Float32Array>().Data();
    job.outStride = matrix.rows;
    work.jobs.push_back(job);
  }
  work.input.prepare(x, rows, first.cols, first.cols, needInt, work.pool);
  runMatmuls(work.jobs.data(), work.jobs.size(), work.pool);
}

// multiplyGroups(workspace, rows, groups, matrix, x [rows, groups, cols], out [rows, groups, matrix.rows / groups])
static void multiplyGroups(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t rows = args.count("rows", 1), groups = args.count("groups", 1, 4096);
  const PackedMatrix& matrix = args.matrix();
  args.require(matrix.rows % groups == 0, "groups: expected a divisor of the matrix rows");
  const int64_t rank = matrix.rows / groups;
  args.require(rank % 16 == 0 || groups == 1, "groups: expected groups of a multiple of 16 rows");
  const float* x = args.floats("x", rows * groups * matrix.cols);
  float* out = args.floats("out", rows * matrix.rows);
  work.input.prepare(x, rows * groups, matrix.cols, matrix.cols, !usesFloatInput(matrix.type), work.pool);
  int32_t* lists = Workspace::room(work.rowToken, rows * groups);
  work.jobs.clear();
  for (int64_t group = 0; group < groups; group++) {
    MatmulJob job;
    job.weight = &matrix;
    job.rowBegin = group * rank;
    job.rowEnd = (group + 1) * rank;
    job.input = &work.input;
    for (int64_t row = 0; row < rows; row++) lists[group * rows + row] = static_cast<int32_t>(row * groups + group);
    job.inputRows = lists + group * rows;
    job.count = rows;
    job.out = out + group * rank;
    job.outStride = matrix.rows;
    work.jobs.push_back(job);
  }
  runMatmuls(work.jobs.data(), work.jobs.size(), work.pool);
}

// embed(workspace, tokens, copies, matrix, ids, streams [tokens, copies, cols])
static void embed(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t tokens = args.count("tokens", 1), copies = args.count("copies", 1, 64);
  const PackedMatrix& matrix = args.matrix();
  const int32_t* ids = args.ints("ids", tokens);
  float* streams = args.floats("streams", tokens * copies * matrix.cols);
  for (int64_t token = 0; token < tokens; token++) {
    args.require(ids[token] >= 0 && ids[token] < matrix.rows, "ids: a token id is outside the embedding");
  }
  work.pool.run(tokens, [&](int64_t token, int) {
    float* target = streams + token * copies * matrix.cols;
    unpackRow(matrix, 0, ids[token], target);
    for (int64_t copy = 1; copy < copies; copy++) std::copy_n(target, matrix.cols, target + copy * matrix.cols);
  });
}

namespace {

// The part of the arguments that both kinds of hyper-connection read share:
// (workspace, tokens, n, hidden, fn, base, scale, normWeight, normEpsilon, hyperEpsilon, iterations, streams, …)
struct HyperArguments {
  Workspace& work;
  int64_t tokens;
  HyperRead read;
  const float* streams;
  float* mixes;
};

HyperArguments hyperArguments(StepArguments& args, bool atHead) {
  Workspace& work = args.workspace();
  const int64_t tokens = args.count("tokens", 1), n = args.count("n", 1, 8), hidden = args.count("hidden", 1);
  const PackedMatrix& fn = args.matrix();
  const int64_t rows = atHead ? n : 2 * n + n * n;
  args.require(fn.rows == rows && fn.cols == n * hidden, "fn: unexpected shape");
  HyperRead read{};
  read.n = static_cast<int>(n);
  read.hidden = hidden;
  read.base = args.floats("base", rows);
  read.scale = args.floats("scale", atHead ? 1 : 3);
  read.normWeight = args.floats("normWeight", hidden);
  read.normEpsilon = args.real("normEpsilon");
  read.hyperEpsilon = args.real("hyperEpsilon");
  read.sinkhornIterations = static_cast<int>(args.count("iterations", 0, 1000));
  const float* streams = args.floats("streams", tokens * n * hidden);
  float* mixes = Workspace::room(work.mixes, tokens * rows);
  work.input.prepare(streams, tokens, n * hidden, n * hidden, !usesFloatInput(fn.type), work.pool);
  MatmulJob job;
  job.weight = &fn;
  job.rowEnd = rows;
  job.input = &work.input;
  job.count = tokens;
  job.out = mixes;
  job.outStride = rows;
  runMatmuls(&job, 1, work.pool);
  return {work, tokens, read, streams, mixes};
}

}  // namespace

// readStreams(…, streams, x [tokens, hidden], post [tokens, n], comb [tokens, n, n])
static void readStreams(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  const HyperArguments h = hyperArguments(args, false);
  const int64_t n = h.read.n, hidden = h.read.hidden, rows = 2 * n + n * n;
  float* x = args.floats("x", h.tokens * hidden);
  float* post = args.floats("post", h.tokens * n);
  float* comb = args.floats("comb", h.tokens * n * n);
  const OpSet& set = ops();
  h.work.pool.run(h.tokens, [&](int64_t t, int) {
    set.readStreams(h.read, h.streams + t * n * hidden, h.mixes + t * rows, x + t * hidden, post + t * n,
                    comb + t * n * n);
  });
}

// readHead(…, streams, x [tokens, hidden])
static void readHead(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  const HyperArguments h = hyperArguments(args, true);
  const int64_t n = h.read.n, hidden = h.read.hidden;
  float* x = args.floats("x", h.tokens * hidden);
  const OpSet& set = ops();
  h.work.pool.run(h.tokens, [&](int64_t t, int) {
    set.readHead(h.read, h.streams + t * n * hidden, h.mixes + t * n, x + t * hidden);
  });
}

// writeStreams(workspace, tokens, n, hidden, streams, out [tokens, hidden], post, comb)
static void writeStreams(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t tokens = args.count("tokens", 1), n = args.count("n", 1, 8), hidden = args.count("hidden", 1);
  float* streams = args.floats("streams", tokens * n * hidden);
  const float* out = args.floats("out", tokens * hidden);
  const float* post = args.floats("post", tokens * n);
  const float* comb = args.floats("comb", tokens * n * n);
  const OpSet& set = ops();
  work.pool.run(tokens, [&](int64_t t, int) {
    set.writeStreams(static_cast<int>(n), hidden, streams + t * n * hidden, out + t * hidden, post + t * n,
                     comb + t * n * n);
  });
}

// normRows(workspace, rows, width, x, weight | null, epsilon)
static void normRows(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t rows = args.count("rows", 1), width = args.count("width", 1);
  float* x = args.floats("x", rows * width);
  const float* weight = args.optionalFloats("weight", width);
  const float epsilon = args.real("epsilon");
  const OpSet& set = ops();
  work.pool.run(rows, [&](int64_t row, int) { set.normRow(x + row * width, width, weight, epsilon); });
}

// ropeTable(tokens, pairs, positions, frequencies, cosines [tokens, pairs], sines)
static void fillRopeTable(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  const int64_t tokens = args.count("tokens", 1), pairs = args.count("pairs", 0, 256);
  const int32_t* positions = args.ints("positions", tokens);
  const float* frequencies = args.floats("frequencies", pairs);
  float* cosines = args.floats("cosines", tokens * pairs);
  float* sines = args.floats("sines", tokens * pairs);
  ropeTable(positions, tokens, frequencies, static_cast<int>(pairs), cosines, sines);
}

// rotateHeads(workspace, tokens, heads, dim, pairs, rows, cosines, sines, normalize, epsilon, inverse)
static void rotateHeadRows(const Napi::CallbackInfo& info) {
  StepArguments args(info);
  Workspace& work = args.workspace();
  const int64_t tokens = args.count("tokens", 1), heads = args.count("heads", 1), dim = args.count("dim", 1);
  const int64_t pairs = args.count("pairs", 0, static_cast<double>(dim / 2));
  float* rows = args.floats("rows", tokens * heads * dim);
  const float* cosines = args.floats("cosines", tokens * pairs);
  const float* sines = args.floats("sines", tokens * pairs);
  const bool normalize = args.flag("normalize");
  const float epsilon = args.real("epsilon");
  const bool inverse = args.flag("inverse");
  rotateHeads(work, rows, tokens, heads, dim, cosines, sines, static_cast<int>(pairs), normalize, epsilon, inverse);
}

static void registerDense(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, void (*body)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, body, name));
  };
  add("multiply", multiply);
  add("multiplyGroups", multiplyGroups);
  add("embed", embed);
  add("readStreams", readStreams);
  add("readHead", readHead);
  add("writeStreams", writeStreams);
  add("normRows", normRows);
  add("ropeTable", fillRopeTable);
  add("rotateHeads", rotateHeadRows);
}

static Registration registration(&registerDense);

}  // namespace ds4
