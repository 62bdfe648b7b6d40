#include "addon/matrix-glue.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

#include "addon/arguments.h"
#include "addon/register.h"
#include "cpu/packed_layout.h"

namespace ds4 {

namespace {

constexpr double kMaxBytes = 1e13;
constexpr double kMaxDim = 1 << 28;
constexpr size_t kHugePage = 2 << 20;

// One tag per class, so that a wrong object is a TypeError and not a wrong cast.
constexpr napi_type_tag kArenaTag = {0x6473347473617265, 0x6e61000000000001};
constexpr napi_type_tag kMatrixTag = {0x64733474736d6174, 0x7269780000000001};
constexpr napi_type_tag kWorkspaceTag = {0x6473347473776f72, 0x6b00000000000001};

template <class Object>
Object* unwrapTagged(Napi::Env env, const Napi::Value& value, const napi_type_tag& tag, const char* name) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&tag)) {
    throw Napi::TypeError::New(env, std::string("expected a ") + name);
  }
  return Object::Unwrap(value.As<Napi::Object>());
}

}  // namespace

Arena::Arena(size_t bytes) : bytes_(bytes) {
  const size_t mapped = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(memory, mapped, MADV_HUGEPAGE);  // a hint: fewer address-translation misses on 100 GB of weights
#endif
  data_ = static_cast<uint8_t*>(memory);
}

void Arena::release() {
  if (data_ != nullptr) munmap(data_, (bytes_ + kHugePage - 1) / kHugePage * kHugePage);
  data_ = nullptr;
}

Napi::Function WeightArenaObject::define(Napi::Env env) {
  return DefineClass(env, "WeightArena",
                     {InstanceAccessor<&WeightArenaObject::bytes>("bytes"),
                      InstanceAccessor<&WeightArenaObject::address>("address"),
                      InstanceMethod<&WeightArenaObject::close>("close")});
}

WeightArenaObject::WeightArenaObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<WeightArenaObject>(info) {
  const int64_t bytes = wholeNumber(info, 0, "bytes", 1, kMaxBytes);
  try {
    arena_ = std::make_shared<Arena>(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    throw Napi::Error::New(info.Env(), "the operating system refused " + std::to_string(bytes) + " bytes");
  }
  info.This().As<Napi::Object>().TypeTag(&kArenaTag);
}

std::shared_ptr<Arena> WeightArenaObject::unwrap(Napi::Env env, const Napi::Value& value) {
  auto* object = unwrapTagged<WeightArenaObject>(env, value, kArenaTag, "WeightArena");
  if (object->arena_ == nullptr) throw Napi::Error::New(env, "the WeightArena is closed");
  return object->arena_;
}

Napi::Value WeightArenaObject::bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), arena_ ? static_cast<double>(arena_->bytes()) : 0);
}

// A number keeps every user-space address exactly: they are below 2^53.
Napi::Value WeightArenaObject::address(const Napi::CallbackInfo& info) {
  const uintptr_t address = arena_ ? reinterpret_cast<uintptr_t>(arena_->data()) : 0;
  return Napi::Number::New(info.Env(), static_cast<double>(address));
}

// Now, not when the matrices made from it are collected: a model may be many gigabytes. They notice.
void WeightArenaObject::close(const Napi::CallbackInfo& info) {
  if (arena_ != nullptr && arena_->writers > 0) {
    throw Napi::Error::New(info.Env(), "the WeightArena is being filled: close its SpanReader first");
  }
  if (arena_ != nullptr) arena_->release();
  arena_.reset();
}

Napi::Function WeightMatrixObject::define(Napi::Env env) {
  return DefineClass(env, "WeightMatrix",
                     {InstanceMethod<&WeightMatrixObject::pack>("packRows"),
                      InstanceMethod<&WeightMatrixObject::unpack>("unpackRow")});
}

WeightMatrixObject::WeightMatrixObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<WeightMatrixObject>(info) {
  const Napi::Env env = info.Env();
  arena_ = WeightArenaObject::unwrap(env, info[0]);
  const int64_t offset = wholeNumber(info, 1, "offsetBytes", 0, kMaxBytes);
  const auto type = static_cast<TensorType>(wholeNumber(info, 2, "typeId", 0, 1000));
  const int64_t slices = wholeNumber(info, 3, "slices", 1, 1 << 20);
  const int64_t rows = wholeNumber(info, 4, "rows", 1, kMaxDim);
  const int64_t cols = wholeNumber(info, 5, "cols", 1, kMaxDim);
  if (!isPackable(type) || fileRowBytes(type, cols) == 0) {
    throw Napi::RangeError::New(env, "a row of " + std::to_string(cols) + " columns of tensor type " +
                                         std::to_string(static_cast<int>(type)) + " cannot be packed");
  }
  const size_t sliceBytes = packedSliceBytes(type, rows, cols);
  if (offset % 64 != 0 || static_cast<double>(offset) + static_cast<double>(sliceBytes) * slices > arena_->bytes()) {
    throw Napi::RangeError::New(env, "offsetBytes: the matrix would not lie within the arena on a 64-byte boundary");
  }
  matrix_ = {type, slices, rows, cols, arena_->data() + offset, sliceBytes};
  info.This().As<Napi::Object>().TypeTag(&kMatrixTag);
}

const PackedMatrix& WeightMatrixObject::unwrap(Napi::Env env, const Napi::Value& value) {
  auto* object = unwrapTagged<WeightMatrixObject>(env, value, kMatrixTag, "WeightMatrix");
  object->checkOpen(env);
  return object->matrix_;
}

std::shared_ptr<Arena> WeightMatrixObject::arenaOf(Napi::Env env, const Napi::Value& value) {
  unwrap(env, value);
  return Unwrap(value.As<Napi::Object>())->arena_;
}

void WeightMatrixObject::checkOpen(Napi::Env env) const {
  if (arena_->data() == nullptr) throw Napi::Error::New(env, "the WeightArena of this WeightMatrix is closed");
}

// packRows(workspace, slice, rowBegin, rowCount, sourceBytes)
void WeightMatrixObject::pack(const Napi::CallbackInfo& info) {
  checkOpen(info.Env());
  ThreadPool& pool = WorkspaceObject::unwrap(info.Env(), info[0]).pool;
  const int64_t slice = wholeNumber(info, 1, "slice", 0, static_cast<double>(matrix_.slices - 1));
  const int64_t begin = wholeNumber(info, 2, "rowBegin", 0, static_cast<double>(matrix_.rows - 1));
  const int64_t count = wholeNumber(info, 3, "rowCount", 1, static_cast<double>(matrix_.rows - begin));
  if (begin % kPanelRows != 0 || (count % kPanelRows != 0 && begin + count != matrix_.rows)) {
    throw Napi::RangeError::New(info.Env(), "rowBegin and rowCount: expected multiples of 16, or to reach the last row");
  }
  const size_t rowBytes = fileRowBytes(matrix_.type, matrix_.cols);
  auto source = typedArray<Napi::Uint8Array>(info, 4, "sourceBytes", napi_uint8_array, rowBytes * count);
  uint8_t* target = const_cast<uint8_t*>(matrix_.data) + slice * matrix_.sliceBytes;
  const uint8_t* bytes = source.Data();
  pool.run((count + kPanelRows - 1) / kPanelRows, [&](int64_t panel, int) {
    const int64_t first = panel * kPanelRows;
    packRows(matrix_.type, matrix_.cols, begin + first, std::min<int64_t>(kPanelRows, count - first),
             bytes + first * rowBytes, target);
  });
}

// unpackRow(slice, row, target: Float32Array)
void WeightMatrixObject::unpack(const Napi::CallbackInfo& info) {
  checkOpen(info.Env());
  const int64_t slice = wholeNumber(info, 0, "slice", 0, static_cast<double>(matrix_.slices - 1));
  const int64_t row = wholeNumber(info, 1, "row", 0, static_cast<double>(matrix_.rows - 1));
  auto target = typedArray<Napi::Float32Array>(info, 2, "target", napi_float32_array, matrix_.cols);
  ds4::unpackRow(matrix_, slice, row, target.Data());
}

Napi::Function WorkspaceObject::define(Napi::Env env) {
  return DefineClass(env, "Workspace",
                     {InstanceAccessor<&WorkspaceObject::threads>("threads"),
                      InstanceAccessor<&WorkspaceObject::bytes>("bytes"),
                      InstanceMethod<&WorkspaceObject::reserve>("reserve"),
                      InstanceMethod<&WorkspaceObject::close>("close")});
}

WorkspaceObject::WorkspaceObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<WorkspaceObject>(info) {
  workspace_ = std::make_unique<Workspace>(static_cast<int>(wholeNumber(info, 0, "threads", 1, 1024)));
  info.This().As<Napi::Object>().TypeTag(&kWorkspaceTag);
}

Workspace& WorkspaceObject::unwrap(Napi::Env env, const Napi::Value& value) {
  auto* object = unwrapTagged<WorkspaceObject>(env, value, kWorkspaceTag, "Workspace");
  if (object->workspace_ == nullptr) throw Napi::Error::New(env, "the Workspace is closed");
  return *object->workspace_;
}

Napi::Value WorkspaceObject::threads(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), workspace_ ? workspace_->pool.size() : 0);
}

// reserve({ inputValues, sharedInputValues, mixes, rowToken, slotRow, expertBegin, identity, gate, down })
void WorkspaceObject::reserve(const Napi::CallbackInfo& info) {
  Workspace& work = unwrap(info.Env(), info.This());
  const Napi::Object given = objectArgument(info, 0, "counts");
  constexpr double kMaxCount = 1ull << 40;
  const auto count = [&](const char* name) { return wholeNumber(given, name, 0, kMaxCount); };
  Workspace::Counts counts{};
  counts.inputValues = count("inputValues");
  counts.sharedInputValues = count("sharedInputValues");
  counts.mixes = count("mixes");
  counts.rowToken = count("rowToken");
  counts.slotRow = count("slotRow");
  counts.expertBegin = count("expertBegin");
  counts.identity = count("identity");
  counts.gate = count("gate");
  counts.down = count("down");
  try {
    work.reserve(counts);
  } catch (const std::exception&) {
    throw Napi::Error::New(info.Env(), "the operating system refused the memory of the workspace");
  }
}

Napi::Value WorkspaceObject::bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), workspace_ ? static_cast<double>(workspace_->bytes()) : 0);
}

void WorkspaceObject::close(const Napi::CallbackInfo&) { workspace_.reset(); }

static Napi::Value levelName(const Napi::CallbackInfo& info) {
  try {
    return Napi::String::New(info.Env(), kernelLevelName());
  } catch (const std::invalid_argument& error) {
    throw Napi::Error::New(info.Env(), error.what());
  }
}

// multiplyForTest(workspace, matrix, slice, rowBegin, rowEnd, x, xRows, inputRows | null) -> Float32Array [count, rows]
static Napi::Value multiplyForTest(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  ThreadPool& pool = WorkspaceObject::unwrap(env, info[0]).pool;
  const PackedMatrix& matrix = WeightMatrixObject::unwrap(env, info[1]);
  MatmulJob job;
  job.weight = &matrix;
  job.slice = wholeNumber(info, 2, "slice", 0, static_cast<double>(matrix.slices - 1));
  job.rowBegin = wholeNumber(info, 3, "rowBegin", 0, static_cast<double>(matrix.rows - 1));
  job.rowEnd = wholeNumber(info, 4, "rowEnd", static_cast<double>(job.rowBegin + 1), static_cast<double>(matrix.rows));
  const int64_t rows = wholeNumber(info, 6, "xRows", 1, 1 << 20);
  auto x = typedArray<Napi::Float32Array>(info, 5, "x", napi_float32_array, rows * matrix.cols);
  PreparedInput input;
  input.prepare(x.Data(), rows, matrix.cols, matrix.cols, !usesFloatInput(matrix.type), pool);
  job.input = &input;
  job.count = rows;
  if (!info[7].IsNull()) {
    auto list = typedArray<Napi::Int32Array>(info, 7, "inputRows", napi_int32_array, 1);
    for (size_t i = 0; i < list.ElementLength(); i++) {
      if (list[i] < 0 || list[i] >= rows) throw Napi::RangeError::New(env, "inputRows: an index is out of range");
    }
    job.inputRows = list.Data();
    job.count = static_cast<int64_t>(list.ElementLength());
  }
  job.outStride = job.rowEnd - job.rowBegin;
  Napi::Float32Array out = Napi::Float32Array::New(env, job.count * job.outStride);
  job.out = out.Data();
  runMatmuls(&job, 1, pool);
  return out;
}

static void registerMatrix(Napi::Env env, Napi::Object exports) {
  exports.Set("WeightArena", WeightArenaObject::define(env));
  exports.Set("WeightMatrix", WeightMatrixObject::define(env));
  exports.Set("Workspace", WorkspaceObject::define(env));
  exports.Set("kernelLevelName", Napi::Function::New(env, levelName));
  exports.Set("multiplyForTest", Napi::Function::New(env, multiplyForTest));
}

static Registration registration(&registerMatrix);

}  // namespace ds4
