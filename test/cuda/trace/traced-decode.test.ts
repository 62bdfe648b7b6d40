// What the traced process does with a model, on a driver that runs nothing.
import { describe, expect, it } from "vitest";
import { BUNDLED_MODEL_PATH } from "../../../src/api/open-model.ts";
import { loadNative } from "../../../src/backend/native.ts";
import { openGguf } from "../../../src/gguf/open-gguf.ts";
import { FAKE_IMAGE, FakeDriver } from "../../fixtures/fake-driver.ts";
import { traceSections } from "./layers.ts";
import { stepTimes } from "./steps.ts";
import { traceCsv, traceText } from "./trace-report.ts";
import { type DecodeRun, runDecode } from "./traced-decode.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`the traced process ${reason ?? ""}`, () => {
  const run: DecodeRun = {
    model: BUNDLED_MODEL_PATH,
    ctxTokens: 40,
    tokens: 5,
    kvType: "f16",
    device: 0,
    out: "",
  };
  const file = openGguf(run.model);

  it("fills the context, then times steps that come out of a graph", () => {
    const driver = new FakeDriver();
    const outcome = runDecode(run, file, addon!, driver, FAKE_IMAGE);
    expect(outcome.stepsMs).toHaveLength(5);
    expect(driver.calls.filter(({ method }) => method === "launchGraph")).toHaveLength(6);
    expect(outcome.layerCount).toBe(
      traceSections(timesOf(outcome.launches), outcome.launches).flatMap(({ layers }) => layers).length,
    );
    expect(driver.leaks).toEqual([]);
  });

  it("its launches and a trace of them make one table", () => {
    const { launches, layerCount } = runDecode(run, file, addon!, new FakeDriver(), FAKE_IMAGE);
    const { places, ...times } = timesOf(launches);
    const sections = traceSections({ ...times, places }, launches, layerCount);
    const rows = sections.flatMap((section) => section.rows);
    expect(rows.reduce((sum, row) => sum + row.count * (row.weightBytes ?? 0), 0)).toBeCloseTo(
      launches.reduce((sum, { bytes }) => sum + bytes, 0),
      3,
    );
    // As engines decode: candidates end the step, and read no weights.
    const [last, ...top] = rows.slice(-3);
    expect(top.map(({ name, weightBytes }) => [name, weightBytes])).toEqual([
      ["top_logits_chunks", 0],
      ["top_logits_merged", 0],
    ]);
    // The last chain: from the last layer's attention to the logits. One kernel takes a microsecond here.
    expect(last).toMatchObject({ name: "decode_chain_q4k_q4k", costUs: 1 });
    expect(last.tensors).toEqual(expect.arrayContaining(["attn_output_a", "ffn_down_exps", "output"]));
    expect(last.gigabytesPerSecond).toBeCloseTo(last.weightBytes! / 1e3, 6);
    const facts = {
      date: "2026-12-02T00:00:00Z",
      device: "Fake GPU",
      driver: "",
      model: "nano",
      kvType: "f16",
    };
    const text = traceText({
      facts: { ...facts, ctxTokens: 40, tracedMs: 2, plainMs: 1.5, notes: ["made by hand"] },
      ...{ times, sections },
    });
    expect(text).toContain("a step takes 2000 us while kernels are traced, in a run without tracing 1500 us");
    expect(text).toContain("Note: made by hand.");
    expect(text).toMatch(/^decode_chain_q4k_q4k +\d.* attn_output_a attn_output_b hc_ffn_fn \+\d+$/m);
    const [columns, ...lines] = traceCsv(sections).trimEnd().split("\n");
    expect(lines).toHaveLength(rows.length);
    expect(new Set(lines.map((line) => line.split(",").length))).toEqual(
      new Set([columns.split(",").length]),
    );
  });

  it("refuses a context that the model does not have, before anything is loaded", () => {
    const driver = new FakeDriver();
    expect(() => runDecode({ ...run, ctxTokens: 10_000_000 }, file, addon!, driver)).toThrow(
      /--ctx 10000000: /,
    );
    expect(driver.calls).toEqual([]);
  });
});

/** Four steps of these kernels, a microsecond each, ten apart from the next step. */
function timesOf(launches: readonly { kernel: string }[]) {
  const stepNs = 1000 * launches.length + 10_000;
  return stepTimes(
    Array.from({ length: 4 }, (_, step) =>
      launches.map(({ kernel }, i) => ({
        ...{ name: kernel, startNs: step * stepNs + 1000 * i, endNs: step * stepNs + 1000 * i + 1000 },
        ...{ blocks: 1, threads: 256, registers: 32, dynamicSharedBytes: 0, isReplayed: true },
      })),
    ).flat(),
  );
}
