// Kernels that are wrong on purpose, and what they look like right: for emulation.test.ts.
#include "cuda/copies.cuh"
#include "cuda/intrinsics.cuh"

namespace {

/// Shared memory that nobody wrote, static and dynamic.
__device__ float sumOfShared(const float* dynamic) {
  __shared__ float values[2];
  if (threadIdx.x == 0) values[0] = 1.0f;
  __syncthreads();
  return values[threadIdx.x] + dynamic[threadIdx.x];
}

}  // namespace

/// out [2]: of thread 0, who wrote what it reads, and of thread 1, who did not. A block of 2.
extern "C" __global__ void test_unwritten(float* out) {
  float* dynamic = reinterpret_cast<float*>(ds4::cuda::dynamicShared());
  if (threadIdx.x == 0) dynamic[0] = 2.0f;
  __syncthreads();
  out[2 * blockIdx.x + threadIdx.x] = sumOfShared(dynamic);
}

/// out [1] = the first float of the vector at `from` + `skip` bytes.
extern "C" __global__ void test_vector_load(float* out, const uint8_t* from, int skip) {
  *out = reinterpret_cast<const float4*>(from + skip)->x;
}

/// Half of the block waits for the other half, which ends at a shuffle of all lanes of a warp, of which one waits as well.
extern "C" __global__ void test_deadlock(float* out) {
  if (threadIdx.x < 33) __syncthreads();
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}

/// Lanes of a warp at different instructions.
extern "C" __global__ void test_mixed_instructions(float* out) {
  if (threadIdx.x < 16) __syncwarp();
  else out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

/// out [blocks] = 1 + the number of blocks, once all have come.
extern "C" __global__ void test_grid_meeting(int* out, unsigned int* counter) {
  if (threadIdx.x == 0) {
    ds4::cuda::addRelease(counter, 1);
    while (ds4::cuda::loadAcquire(counter) < gridDim.x) {
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(*counter) + 1;
}

/// One value behind `count` of them.
extern "C" __global__ void test_write_behind(float* out, int count) { out[count] = 1.0f; }

/// Reads a value of an array of eight.
extern "C" __global__ void test_index(float* out, int index) {
  __shared__ float values[8];
  values[threadIdx.x] = 1.0f;
  *out = values[index];
}

/// out [2]: a copied value before and after its arrival was waited for. `from` holds 4 floats.
extern "C" __global__ void test_early_read(float* out, const float* from) {
  __shared__ float4 place;
  ds4::cuda::copyAsync16(&place, from);
  ds4::cuda::closeCopyGroup();
  out[0] = place.x;
  ds4::cuda::waitCopyGroups<0>();
  out[1] = place.x;
}
