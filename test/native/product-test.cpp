// Products of every packable type against double-precision sums over unpacked rows.
#include <algorithm>
#include <cstring>
#include <memory>

#include "common/half.h"
#include "cpu/matmul.h"
#include "kernel-test.h"

namespace ds4 {

namespace {

struct TypeCase {
  TensorType type;
  const char* name;
  int blockCols, blockBytes;
};

constexpr TypeCase kTypes[] = {
    {TensorType::F32, "F32", 1, 4},       {TensorType::F16, "F16", 1, 2},
    {TensorType::BF16, "BF16", 1, 2},     {TensorType::Q8_0, "Q8_0", 32, 34},
    {TensorType::MXFP4, "MXFP4", 32, 17}, {TensorType::Q2_K, "Q2_K", 256, 84},
    {TensorType::Q4_K, "Q4_K", 256, 144}, {TensorType::IQ2_XXS, "IQ2_XXS", 256, 66},
};

void putHalf(Random& random, uint8_t* to, float scale) {
  // Zero and subnormal scales occur in real files: unused blocks, tiny weights.
  const int kind = random.below(16);
  const float value = kind == 0 ? 0.0f : kind == 1 ? 3e-6f * random.value() : scale * random.value();
  const uint16_t bits = floatToHalf(value);
  std::memcpy(to, &bits, 2);
}

// Any bytes are valid quants; scales are made finite.
void fillBlock(const TypeCase& kind, Random& random, uint8_t* block) {
  for (int i = 0; i < kind.blockBytes; i++) block[i] = static_cast<uint8_t>(random.bits());
  const float value = random.value();
  switch (kind.type) {
    case TensorType::F32: std::memcpy(block, &value, 4); break;
    case TensorType::F16: putHalf(random, block, 1.0f); break;
    case TensorType::BF16: {
      const uint16_t bits = floatToBfloat(value);
      std::memcpy(block, &bits, 2);
      break;
    }
    case TensorType::MXFP4: block[0] = random.below(16) == 0 ? 0 : static_cast<uint8_t>(110 + random.below(20)); break;
    case TensorType::Q2_K: putHalf(random, block + 80, 0.02f), putHalf(random, block + 82, 0.02f); break;
    case TensorType::Q4_K: putHalf(random, block, 0.01f), putHalf(random, block + 2, 0.01f); break;
    default: putHalf(random, block, 0.05f);
  }
}

// A packed tensor whose last slice ends where its memory ends.
struct Weights {
  Weights(const TypeCase& kind, int64_t slices, int64_t rows, int64_t cols, Random& random) {
    const size_t rowBytes = fileRowBytes(kind.type, cols), sliceBytes = packedSliceBytes(kind.type, rows, cols);
    memory.resize(slices * sliceBytes + 64);
    uint8_t* data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    matrix = {kind.type, slices, rows, cols, data, sliceBytes};
    std::vector<uint8_t> file(rows * rowBytes);
    for (int64_t slice = 0; slice < slices; slice++) {
      for (size_t at = 0; at < file.size(); at += kind.blockBytes) fillBlock(kind, random, file.data() + at);
      // In two pieces where possible, as loading does.
      const int64_t first = rows > 16 ? 16 : rows;
      packRows(kind.type, cols, 0, first, file.data(), data + slice * sliceBytes);
      if (rows > first) {
        packRows(kind.type, cols, first, rows - first, file.data() + first * rowBytes, data + slice * sliceBytes);
      }
    }
  }

  std::vector<uint8_t> memory;
  PackedMatrix matrix;
};

// Column `col` of the activations as the product is defined to see it.
double inputValue(const PreparedInput& input, bool isFloat, int64_t row, int64_t col) {
  if (isFloat) return input.x[row * input.stride + col];
  return static_cast<double>(input.scales[row * (input.cols / 32) + col / 32]) * input.quants[row * input.cols + col];
}

void testMatrix(Report& report, const TypeCase& kind, int64_t rows, int64_t cols, int64_t count, Random& random) {
  const int64_t slices = 2, slice = random.below(2), stride = cols + 5;
  const Weights weights(kind, slices, rows, cols, random);
  const bool isFloat = usesFloatInput(kind.type);
  const std::vector<float> x = random.values((count + 3) * stride, 2.0f);
  std::vector<int32_t> list;
  for (int64_t i = 0; i < count; i++) list.push_back(random.below(static_cast<int>(count + 3)));
  // From the second panel on where there is one.
  const int64_t begin = rows > 32 ? 16 : 0, width = rows - begin;
  std::vector<double> expected(count * width), bounds(count * width);
  std::vector<float> unpacked(cols), first;
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    PreparedInput input;
    input.prepare(x.data(), count + 3, cols, stride, !isFloat, pool);
    MatmulJob job;
    job.weight = &weights.matrix;
    job.slice = slice;
    job.rowBegin = begin;
    job.rowEnd = rows;
    job.input = &input;
    job.inputRows = list.data();
    job.count = count;
    std::vector<float> out(count * width, 99.0f);
    job.out = out.data();
    job.outStride = width;
    runMatmuls(&job, 1, pool);
    for (int64_t row = begin; threads == 1 && row < rows; row++) {
      unpackRow(weights.matrix, slice, row, unpacked.data());
      for (int64_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        for (int64_t col = 0; col < cols; col++) {
          const double product = unpacked[col] * inputValue(input, isFloat, list[i], col);
          sum += product;
          size += std::fabs(product);
        }
        expected[i * width + row - begin] = sum;
        // Float32 sums of the products' parts (quant part and minimum part may cancel): some units of 2^-24.
        bounds[i * width + row - begin] = 2e-6 * size + 1e-6;
      }
    }
    // To the bit: what is evaluated beside a row, or in how many pieces, must not change an answer.
    std::vector<float> alone(count * width, 99.0f);
    for (int64_t i = 0; threads == 1 && i < count; i++) {
      MatmulJob one = job;
      one.inputRows = list.data() + i;
      one.count = 1;
      one.out = alone.data() + i * width;
      runMatmuls(&one, 1, pool);
    }
    if (threads == 1) {
      report.compare(out, {alone.begin(), alone.end()}, std::vector<double>(out.size(), 0.0),
                     "%s [%d, %d] x %d rows: a row alone differs", kind.name, static_cast<int>(rows),
                     static_cast<int>(cols), static_cast<int>(count));
    }
    report.compare(out, expected, bounds, "%s [%d, %d] x %d rows, %d threads", kind.name, static_cast<int>(rows),
                   static_cast<int>(cols), static_cast<int>(count), threads);
    if (threads == 1) first = out;
    else report.compare(out, {first.begin(), first.end()}, std::vector<double>(out.size(), 0.0),
                        "%s [%d, %d] x %d rows: one and two threads differ", kind.name, static_cast<int>(rows),
                        static_cast<int>(cols), static_cast<int>(count));
  }
}

// The int8 form is the nearest one: no value is off by more than half a step.
void testQuantization(Report& report, Random& random) {
  const int64_t rows = 3, cols = 96;
  std::vector<float> x = random.values(rows * cols, 5.0f);
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  ThreadPool pool(1);
  PreparedInput input;
  input.prepare(x.data(), rows, cols, cols, true, pool);
  std::vector<double> expected, bounds;
  for (int64_t i = 0; i < rows * cols; i++) {
    expected.push_back(inputValue(input, false, i / cols, i % cols));
    bounds.push_back(0.5001 * input.scales[i / 32]);
  }
  report.compare(x, expected, bounds, "int8 activations");
}

// A NaN or an infinity among the activations must show in every output, never become a plausible number.
void testNotFinite(Report& report, const TypeCase& kind, Random& random) {
  const Weights weights(kind, 1, 16, 256, random);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = random.values(256), out(16);
    x[100] = bad;
    ThreadPool pool(1);
    PreparedInput input;
    input.prepare(x.data(), 1, 256, 256, true, pool);
    MatmulJob job;
    job.weight = &weights.matrix;
    job.rowEnd = 16;
    job.input = &input;
    job.count = 1;
    job.out = out.data();
    job.outStride = 16;
    runMatmuls(&job, 1, pool);
    for (float& value : out) value = std::isfinite(value) ? 1 : NAN;
    report.compare(out, std::vector<double>(16, NAN), std::vector<double>(16), "%s with %g", kind.name, static_cast<double>(bad));
  }
}

}  // namespace

void testProducts(Report& report) {
  Random random(1);
  testQuantization(report, random);
  for (const TypeCase& kind : kTypes) {
    const int64_t block = kind.blockCols;
    std::vector<int64_t> widths = {256, 768};
    if (block == 32) widths.insert(widths.end(), {32, 96, 544});
    if (block == 1) widths.insert(widths.end(), {1, 3, 37, 290});
    for (const int64_t cols : widths) {
      for (const int64_t rows : {1, 16, 23, 50}) {
        for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 13}) testMatrix(report, kind, rows, cols, count, random);
      }
    }
    testNotFinite(report, kind, random);
    // More activation rows than one pass takes.
    testMatrix(report, kind, 20, 256, 145, random);
  }
}

}  // namespace ds4
