// JavaScript: new SpanReader(descriptors: number[], spans: Float64Array [file, offset, bytes] per span, options)
//   options: { bufferBytes, buffers, threads, bypassCache?, matrices?, pieces?, maxReadBytes?, failAtByte? }
//   pieces: Float64Array [span, offset within it, matrix, slice, rowBegin, rowCount] per piece, by span ascending:
//   rows that are packed into matrices[matrix] as their span arrives
//   .next(): Uint8Array | null   the next span's bytes, valid until the following call or close()
//   .direct, .stagingBytes       whether O_DIRECT is in use; bytes of all buffers
//   .close()                     waits for reads under way and frees everything; views become empty
// cachedFileBytes(descriptor): bytes of the file in the page cache
// A failed read throws an Error with `file`, `offsetBytes`, `expectedBytes`, `foundBytes` and `reason` ("" when the
// file ended early).
#include <cstring>
#include <system_error>

#include "addon/arguments.h"
#include "addon/matrix-glue.h"
#include "addon/register.h"
#include "cpu/packed_layout.h"
#include "residency/cached_bytes.h"
#include "residency/span_reader.h"

namespace ds4 {

namespace {

constexpr double kMaxOffset = 9e15;
constexpr double kMaxBufferBytes = 1 << 30;

int64_t option(const Napi::Object& options, const char* name, int64_t fallback, double min, double max) {
  return options.Get(name).IsUndefined() ? fallback : wholeNumber(options, name, min, max);
}

std::vector<int> descriptorsOf(const Napi::CallbackInfo& info) {
  if (!info[0].IsArray()) throw Napi::TypeError::New(info.Env(), "descriptors: expected an array");
  const auto list = info[0].As<Napi::Array>();
  std::vector<int> descriptors;
  for (uint32_t i = 0; i < list.Length(); i++) {
    const Napi::Value value = list[i];
    if (!value.IsNumber()) throw Napi::TypeError::New(info.Env(), "descriptors: expected numbers");
    descriptors.push_back(value.As<Napi::Number>().Int32Value());
  }
  return descriptors;
}

std::vector<ReadSpan> spansOf(const Napi::CallbackInfo& info, size_t files, double bufferBytes) {
  auto numbers = typedArray<Napi::Float64Array>(info, 1, "spans", napi_float64_array, 0);
  std::vector<ReadSpan> spans;
  const auto whole = [&](double value, double min, double max) {
    if (value >= min && value <= max && value == std::floor(value)) return static_cast<int64_t>(value);
    throw Napi::RangeError::New(info.Env(), "spans: span " + std::to_string(spans.size()) +
                                                ": expected a file, an offset, and bytes within the buffer");
  };
  for (size_t i = 0; i + 3 <= numbers.ElementLength(); i += 3) {
    const auto file = static_cast<int>(whole(numbers[i], 0, static_cast<double>(files) - 1));
    spans.push_back({file, whole(numbers[i + 1], 0, kMaxOffset), whole(numbers[i + 2], 1, bufferBytes)});
  }
  return spans;
}

/// Rows within a span and where they go.
struct Piece {
  size_t span, offset;
  PackedMatrix matrix;
  int64_t slice, rowBegin, rowCount;
};

struct PackingJob {
  std::vector<Piece> pieces;       // by span ascending
  std::vector<size_t> firstPiece;  // of each span, and the end

  void run(size_t span, const uint8_t* bytes) const {
    for (size_t i = firstPiece[span]; i < firstPiece[span + 1]; i++) {
      const Piece& piece = pieces[i];
      const PackedMatrix& matrix = piece.matrix;
      uint8_t* target = const_cast<uint8_t*>(matrix.data) + piece.slice * matrix.sliceBytes;
      packRows(matrix.type, matrix.cols, piece.rowBegin, piece.rowCount, bytes + piece.offset, target);
    }
  }
};

std::vector<std::shared_ptr<Arena>> arenasOf(Napi::Env env, const Napi::Array& matrices) {
  std::vector<std::shared_ptr<Arena>> arenas;
  for (uint32_t i = 0; i < matrices.Length(); i++) arenas.push_back(WeightMatrixObject::arenaOf(env, matrices[i]));
  return arenas;
}

/// Checks that every piece lies within its span and its matrix.
std::shared_ptr<PackingJob> packingOf(const Napi::Object& options, const std::vector<ReadSpan>& spans) {
  const Napi::Env env = options.Env();
  const auto matrices = options.Get("matrices").As<Napi::Array>();
  const Napi::Value list = options.Get("pieces");
  if (!list.IsTypedArray() || list.As<Napi::TypedArray>().TypedArrayType() != napi_float64_array) {
    throw Napi::TypeError::New(env, "pieces: expected a Float64Array");
  }
  const auto numbers = list.As<Napi::Float64Array>();
  auto job = std::make_shared<PackingJob>();
  const auto whole = [&](size_t at, double min, double max) {
    const double value = numbers[at];
    if (value >= min && value <= max && value == std::floor(value)) return static_cast<int64_t>(value);
    throw Napi::RangeError::New(env, "pieces: number " + std::to_string(at) + " is out of range");
  };
  for (size_t i = 0; i + 6 <= numbers.ElementLength(); i += 6) {
    const size_t least = job->pieces.empty() ? 0 : job->pieces.back().span;
    const auto span = static_cast<size_t>(whole(i, static_cast<double>(least), static_cast<double>(spans.size()) - 1));
    const auto index = static_cast<uint32_t>(whole(i + 2, 0, static_cast<double>(matrices.Length()) - 1));
    const PackedMatrix& matrix = WeightMatrixObject::unwrap(env, matrices[index]);
    const int64_t slice = whole(i + 3, 0, static_cast<double>(matrix.slices - 1));
    const int64_t begin = whole(i + 4, 0, static_cast<double>(matrix.rows - 1));
    const int64_t count = whole(i + 5, 1, static_cast<double>(matrix.rows - begin));
    const double bytes = static_cast<double>(fileRowBytes(matrix.type, matrix.cols)) * static_cast<double>(count);
    const auto offset = static_cast<size_t>(whole(i + 1, 0, static_cast<double>(spans[span].bytes) - bytes));
    if (begin % kPanelRows != 0 || (count % kPanelRows != 0 && begin + count != matrix.rows)) {
      throw Napi::RangeError::New(env, "pieces: expected rows in multiples of 16, or up to the last row");
    }
    while (job->firstPiece.size() <= span) job->firstPiece.push_back(job->pieces.size());
    job->pieces.push_back({span, offset, matrix, slice, begin, count});
  }
  while (job->firstPiece.size() <= spans.size()) job->firstPiece.push_back(job->pieces.size());
  return job;
}

class SpanReaderObject : public Napi::ObjectWrap<SpanReaderObject> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "SpanReader",
                       {InstanceMethod<&SpanReaderObject::next>("next"),
                        InstanceMethod<&SpanReaderObject::close>("close"),
                        InstanceAccessor<&SpanReaderObject::direct>("direct"),
                        InstanceAccessor<&SpanReaderObject::stagingBytes>("stagingBytes")});
  }

  explicit SpanReaderObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<SpanReaderObject>(info) {
    const Napi::Env env = info.Env();
    const std::vector<int> descriptors = descriptorsOf(info);
    const Napi::Object given = objectArgument(info, 2, "options");
    SpanReaderOptions options;
    options.bufferBytes = static_cast<size_t>(wholeNumber(given, "bufferBytes", 1, kMaxBufferBytes));
    options.buffers = static_cast<int>(wholeNumber(given, "buffers", 2, 64));
    options.threads = static_cast<int>(wholeNumber(given, "threads", 1, 64));
    const Napi::Value bypass = given.Get("bypassCache");
    options.bypassCache = bypass.IsUndefined() || bypass.ToBoolean();
    options.maxReadBytes = option(given, "maxReadBytes", 1 << 30, 1, 1 << 30);
    options.failAtByte = option(given, "failAtByte", -1, -1, kMaxOffset);
    const auto spans = spansOf(info, descriptors.size(), static_cast<double>(options.bufferBytes));
    if (given.Get("matrices").IsArray()) {
      arenas_ = arenasOf(env, given.Get("matrices").As<Napi::Array>());
      options.repack = [job = packingOf(given, spans)](size_t span, const uint8_t* bytes) { job->run(span, bytes); };
    }
    try {
      reader_ = std::make_unique<SpanReader>(descriptors, spans, options);
    } catch (const std::bad_alloc&) {
      const size_t bytes = SpanReader::stagingBytes(options.bufferBytes, options.buffers);
      throw Napi::Error::New(env, "the operating system refused " + std::to_string(bytes) + " bytes for reading");
    } catch (const std::system_error& error) {
      throw Napi::Error::New(env, error.what());
    }
    auto* kept = new std::shared_ptr<Staging>(reader_->staging());
    const auto drop = [](Napi::BasicEnv, void*, std::shared_ptr<Staging>* staging) { delete staging; };
    buffer_ = Napi::Persistent(Napi::ArrayBuffer::New(env, (*kept)->data(), (*kept)->bytes(), drop, kept));
    for (const auto& arena : arenas_) arena->writers++;
  }

  ~SpanReaderObject() override { stop(); }

 private:
  Napi::Value next(const Napi::CallbackInfo& info) {
    const Napi::Env env = info.Env();
    if (reader_ == nullptr) throw Napi::Error::New(env, "the SpanReader is closed");
    SpanReader::View view;
    if (reader_->next(&view)) return Napi::Uint8Array::New(env, view.bytes, buffer_.Value(), view.offset);
    if (const ReadFailure* failure = reader_->failure()) throw failed(env, *failure);
    return env.Null();
  }

  static Napi::Error failed(Napi::Env env, const ReadFailure& failure) {
    const std::string reason = failure.error == 0 ? "" : std::strerror(failure.error);
    Napi::Error error = Napi::Error::New(env, "a span could not be read");
    error.Set("file", Napi::Number::New(env, failure.file));
    error.Set("offsetBytes", Napi::Number::New(env, static_cast<double>(failure.offset)));
    error.Set("expectedBytes", Napi::Number::New(env, static_cast<double>(failure.expected)));
    error.Set("foundBytes", Napi::Number::New(env, static_cast<double>(failure.found)));
    error.Set("reason", Napi::String::New(env, reason));
    return error;
  }

  Napi::Value direct(const Napi::CallbackInfo& info) {
    return Napi::Boolean::New(info.Env(), reader_ != nullptr && reader_->direct());
  }

  Napi::Value stagingBytes(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), reader_ ? static_cast<double>(reader_->staging()->bytes()) : 0);
  }

  // Detached first: no view may point at memory that is gone.
  void close(const Napi::CallbackInfo&) {
    if (reader_ == nullptr) return;
    const std::shared_ptr<Staging> staging = reader_->staging();
    stop();
    buffer_.Value().Detach();
    buffer_.Reset();
    staging->release();
  }

  void stop() {
    if (reader_ == nullptr) return;
    reader_.reset();
    for (const auto& arena : arenas_) arena->writers--;
    arenas_.clear();
  }

  std::vector<std::shared_ptr<Arena>> arenas_;  // of the matrices; outlive the reader's threads
  std::unique_ptr<SpanReader> reader_;
  Napi::Reference<Napi::ArrayBuffer> buffer_;
};

Napi::Value cachedFileBytes(const Napi::CallbackInfo& info) {
  const auto descriptor = static_cast<int>(wholeNumber(info, 0, "descriptor", 0, 1 << 30));
  const int64_t bytes = cachedBytes(descriptor);
  if (bytes < 0) throw Napi::Error::New(info.Env(), std::strerror(static_cast<int>(-bytes)));
  return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

void registerSpans(Napi::Env env, Napi::Object exports) {
  exports.Set("SpanReader", SpanReaderObject::define(env));
  exports.Set("cachedFileBytes", Napi::Function::New(env, cachedFileBytes, "cachedFileBytes"));
}

Registration registration(&registerSpans);

}  // namespace

}  // namespace ds4
