// The composition root of the engine: which backend runs a file. Runs inside the worker thread.
import type { Backend } from "../backend/backend.ts";
import { createCpuBackend } from "../backend/cpu/cpu-backend.ts";
import { loadNative } from "../backend/native.ts";
import { createReferenceBackend } from "../backend/reference/reference-backend.ts";
import { Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import type { LoadOptions } from "../residency/load-weights.ts";
import type { EngineParts } from "../session/engine-loop.ts";
import type { EngineWorkerOptions } from "../session/engine-protocol.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";

/** Opens file, tokenizer and backend. Throws their errors; nothing stays open on failure. */
export function openParts(options: EngineWorkerOptions, onProgress?: ProgressListener): EngineParts {
  const file = openGguf(options.modelPath);
  try {
    const tokenizer = tokenizerFromGguf(file);
    const { backend, warnings } = openBackend(file, options, { onProgress });
    const createDecoder = () => tokenizer.createDetokenizer({ hideControl: true });
    return { backend: closingFile(backend, file), createDecoder, warnings };
  } catch (error) {
    file.close();
    throw error;
  }
}

/** The backend asked for; `auto` falls back to the reference with one warning. Throws `native`, `memory`, …. */
export function openBackend(
  file: GgufFile,
  options: Pick<EngineWorkerOptions, "backend" | "threads">,
  load: LoadOptions = {},
): { backend: Backend; warnings: string[] } {
  if (options.backend === "reference") return { backend: createReferenceBackend(file), warnings: [] };
  const native = loadNative();
  if (native.addon !== null) {
    const { threads } = options;
    return { backend: createCpuBackend(file, native.addon, { threads, ...load }), warnings: [] };
  }
  const reason = `the native addon does not load (${native.reason})`;
  if (options.backend === "cpu") throw new Ds4Error("native", `${reason}; use --backend reference`);
  const warning = `${reason}; the plain TypeScript backend runs instead, which is many times slower`;
  return { backend: createReferenceBackend(file), warnings: [warning] };
}

function closingFile(backend: Backend, file: GgufFile): Backend {
  const close = backend.close.bind(backend);
  backend.close = () => {
    close();
    file.close();
  };
  return backend;
}
