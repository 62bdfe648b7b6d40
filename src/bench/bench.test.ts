import { expect, test } from "vitest";
import type { Backend, KvState, TokenRange } from "../backend/backend.ts";
import { resultOfRows, topOfRow } from "../backend/top-logits.ts";
import { CancelledError, UsageError } from "../core/errors.ts";
import { drawBenchCharts } from "./bench-charts.ts";
import { type BenchFacts, formatFacts } from "./bench-facts.ts";
import {
  decodeBandwidth,
  describeInstability,
  formatComparison,
  formatCsv,
  formatRows,
  parseCsv,
} from "./bench-report.ts";
import { type FrontierRow, greedyToken, listFrontiers, runFrontierBench } from "./frontier-bench.ts";
import { drawLineChart, niceTicks } from "./line-chart.ts";

/** A backend that costs 10 ms a call plus 1 ms a token on a fake clock, and always prefers token 1, then 2. */
function fakeBackend() {
  const clock = { ms: 0 };
  const calls: number[] = [];
  const makeKv = (capacityTokens: number) => {
    let length = 0;
    const kv = {
      capacityTokens,
      bytes: 1000,
      get lengthTokens() {
        return length;
      },
      grow: (count: number) => {
        length += count;
      },
      snapshot: () => ({ lengthTokens: length, shapeKey: "", sections: [] }),
      restore: (snapshot: { lengthTokens: number }) => {
        length = snapshot.lengthTokens;
      },
      reset: () => {
        length = 0;
      },
      close: () => {},
    };
    return kv as unknown as KvState & { grow: (count: number) => void };
  };
  const backend = {
    maxBatchTokens: 64,
    createKv: makeKv,
    forward(ranges: TokenRange[]) {
      const [range] = ranges;
      (range.kv as ReturnType<typeof makeKv>).grow(range.tokens.length);
      calls.push(range.tokens.length);
      clock.ms += 10 + range.tokens.length;
      return resultOfRows(ranges, [
        range.logits === "none" ? new Float32Array(0) : Float32Array.of(0, 5, 4, 1),
      ]);
    },
  } as unknown as Backend;
  return { backend, clock, calls };
}

const options = { ctxStart: 100, ctxMax: 300, stepIncr: 100, stepMul: 1, genTokens: 5 };

test("frontiers step linearly or by a factor and never pass the maximum", () => {
  expect(listFrontiers({ ctxStart: 2048, ctxMax: 9000, stepIncr: 2048, stepMul: 1 })).toEqual([
    2048, 4096, 6144, 8192,
  ]);
  expect(listFrontiers({ ctxStart: 100, ctxMax: 900, stepIncr: 1, stepMul: 2 })).toEqual([
    100, 200, 400, 800,
  ]);
  expect(() => listFrontiers({ ctxStart: 10, ctxMax: 20, stepIncr: 0, stepMul: 1 })).toThrow(UsageError);
});

test("only the new suffix is timed, generation is undone, and known delays are reported (case 139)", async () => {
  const { backend, clock } = fakeBackend();
  const { rows, repeat } = await runFrontierBench(backend, new Int32Array(400), {
    ...options,
    now: () => clock.ms,
  });
  expect(rows.map((row) => row.prefillTokens)).toEqual([100, 100, 100]);
  expect(rows[1].prefillTps).toBeCloseTo(100_000 / 120, 6); // two chunks of at most 64 tokens: 20 + 100 ms
  expect(rows[2].genTps).toBeCloseTo(1000 / 11, 6);
  expect(rows[2].genFirstMs).toBe(11);
  expect(rows[2]).toMatchObject({ ttftMs: 120, gapMedianMs: 11, gapMaxMs: 11, genSteadyTokens: 4 });
  expect(repeat.ctxTokens).toBe(100);
  expect(describeInstability(rows[0], repeat)).toBeNull();
});

test("banned tokens are not generated, the lowest id wins ties", () => {
  expect(greedyToken(Float32Array.of(1, 3, 3), [])).toBe(1);
  expect(greedyToken(Float32Array.of(1, 3, 2), [1])).toBe(2);
  expect(greedyToken(topOfRow(Float32Array.of(1, 3, 3)), [])).toBe(1);
  expect(greedyToken(topOfRow(Float32Array.of(1, 3, 2)), [1])).toBe(2);
});

test("a prompt shorter than the last frontier and a too small a state are refused", async () => {
  const { backend } = fakeBackend();
  await expect(runFrontierBench(backend, new Int32Array(200), options)).rejects.toThrow(/300/);
  const small = { ...options, allocTokens: 305 };
  await expect(runFrontierBench(backend, new Int32Array(400), small)).rejects.toThrow(
    /at least 306 .* got 305/,
  );
});

test("a cancelled run keeps the rows that were measured", async () => {
  const { backend, calls } = fakeBackend();
  const controller = new AbortController();
  const rows: FrontierRow[] = [];
  const onRow = (row: FrontierRow) => {
    rows.push(row);
    if (rows.length === 2) controller.abort();
  };
  const { signal } = controller;
  await expect(runFrontierBench(backend, new Int32Array(400), { ...options, signal, onRow })).rejects.toThrow(
    CancelledError,
  );
  expect(rows.map((row) => row.ctxTokens)).toEqual([100, 200]);
  expect(calls.length).toBe(1 + 2 * (2 + 5)); // the warm-up, then two frontiers of two chunks and five tokens
});

const row: FrontierRow = {
  ctxTokens: 2048,
  prefillTokens: 2048,
  prefillTps: 45,
  genTokens: 128,
  genTps: 10,
  genFirstMs: 100,
  genSteadyTokens: 127,
  genSteadyTps: 10.5,
  kvcacheBytes: 5_000_000,
  ttftMs: 45_511.1,
  gapMedianMs: 95,
  gapMaxMs: 120,
};
const facts: BenchFacts = {
  version: "0.1.0 (abc1234)",
  date: "2026-12-01T00:00:00Z",
  command: "ds4-bench -m model.gguf",
  system: "Linux 6.1, node 24.21.0",
  cpu: "Test CPU",
  coreCount: 8,
  memoryBytes: 64 * 2 ** 30,
  availableBytes: 60 * 2 ** 30,
  loadAverage: 0.5,
  backend: "cpu",
  backendDescription: "avx2 kernels, 8 threads",
  modelFile: "model.gguf",
  modelBytes: 3 * 2 ** 30,
  modelFingerprint: "0123456789abcdef0123",
  loadMs: 2000,
  chunkTokens: 512,
  ctxAllocTokens: 4096,
  weightBytesPerToken: 1e9,
  readBandwidth: 20e9,
  bandwidthKind: "memory reads",
  planBytes: 4 * 2 ** 30,
  heldBytes: 3.5 * 2 ** 30,
  peakRssBytes: 5 * 2 ** 30,
};

test("a first point that changed by more than a tenth is called unstable (case 138)", () => {
  expect(describeInstability(row, { ...row, genTps: 8 })).toContain("from 10.00 to 8.00 t/s (-20 %)");
  expect(describeInstability(row, { ...row, genTps: 9.5 })).toBeNull();
});

test("CSV starts with ds4's columns and reads back", () => {
  const csv = formatCsv([row], facts);
  expect(csv.split("\n")[0]).toMatch(
    /^ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,gen_first_ms,gen_steady_tokens,gen_steady_tps,kvcache_bytes,/,
  );
  expect(parseCsv(csv)).toEqual([row]);
  expect(parseCsv("ctx_tokens,prefill_tps\n64,2.5\n")[0]).toMatchObject({
    ctxTokens: 64,
    prefillTps: 2.5,
    genTps: 0,
  });
  expect(() => parseCsv("a,b\n1,2\n")).toThrow(UsageError);
});

test("decode speed is set against the measured bandwidth", () => {
  expect(decodeBandwidth(row, facts)).toEqual({ bytesPerSecond: 10e9, share: 0.5 });
  expect(formatRows([row], facts)).toContain("50 %");
});

test("the block of facts names code, command, machine, file and settings (case 137); unknown ones are left out", () => {
  const block = formatFacts(facts);
  for (const text of [
    "0.1.0 (abc1234)",
    "ds4-bench -m model.gguf",
    "Linux 6.1",
    "load 0.50",
    "Test CPU; 8 logical cores",
    "64.00 GiB, 60.00 GiB available",
    "cpu; avx2 kernels, 8 threads",
    "model.gguf; 3.00 GiB (3221225472 bytes); header sha256 0123456789abcdef",
    "2.0 s; 1.6 GB/s",
    "4096 allocated; prefill chunk 512",
    "memory reads 20.0 GB/s",
    "5.00 GiB in the process; 3.50 GiB in the backend; planned 4.00 GiB",
  ]) {
    expect(block).toContain(text);
  }
  const remote = { ...facts, modelFingerprint: "", modelBytes: 0, readBandwidth: 0, weightBytesPerToken: 0 };
  expect(formatFacts(remote)).toMatch(/^model {4}model\.gguf$/m);
  expect(formatFacts(remote)).not.toMatch(/^reads/m);
});

test("two runs are compared at their common frontiers", () => {
  expect(formatComparison([row], [{ ...row, genTps: 20 }])).toContain("2.00x");
  expect(formatComparison([row], [{ ...row, ctxTokens: 1 }])).toContain("no frontier in common");
});

test("a chart holds every point, its labels escaped, ticks round", () => {
  const svg = drawLineChart(
    [
      {
        name: "a<b",
        points: [
          { x: 1024, y: 1 },
          { x: 2048, y: 2 },
          { x: 4096, y: Number.NaN },
        ],
      },
    ],
    {
      title: "t",
      xLabel: "context",
      yLabel: "t/s",
      logX: true,
      limit: { y: 3, label: "limit" },
    },
  );
  expect(svg.match(/<circle/g)).toHaveLength(2);
  expect(svg).toContain("a&lt;b");
  expect(svg).toContain(">2k<");
  expect(niceTicks(0, 97, 6)).toEqual([0, 20, 40, 60, 80, 100]);
});

test("a picture has a panel for prefill and one for decode, unless nothing was decoded", () => {
  const rows = [row, { ...row, ctxTokens: 4096 }, { ...row, ctxTokens: 8192 }];
  const svg = drawBenchCharts([{ name: "A & B", rows }], "nano");
  expect(svg).toContain(">Prefill<");
  expect(svg).toContain(">Decode<");
  expect(svg.match(/<circle/g)).toHaveLength(6);
  expect(svg.match(/A &amp; B/g)).toHaveLength(2);
  expect(svg).toContain(">8k<");
  const long = "start-".repeat(40);
  expect(drawBenchCharts([{ name: `${long}end`, rows }], long)).toMatch(/>start-[a-z-]*…[a-z-]*end</);
  const prefillOnly = rows.map((each) => ({ ...each, genTps: 0 }));
  expect(drawBenchCharts([{ name: "A", rows: prefillOnly }], "nano")).not.toContain(">Decode<");
});
