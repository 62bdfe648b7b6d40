// Float16 tensor-core products and asynchronous copies: the few instructions that C++ has no word for.
// Tests replace this file to run kernels on a processor.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

namespace ds4::cuda {

/// c += A [16, 16] times B [16, 8], float32 sums. Lane l holds of A the rows l / 4 (a0, a2) and l / 4 + 8 (a1, a3),
/// columns 2 * (l % 4) and the next (a0, a1), 8 further (a2, a3); of B the column l / 4 and the same inner indices; of c
/// the rows as of A, columns 2 * (l % 4) and the next.
__device__ __forceinline__ void multiplyHalf(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Four 8 x 8 tiles of halves from shared memory: lane l gives the address of row l % 8 of tile l / 8 and receives of
/// each tile row l / 4, columns 2 * (l % 4) and the next.
__device__ __forceinline__ void loadTiles(uint32_t (&tiles)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// The same, each tile transposed: the lane receives column l / 4, rows 2 * (l % 4) and the next.
__device__ __forceinline__ void loadTilesTransposed(uint32_t (&tiles)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// Copies 16 bytes to shared memory without waiting; zeros when not `valid` (`global` is an address all the same).
__device__ __forceinline__ void copyOrZero16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

/// Waits for this thread's copies.
__device__ __forceinline__ void waitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Two floats as two halves.
__device__ __forceinline__ uint32_t packHalves(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

}  // namespace ds4::cuda
