// The environment variables that this program reads. An unknown DS4_* name is most likely a typing error or a
// switch of another program, so it is named instead of being ignored in silence.

/** Every variable with our prefix that is read anywhere, and what it does. */
export const ENVIRONMENT: Readonly<Record<string, string>> = {
  DS4_CPU_ISA: "generic, avx2, avx512 or neon: use these kernels instead of the best that the processor has",
  DS4_CUDA: "off: do not load the CUDA driver",
  DS4_NATIVE: "off: do not load the native addon; the plain TypeScript backend runs",
};

/** One warning naming the unknown DS4_* variables, or nothing. */
export function environmentWarning(environment: NodeJS.ProcessEnv): string | undefined {
  const unknown = Object.keys(environment).filter(
    (name) => name.startsWith("DS4_") && !(name in ENVIRONMENT),
  );
  if (unknown.length === 0) return undefined;
  const known = Object.keys(ENVIRONMENT).join(", ");
  return `warning: unknown environment variable ${unknown.sort().join(", ")} has no effect (known: ${known})`;
}
