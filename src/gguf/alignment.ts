// The alignment of a file's data section: the one metadata key that the container format itself depends on.
import { GgufError } from "../core/errors.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MIN_ALIGNMENT } from "./limits.ts";

/** `general.alignment` in bytes, or the default where it is absent. Throws GgufError unless it is a possible one. */
export function alignmentOf(name: string, metadata: ReadonlyMap<string, MetadataValue>): number {
  const value = metadata.get("general.alignment");
  if (value === undefined) return DEFAULT_ALIGNMENT;
  if (value.type !== "u32") {
    throw new GgufError(`${name}: general.alignment has type ${value.type}; expected u32`);
  }
  const alignment = value.value;
  // A power of two: alignment is at most 2^20 here, so bit operators are safe.
  if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) !== 0) {
    throw new GgufError(
      `${name}: general.alignment is ${alignment}; expected a power of two from ${MIN_ALIGNMENT} to ${MAX_ALIGNMENT}`,
    );
  }
  return alignment;
}
