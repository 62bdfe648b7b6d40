// What every backend must do, as one suite. Runs on tiny random models, so that it takes seconds; agreement with a
// trained model is the golden tests' business.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Backend, KvState, TokenRange } from "../../src/backend/backend.ts";
import type { KvSnapshot } from "../../src/backend/kv-snapshot.ts";
import { createReferenceBackend } from "../../src/backend/reference/reference-backend.ts";
import type { ErrorCode } from "../../src/core/errors.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { type TinyModelOptions, tinyModel } from "../fixtures/tiny-model.ts";
import { describeCandidates } from "./candidates-contract.ts";
import {
  CAPACITY,
  expectClose,
  expectCode,
  expectSnapshotsClose,
  feed,
  forwardOne,
  testTokens,
} from "./feeding.ts";

/** Opens a backend on a file; the suite closes it. */
export type BackendFactory = (file: GgufFile) => Backend;

/** How exact a backend is on the tiny models, whose logits lie within about +-10. */
export interface ContractTolerances {
  /** Max |difference of logits| between ways of feeding the same tokens to this backend: chunks, batches, restores. */
  self: number;
  /** Max |difference of logits| to the reference backend. */
  reference: number;
  /** Max |difference| of snapshot values to the reference backend's. */
  snapshot: number;
  /** The reference backend as it should be compared with: by default as it is. */
  oracle?: BackendFactory;
}

/** Defines the suite for one backend. */
export function describeBackendContract(
  name: string,
  factory: BackendFactory,
  tolerances: ContractTolerances,
): void {
  describe(`backend contract: ${name}`, () => {
    const opened: Backend[] = [];
    const open = (options: TinyModelOptions = {}) => {
      const backend = factory(tinyModel(options));
      opened.push(backend);
      return backend;
    };
    let backend: Backend;
    beforeAll(() => {
      backend = open();
    });
    afterAll(() => {
      for (const each of opened) each.close();
    });
    const current = () => backend;
    describeFeeding(current, tolerances);
    describeCandidates(current, open, tolerances);
    describeReach(open, tolerances);
    describeStates(current, tolerances);
    describeRefusals(current, factory);
    describeReferenceAgreement(current, open, tolerances);
    describeHooks(current);
  });
}

/** However the tokens are fed, the logits are the same. */
function describeFeeding(backend: () => Backend, { self }: ContractTolerances): void {
  test.each([1, 2, 3, 4, 5])(
    "a prompt of %d tokens and 8 more equal one-by-one evaluation (case 30)",
    (length) => {
      const tokens = testTokens(length + 8, length);
      const chunks = [length, 1, 1, 1, 1, 1, 1, 1, 1];
      expectClose(feed(backend(), tokens, chunks), feed(backend(), tokens, [1]), self);
    },
  );

  test.each([1, 2, 3, 5, 7, 15, 16, 17, 64, 127, 129, 256])(
    "logits do not depend on a chunk size of %d (case 31)",
    (chunk) => {
      const tokens = testTokens(chunk < 4 ? 150 : 300, 31);
      expectClose(feed(backend(), tokens, [chunk]), feed(backend(), tokens, [tokens.length]), self);
    },
  );

  test.each([15, 16, 17, 40])(
    "decoding across the window's edge after %d tokens is exact (case 33)",
    (length) => {
      const tokens = testTokens(length + 10, 33);
      const chunks = [length, ...new Array<number>(10).fill(1)];
      expectClose(feed(backend(), tokens, chunks), feed(backend(), tokens, [tokens.length]), self);
    },
  );

  test("several ranges in one batch, long and single, equal separate runs", () => {
    const prompts = [testTokens(37, 1), testTokens(130, 2), testTokens(5, 3), testTokens(18, 4)];
    const states = prompts.map((tokens) => {
      const kv = backend().createKv(CAPACITY);
      // The second and third continue; the others start here.
      if (tokens.length !== 37 && tokens.length !== 18)
        forwardOne(backend(), kv, tokens.subarray(0, -1), "none");
      return kv;
    });
    const ranges = prompts.map((tokens, index): TokenRange => {
      return { kv: states[index], tokens: tokens.slice(states[index].lengthTokens), logits: "all" };
    });
    const batched = backend()
      .forward(ranges)
      .logits.map((rows) => rows.slice());
    prompts.forEach((tokens, index) => {
      const alone = feed(backend(), tokens, [tokens.length]);
      expectClose(batched[index], alone.subarray(alone.length - batched[index].length), self);
      expect(states[index].lengthTokens).toBe(tokens.length);
      states[index].close();
    });
  });

  test("a range returns the rows it asks for: none, the last, or all", () => {
    const tokens = testTokens(6, 6);
    const all = feed(backend(), tokens, [6]);
    const kv = backend().createKv(CAPACITY);
    expect(forwardOne(backend(), kv, tokens, "none").length).toBe(0);
    kv.reset();
    expect(kv.lengthTokens).toBe(0);
    const last = forwardOne(backend(), kv, tokens, "last");
    kv.close();
    expectClose(last, all.subarray(5 * backend().spec.vocabSize), self);
  });
}

/** Which tokens a position can see, measured from outside. */
function describeReach(open: (options: TinyModelOptions) => Backend, { self }: ContractTolerances): void {
  /** Max |change| of the logits at `position` when the token at `changed` is another one. */
  const influence = (backend: Backend, changed: number, position: number): number => {
    const tokens = testTokens(40, 12);
    const other = tokens.slice();
    other[changed] = (tokens[changed] + 1) % backend.spec.vocabSize;
    const rowAt = (fed: Int32Array) => feed(backend, fed, [40]).subarray(position * 96, (position + 1) * 96);
    const row = rowAt(tokens);
    return rowAt(other).reduce((worst, value, i) => Math.max(worst, Math.abs(value - row[i])), 0);
  };

  test("a sliding layer sees exactly its window, own position included, and nothing later", () => {
    const backend = open({ ratios: [0], hashLayers: 0, window: 16 });
    expect(influence(backend, 30 - 15, 30)).toBeGreaterThan(1e-4);
    expect(influence(backend, 30 - 16, 30)).toBeLessThanOrEqual(self);
    expect(influence(backend, 31, 30)).toBeLessThanOrEqual(self);
  });

  test("a compressed entry is seen from its window's last token on", () => {
    // Window 1: older tokens are reached through compressed entries only. Entry 4 covers tokens 16..19, entry 5 also
    // mixes in the a halves of tokens 16..19.
    const backend = open({ ratios: [4], hashLayers: 0, window: 1, topK: 64 });
    expect(influence(backend, 16, 18)).toBeLessThanOrEqual(self);
    expect(influence(backend, 16, 19)).toBeGreaterThan(1e-5);
    expect(influence(backend, 18, 19)).toBeGreaterThan(1e-5);
    expect(influence(backend, 20, 19)).toBeLessThanOrEqual(self);
  });
}

function describeStates(backend: () => Backend, { self }: ContractTolerances): void {
  test.each([1, 3, 4, 15, 16, 17, 63, 64, 100, 128, 130])(
    "a state restored after %d tokens continues as if never interrupted (case 43)",
    (split) => {
      const tokens = testTokens(split + 28, 43);
      const cold = feed(backend(), tokens, [tokens.length]);
      const kv = backend().createKv(CAPACITY);
      forwardOne(backend(), kv, tokens.subarray(0, split), "none");
      const snapshot = kv.snapshot();
      forwardOne(backend(), kv, testTokens(30, 99), "none"); // what comes after must not leak into the restored state
      kv.restore(snapshot);
      expect(kv.lengthTokens).toBe(split);
      const rest = forwardOne(backend(), kv, tokens.subarray(split), "all").slice();
      kv.close();
      expectClose(rest, cold.subarray(split * backend().spec.vocabSize), self);
    },
  );

  test("a snapshot moves to a state of another capacity, unless it is too long for it", () => {
    const tokens = testTokens(40, 5);
    const source = backend().createKv(CAPACITY);
    const small = backend().createKv(41);
    const tiny = backend().createKv(39);
    forwardOne(backend(), source, tokens, "none");
    small.restore(source.snapshot());
    expect(small.snapshot()).toEqual(source.snapshot());
    expectCode("session", () => tiny.restore(source.snapshot()));
    expect(tiny.lengthTokens).toBe(0);
    for (const kv of [source, small, tiny]) kv.close();
  });

  test("a snapshot of another shape, or with a section cut, is refused and changes nothing", () => {
    const kv = backend().createKv(CAPACITY);
    forwardOne(backend(), kv, testTokens(21, 7), "none");
    const good = kv.snapshot();
    const broken: KvSnapshot[] = [
      { ...good, shapeKey: "another" },
      { ...good, lengthTokens: 20 },
      { ...good, lengthTokens: -1 },
      { ...good, sections: good.sections.slice(1) },
      { ...good, sections: good.sections.map((each) => ({ ...each, data: each.data.subarray(1) })) },
    ];
    for (const snapshot of broken) expectCode("session", () => kv.restore(snapshot));
    expect(kv.snapshot()).toEqual(good);
    kv.close();
  });

  test("of two sections of one name the checked one is restored, and unknown sections are left out", () => {
    const kv = backend().createKv(CAPACITY);
    forwardOne(backend(), kv, testTokens(21, 7), "none");
    const good = kv.snapshot();
    const more = ["0.window", "99.window", "0.unknown"].map((name) => ({
      name,
      shape: [1, 1],
      data: Float32Array.of(9),
    }));
    kv.reset();
    kv.restore({ ...good, sections: [...more, ...good.sections] });
    expect(kv.snapshot()).toEqual(good);
    kv.close();
  });

  test("a state's bytes stay constant, and are counted while it is open", () => {
    const before = backend().stats().kvBytes;
    const kv = backend().createKv(CAPACITY);
    const { bytes } = kv;
    forwardOne(backend(), kv, testTokens(50, 8), "none");
    expect(kv.bytes).toBe(bytes);
    expect(backend().stats().kvBytes).toBe(before + bytes);
    kv.close();
    expect(backend().stats().kvBytes).toBe(before);
  });
}

function describeRefusals(backend: () => Backend, factory: BackendFactory): void {
  test("bad tokens, full states and shared states are refused before anything changes (case 39)", () => {
    const { vocabSize } = backend().spec;
    const kv = backend().createKv(24);
    const other = backend().createKv(24);
    const closed = backend().createKv(24);
    closed.close();
    forwardOne(backend(), kv, testTokens(19, 9), "none");
    const before = kv.snapshot();
    const range = (state: KvState, tokens: number[]): TokenRange => {
      return { kv: state, tokens: Int32Array.from(tokens), logits: "last" };
    };
    const good = range(kv, [1]);
    const bad: [ErrorCode, TokenRange[]][] = [
      ["session", [good, range(other, [vocabSize])]],
      ["session", [good, range(other, [3, -1])]],
      ["session", [good, range(other, [])]],
      ["session", [good, range(kv, [2])]],
      ["session", [good, range(closed, [2])]],
      ["context-full", [range(other, [1]), range(kv, [1, 2, 3, 4, 5, 6])]],
    ];
    for (const [code, ranges] of bad) {
      expectCode(code, () => backend().forward(ranges));
      expect(kv.snapshot()).toEqual(before);
      expect(other.lengthTokens).toBe(0);
    }
    forwardOne(backend(), kv, Int32Array.from([1, 2, 3, 4, 5]), "last"); // exactly full is allowed
    expectCode("context-full", () => backend().forward([good]));
    kv.close();
    other.close();
  });

  test("a batch above maxBatchTokens is refused", () => {
    const { maxBatchTokens, spec } = backend();
    if (maxBatchTokens >= spec.contextTokens) return; // no single state could hold it
    const kv = backend().createKv(maxBatchTokens + 1);
    expectCode("session", () => forwardOne(backend(), kv, new Int32Array(maxBatchTokens + 1), "none"));
    expect(kv.lengthTokens).toBe(0);
    kv.close();
  });

  test("router scores that are not numbers end the call with an error, and the state stays (case 41)", () => {
    const file = tinyModel();
    file.contents.set(
      "blk.3.exp_probs_b.bias",
      new Uint8Array(Float32Array.from({ length: 8 }, () => Number.NaN).buffer),
    );
    const broken = factory(file);
    const kv = broken.createKv(64);
    expectCode("unsupported-model", () => forwardOne(broken, kv, testTokens(7, 1), "last"));
    expect(kv.lengthTokens).toBe(0);
    expect(kv.snapshot().lengthTokens).toBe(0);
    broken.close();
  });

  test("a routing table that names an expert that does not exist is refused at load (case 39)", () => {
    for (const expert of [8, -1]) {
      const file = tinyModel();
      const table = "blk.0.ffn_gate_tid2eid.weight";
      const ids = new Int32Array(file.contents.get(table)!.slice().buffer);
      ids[17] = expert;
      file.contents.set(table, new Uint8Array(ids.buffer));
      expectCode("unsupported-model", () => factory(file).close());
    }
  });

  test("a closed backend refuses work", () => {
    const own = factory(tinyModel());
    own.close();
    expectCode("session", () => own.createKv(16));
  });
}

function describeReferenceAgreement(
  backend: () => Backend,
  open: (options: TinyModelOptions) => Backend,
  { reference, snapshot, oracle: openOracle = createReferenceBackend }: ContractTolerances,
): void {
  const shapes: TinyModelOptions[] = [
    {},
    { experts: 6, expertsUsed: 3, weightsScale: 1, seed: 2 },
    { ratios: [128, 4, 0], hashLayers: 0, topK: 3, window: 5, seed: 3 },
    { ratios: [4], hashLayers: 1, experts: 16, expertsUsed: 6, vocab: 128, matrixType: "BF16", seed: 4 },
  ];
  test.each(shapes)("agrees with the reference backend on shape %j (case 38)", (options) => {
    const own = open(options);
    const oracle = openOracle(tinyModel(options));
    const tokens = testTokens(140, 38, own.spec.vocabSize);
    expectClose(feed(own, tokens, [61]), feed(oracle, tokens, [tokens.length]), reference);
  });

  test("states equal the reference's at every remainder of the ratios (case 37)", () => {
    const oracle = openOracle(tinyModel());
    const tokens = testTokens(134, 37);
    const whole = oracle.createKv(CAPACITY);
    const stepped = backend().createKv(CAPACITY);
    for (let length = 0; length <= tokens.length; length++) {
      const worthChecking = length < 24 || length > 124;
      if (worthChecking) expectSnapshotsClose(stepped.snapshot(), whole.snapshot(), snapshot);
      if (length === tokens.length) break;
      forwardOne(oracle, whole, tokens.subarray(length, length + 1), "none");
      forwardOne(backend(), stepped, tokens.subarray(length, length + 1), "none");
    }
    stepped.reset();
    forwardOne(backend(), stepped, tokens, "none");
    expectSnapshotsClose(stepped.snapshot(), whole.snapshot(), snapshot);
    stepped.close();
  });

  test("a state written by the reference continues here, and one written here continues there", () => {
    const oracle = openOracle(tinyModel());
    const tokens = testTokens(150, 44);
    const cold = feed(oracle, tokens, [tokens.length]).subarray(133 * oracle.spec.vocabSize);
    for (const [from, to] of [
      [oracle, backend()],
      [backend(), oracle],
    ]) {
      const source = from.createKv(CAPACITY);
      const target = to.createKv(CAPACITY);
      forwardOne(from, source, tokens.subarray(0, 133), "none");
      target.restore(source.snapshot());
      expectClose(forwardOne(to, target, tokens.subarray(133), "all"), cold, reference);
      source.close();
      target.close();
    }
  });
}

function describeHooks(backend: () => Backend): void {
  test("trace and observeInputs report every layer with the documented shapes", () => {
    const { spec } = backend();
    const tokens = testTokens(9, 10);
    const traced = new Map<string, number>();
    const observed = new Map<string, number>();
    const kv = backend().createKv(CAPACITY);
    backend().forward([{ kv, tokens, logits: "last" }], {
      trace: (name, layer, data) => traced.set(`${layer}.${name}`, data.length),
      observeInputs: (tensor, expert, inputs, rows) => {
        expect(inputs.length % rows).toBe(0);
        expect(expert >= 0).toBe(tensor.includes("_exps"));
        observed.set(tensor, (observed.get(tensor) ?? 0) + rows);
      },
    });
    kv.close();
    for (const { index, hasIndexer } of spec.layers) {
      expect(traced.get(`${index}.attn_out`)).toBe(9 * spec.hiddenSize);
      expect(traced.get(`${index}.moe_out`)).toBe(9 * spec.hiddenSize);
      expect(traced.get(`${index}.streams`)).toBe(9 * spec.hyperCount * spec.hiddenSize);
      expect(traced.get(`${index}.expert_ids`)).toBe(9 * spec.expertUsedCount);
      expect(traced.get(`${index}.expert_weights`)).toBe(9 * spec.expertUsedCount);
      expect(traced.get(`${index}.indexer_topk`)).toBe(hasIndexer ? 9 * spec.indexerTopK : undefined);
      for (const part of ["gate", "up", "down"]) {
        expect(observed.get(`blk.${index}.ffn_${part}_exps.weight`)).toBe(9 * spec.expertUsedCount);
        expect(observed.get(`blk.${index}.ffn_${part}_shexp.weight`)).toBe(9);
      }
      expect(observed.get(`blk.${index}.attn_q_b.weight`)).toBe(9);
      expect(observed.get(`blk.${index}.attn_output_a.weight`)).toBe(9 * spec.outputGroupCount);
    }
  });
}
