// Router: which experts a token goes to and with what weight. A warp per token; logits are read once (1 KiB per token of
// 256 experts): latency of `used` warp-wide maxima, nothing else.
#include "cuda/router-choice.cuh"

/// Warps of a block take tokens in turn. logits [tokens, experts] -> ids, weights [tokens, used]. Exactly one of bias
/// [experts] and table [vocab, used] (rows by tokenIds) is given. Where a score that matters is not finite, `flag`
/// becomes `mark` if it was 0, and the token's ids are 0, 1, … with weight 0. Shared: `experts` floats per warp.
extern "C" __global__ void __launch_bounds__(128)
    route(const float* __restrict__ logits, const float* __restrict__ bias, const int32_t* __restrict__ table,
          const int32_t* __restrict__ tokenIds, int32_t* ids, float* weights, int32_t* flag, int tokens, int experts,
          int used, float weightsScale, int normalize, int mark) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int warp = threadIdx.x / 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (token >= tokens) return;
  float* scores = reinterpret_cast<float*>(memory) + warp * experts;
  for (int e = threadIdx.x % 32; e < experts; e += 32) scores[e] = ds4::cuda::sqrtSoftplus(logits[token * experts + e]);
  __syncwarp();
  const ds4::cuda::RouterChoice router{bias, table, experts, used, weightsScale, normalize, mark, 0};
  ds4::cuda::chooseExperts(router, scores, tokenIds[token], ids + token * used, weights + token * used, flag);
}
