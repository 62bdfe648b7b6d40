// The compiled kernels: build/cuda/ds4.fatbin, one fatbin per source file, one after another.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Ds4Error } from "../../core/errors.ts";

const FATBIN_MAGIC = 0xba55ed50;
/** Magic, version, size of the header, size of what follows. */
const HEADER_BYTES = 16;
const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));

/** Where `npm run build:cuda` puts the kernels. */
export const KERNEL_IMAGE_PATH = join(ROOT, "build", "cuda", "ds4.fatbin");

/** Reads the kernels. Throws `cuda` when they were not built. */
export function readKernelImage(): Uint8Array {
  try {
    return readFileSync(KERNEL_IMAGE_PATH);
  } catch (error) {
    throw new Ds4Error("cuda", `no CUDA kernels at ${KERNEL_IMAGE_PATH}; build them: npm run build:cuda`, {
      cause: error,
    });
  }
}

/** The fatbins of an image. Throws `cuda` when it is damaged. */
export function splitKernelImage(image: Uint8Array): Uint8Array[] {
  const view = new DataView(image.buffer, image.byteOffset, image.byteLength);
  const parts: Uint8Array[] = [];
  for (let offset = 0; offset < image.length; ) {
    if (offset + HEADER_BYTES > image.length || view.getUint32(offset, true) !== FATBIN_MAGIC) {
      throw damaged(`no fatbin begins at byte ${offset}`);
    }
    const headerBytes = view.getUint16(offset + 6, true);
    const end = offset + headerBytes + Number(view.getBigUint64(offset + 8, true));
    if (headerBytes < HEADER_BYTES || end > image.length) {
      throw damaged(`it ends at byte ${image.length}, expected ${end}`);
    }
    // A copy of its own: the driver reads it in 8-byte words.
    parts.push(image.slice(offset, end));
    offset = end;
  }
  if (parts.length === 0) throw damaged("it is empty");
  return parts;
}

function damaged(found: string): Ds4Error {
  return new Ds4Error("cuda", `the CUDA kernels are damaged: ${found}; build them again: npm run build:cuda`);
}
