// Which kernel of native/cuda/decode-chain.cu runs a chain: one that is compiled for the types of its weights where there is one.
import type { DecodeChainArg } from "./decode-structs.ts";
import type { DeviceMatrix } from "./matrix.ts";

const [F16, Q8_0, Q2_K, Q4_K, IQ2_XXS] = [1, 8, 10, 12, 16];

/** Serves every type that a chain can read. */
const ANY = "decode_chain";

/** By type of the experts' gate and up and of their down: Q8_0, or F16 where attention, router and compressors may have it, are the rest. */
const KERNELS = [
  { name: "decode_chain_iq2xxs_q2k", up: IQ2_XXS, down: Q2_K },
  { name: "decode_chain_q4k_q4k", up: Q4_K, down: Q4_K },
] as const;

/** All of them. */
export const CHAIN_KERNELS: readonly string[] = [ANY, ...KERNELS.map(({ name }) => name)];

/** The name of the kernel for these steps. */
export function chainKernel({ products, route, up, down }: DecodeChainArg): string {
  const is = (type: number, ...matrices: DeviceMatrix[]) => matrices.every((matrix) => matrix.type === type);
  const isPublished =
    products.every(({ items }) => items.every(({ matrix }) => is(Q8_0, matrix) || is(F16, matrix))) &&
    (route === null || (is(F16, route.router) && is(Q8_0, route.sharedGate, route.sharedUp))) &&
    (down === null || is(Q8_0, down.sharedDown));
  if (!isPublished) return ANY;
  const fitting = KERNELS.find(
    (types) => (up === null || is(types.up, up.gate, up.up)) && (down === null || is(types.down, down.down)),
  );
  return fitting?.name ?? ANY;
}
