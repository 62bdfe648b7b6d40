import { describe, expect, it } from "vitest";
import { CHAIN_KERNELS, chainKernel } from "./chain-kernels.ts";
import type { DecodeChainArg } from "./decode-structs.ts";
import type { DeviceMatrix } from "./matrix.ts";

const [F32, F16, Q8_0, Q2_K, Q4_K, IQ2_XXS] = [0, 1, 8, 10, 12, 16];
const of = (type: number) => ({ type }) as DeviceMatrix;

/** A layer's chain; types of the experts' gate and up, of their down, of attention, of the router. */
function layer(up: number, down: number, dense = Q8_0, router = F16): DecodeChainArg {
  return {
    steps: [],
    products: [{ items: [{ matrix: of(dense) }, { matrix: of(F16) }] }],
    route: { router: of(router), sharedGate: of(Q8_0), sharedUp: of(Q8_0) },
    up: { gate: of(up), up: of(up) },
    down: { down: of(down), sharedDown: of(Q8_0) },
  } as unknown as DecodeChainArg;
}

describe("the kernel of a chain", () => {
  it("is one for the types of published files", () => {
    expect(chainKernel(layer(IQ2_XXS, Q2_K))).toBe("decode_chain_iq2xxs_q2k");
    expect(chainKernel(layer(Q4_K, Q4_K))).toBe("decode_chain_q4k_q4k");
  });

  it("serves all types where a weight is of another one", () => {
    const others = [
      layer(IQ2_XXS, Q4_K),
      layer(Q8_0, Q8_0),
      layer(IQ2_XXS, Q2_K, F32),
      layer(IQ2_XXS, Q2_K, Q4_K),
      layer(Q4_K, Q4_K, Q8_0, F32),
    ];
    expect(others.map(chainKernel)).toEqual(others.map(() => "decode_chain"));
  });

  it("is any that fits where a chain has no experts", () => {
    const head = { ...layer(Q4_K, Q4_K), route: null, up: null, down: null };
    expect(CHAIN_KERNELS.slice(1)).toContain(chainKernel(head));
  });
});
