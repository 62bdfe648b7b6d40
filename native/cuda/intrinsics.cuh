// The few instructions that C++ has no word for. Tests replace this file to run kernels on a processor.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ds4::cuda {

/// 16 bytes that are read once: they need not stay in the first-level cache.
__device__ __forceinline__ uint4 loadStream16(const uint8_t* from) {
  uint4 value;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(from));
  return value;
}

template <class Value>
__device__ __forceinline__ Value loadConstant(const void* from) {
  return __ldg(static_cast<const Value*>(from));
}

/// c += A [16, 32] times B [32, 8] of signed bytes. Lane l holds of A the rows l / 4 (a0, a2) and l / 4 + 8 (a1, a3), of
/// B the column l / 4; 4 bytes each of both halves of the inner dimension. Of c: rows l / 4 (c0, c1) and l / 4 + 8
/// (c2, c3), columns 2 * (l % 4) and the next.
__device__ __forceinline__ void multiplyTile(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The same product alone: c = A times B.
__device__ __forceinline__ void multiplyTileAlone(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

/// c += A [16, 8] times B [8, 8] of tf32 numbers (float32 whose last 13 bits do not count), float32 sums. Lane l holds of A
/// the rows l / 4 (a0, a2) and l / 4 + 8 (a1, a3), columns l % 4 (a0, a1) and l % 4 + 4; of B the column l / 4, rows
/// l % 4 and l % 4 + 4; of c as in multiplyTile.
__device__ __forceinline__ void multiplyTf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The nearest tf32 number.
__device__ __forceinline__ uint32_t toTf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits & 0xffffe000u;
}

/// Copies 16 bytes to shared memory without waiting.
__device__ __forceinline__ void copyAsync16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void closeCopyGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Adds 1 to a counter that starts again at 0 after `last`; the value before. What this warp wrote before is visible to who sees
/// the sum, and what others wrote before their additions is visible here afterwards.
__device__ __forceinline__ unsigned int countArrival(unsigned int* counter, unsigned int last) {
  unsigned int before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
  return before;
}

/// Adds to a counter; the value before. What this thread's block wrote before its last barrier is visible to who then sees the sum
/// by loadAcquire.
__device__ __forceinline__ unsigned int addRelease(unsigned int* counter, unsigned int value) {
  unsigned int before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(value) : "memory");
  return before;
}

__device__ __forceinline__ unsigned int loadAcquire(const unsigned int* counter) {
  unsigned int value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

/// Waits until at most `Pending` of the last groups are under way.
template <int Pending>
__device__ __forceinline__ void waitCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ __forceinline__ float halfBits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// Four bytes of the eight of (low, high), chosen by the low four nibbles of `selector`, each below 8.
__device__ __forceinline__ uint32_t pickBytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t picked;  // __byte_perm would mask the nibbles first
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(selector));
  return picked;
}

/// The same number, of which the compiler no longer knows how it came about.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  asm("" : "+r"(value));
  return value;
}

/// The same address, of which the compiler no longer knows what it points to: it is read as any other memory then.
template <class Value>
__device__ __forceinline__ const Value* opaque(const Value* address) {
  asm("" : "+l"(address));
  return address;
}

/// The kernel's dynamic shared memory.
__device__ __forceinline__ uint8_t* dynamicShared() {
  extern __shared__ uint4 ds4DynamicShared[];
  return reinterpret_cast<uint8_t*>(ds4DynamicShared);
}

}  // namespace ds4::cuda
