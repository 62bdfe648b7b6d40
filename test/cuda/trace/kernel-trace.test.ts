// kernel-trace.cpp in a process of its own, as libcuda would load it, on a CUPTI that is compiled here (stub-cupti.cpp).
// Needs CUPTI's headers: the CUDA toolkit's.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseTrace } from "./records.ts";
import { type Cupti, compileForCupti, findCupti, traceEnvironment } from "./trace-library.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-kernel-trace-"));
afterAll(() => rmSync(folder, { recursive: true }));

function headers(): { cupti: Cupti | null; reason: string } {
  try {
    return { cupti: findCupti(), reason: "" };
  } catch (error) {
    return { cupti: null, reason: (error as Error).message };
  }
}

const { cupti, reason } = headers();
const why = cupti === null ? `, skipped: ${reason}` : "";

describe.skipIf(cupti === null)(`the library that traces kernels${why}`, () => {
  const [library, stub] = ["kernel-trace.so", "libcupti-stub.so"].map((name) => join(folder, name));
  let runs = 0;

  beforeAll(() => {
    compileForCupti("kernel-trace.cpp", cupti!, library);
    compileForCupti("stub-cupti.cpp", cupti!, stub);
  });

  /** Loads the library as libcuda does, twice, and ends. */
  function trace(environment: Record<string, string>) {
    const csv = join(folder, `${runs++}.csv`);
    const script =
      "const library = require('koffi').load(process.env.CUDA_INJECTION64_PATH);" +
      "const start = library.func('int InitializeInjection()');" +
      "console.log(start() + start(), require('fs').existsSync(process.env.DS4_TRACE_CSV));";
    const child = spawnSync(process.execPath, ["-e", script], {
      encoding: "utf8",
      env: {
        ...process.env,
        ...traceEnvironment(library, cupti!, csv, 24),
        DS4_CUPTI: stub,
        ...environment,
      },
    });
    expect(child.status).toBe(0);
    return { csv, out: child.stdout.trim(), err: child.stderr.trim() };
  }

  it("writes every kernel when the process ends", () => {
    const { csv, out, err } = trace({ STUB_RECORDS: "12" });
    expect([out, err]).toEqual(["2 true", ""]);
    const { runs: kernels, lost, overwritten } = parseTrace(readFileSync(csv, "utf8"), csv);
    expect([kernels.length, lost, overwritten]).toEqual([12, 0, 0]);
    expect(kernels[0]).toEqual({
      ...{ name: "first", startNs: 0, endNs: 1500, blocks: 100 * 2 * 3, threads: 256 * 4 * 5 },
      ...{ registers: 48, dynamicSharedBytes: 27904, isReplayed: true },
    });
    expect(kernels[11]).toMatchObject({
      name: "second<int  3>",
      startNs: 11000,
      endNs: 12500,
      blocks: 111 * 6,
    });
  });

  it("keeps the last ones and counts the others", () => {
    const { csv } = trace({ STUB_RECORDS: "12", STUB_DROPPED: "2", DS4_TRACE_RECORDS: "7" });
    const { runs: kernels, lost, overwritten } = parseTrace(readFileSync(csv, "utf8"), csv);
    // The stub reports two with each of its three buffers.
    expect([kernels.length, lost, overwritten]).toEqual([7, 6, 5]);
    expect(kernels.map(({ blocks }) => blocks / 6)).toEqual([105, 106, 107, 108, 109, 110, 111]);
    expect(kernels.map(({ startNs }) => startNs)).toEqual([0, 1000, 2000, 3000, 4000, 5000, 6000]);
  });

  it("a process without kernels leaves a trace of none", () => {
    const { csv } = trace({});
    expect(parseTrace(readFileSync(csv, "utf8")).runs).toEqual([]);
  });

  it.each([
    [{ STUB_VERSION: "140000" }, /is version 140000, the headers .* are \d+: .* one CUDA toolkit/],
    [{ STUB_ENABLE_RESULT: "35" }, /cuptiActivityEnable: CUPTI_ERROR_STUB \(35\); is another profiler/],
    [{ DS4_CUPTI: "/nonexistent/libcupti.so" }, /CUPTI does not load: .*libcupti\.so.*CUDA toolkit/],
    [{ DS4_CUPTI: "libc.so.6" }, /libc\.so\.6 has no cuptiGetVersion/],
    [{ DS4_TRACE_RECORDS: "many" }, /DS4_TRACE_RECORDS: expected 1\.\.\d+, got "many"/],
    [{ DS4_TRACE_CSV: "/nonexistent/trace.csv" }, /\/nonexistent\/trace\.csv: No such file/],
  ])("says why it does not trace, and the process goes on: %j", (environment, message) => {
    const { out, err } = trace(environment as Record<string, string>);
    expect(out).toBe("2 false");
    expect(err).toMatch(message);
    expect(err.split("\n")).toHaveLength(1);
  });
});

describe("finding CUPTI", () => {
  /** A toolkit of empty files. */
  function toolkit(files: Record<string, string>): string {
    const root = mkdtempSync(join(folder, "toolkit-"));
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(root, path, ".."), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    return root;
  }
  const RECORDS = "} CUpti_ActivityKernel9;\n} CUpti_ActivityKernel12;\n} CUpti_ActivityKernel4;\n";

  it("takes the headers' newest record, with headers and library in either of their places", () => {
    const root = toolkit({
      "targets/sbsa-linux/include/cuda.h": "",
      "extras/CUPTI/include/cupti.h": "",
      "extras/CUPTI/include/cupti_activity.h": RECORDS,
      "extras/CUPTI/lib64/libcupti.so.13": "",
    });
    const found = findCupti(root);
    expect(found.kernelRecord).toBe("CUpti_ActivityKernel12");
    expect(found.includes.map((path) => path.slice(root.length + 1))).toEqual([
      ...["extras/CUPTI/include", "targets/sbsa-linux/include"],
    ]);
    expect(existsSync(found.library)).toBe(true);
  });

  it("says what is missing", () => {
    const usage = expect.objectContaining({ code: "usage" });
    const without = toolkit({
      "include/cuda.h": "",
      "include/cupti.h": "",
      "include/cupti_activity.h": RECORDS,
    });
    expect(() => findCupti(without)).toThrow(usage);
    expect(() => findCupti(without)).toThrow(/needs CUPTI: .* found in none of .*toolkit-.*--toolkit DIR/);
    const odd = toolkit({
      ...{
        "include/cuda.h": "",
        "include/cupti.h": "",
        "include/cupti_activity.h": "",
        "lib64/libcupti.so": "",
      },
    });
    expect(() => findCupti(odd)).toThrow(/expected a record CUpti_ActivityKernelN, found none/);
  });
});
