import { describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { type Received, SchedulerHarness } from "../../test/fixtures/scheduler-harness.ts";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { createReferenceBackend } from "../backend/reference/reference-backend.ts";
import { Random } from "../core/random.ts";
import { TAIL_TOKENS } from "./prefix-reuse.ts";

const VOCAB = 96;
const STEP = 64;
const settings = { ctxTokens: 2000, chunkTokens: 60, checkpointTokens: STEP, checkpointBytes: 4e6, slots: 2 };
const random = new Random(5);
const text = (count: number) => Array.from({ length: count }, () => random.nextUint32() % VOCAB);
const fake = (extra = {}) =>
  new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 64), { ...settings, ...extra });
const reused = ({ finish }: Received) => finish!.reusedTokens;

describe("prefix reuse", () => {
  it("a next turn reads only what is new, every time (case 106)", async () => {
    const harness = fake();
    let prompt = text(300);
    let known = 0;
    for (let turn = 0; turn < 10; turn++) {
      const answer = await harness.run(prompt);
      expect(reused(answer)).toBe(known);
      known = prompt.length + 9; // the last sampled token was not evaluated
      prompt = [...prompt, ...answer.tokens, ...text(40)];
    }
  });

  it("the same prompt again goes back to its end (case 101)", async () => {
    const harness = fake();
    const prompt = text(600);
    const first = await harness.run(prompt);
    const second = await harness.run(prompt);
    expect(reused(second)).toBe(600 - TAIL_TOKENS);
    expect(second.finish).toMatchObject({ reusedFrom: "checkpoint" });
    expect(second.tokens).toEqual(first.tokens);
  });

  it("a branch reuses the common prefix, and the first branch is still there (case 100)", async () => {
    const harness = fake();
    const stem = text(600);
    const first = await harness.run([...stem, ...text(200)]);
    expect(reused(await harness.run([...stem, ...text(150)]))).toBeGreaterThanOrEqual(600 - STEP);
    const next = [...harness.scheduler.stats().slots].map(({ tokens }) => tokens);
    expect(Math.max(...next)).toBe(800 + 9);
    expect(first.finish?.promptTokens).toBe(800);
  });

  it("a dropped reasoning reads the answer only (case 98), an edited message its tail (case 88)", async () => {
    const harness = fake();
    const prompt = [...text(400), 7, 8]; // … <assistant><think>
    const answer = await harness.run(prompt, { maxTokens: 100 });
    const kept = [...prompt.slice(0, -1), 9, ...answer.tokens.slice(80), ...text(30)]; // … <assistant></think>answer
    expect(reused(await harness.run(kept))).toBe(prompt.length - TAIL_TOKENS);
    const edited = [...prompt.slice(0, 250), ...text(20), ...prompt.slice(270)];
    expect(reused(await harness.run(edited))).toBe(Math.floor(250 / STEP) * STEP);
  });

  it("a title request leaves the agent's slot alone, with and without checkpoints", async () => {
    for (const checkpointBytes of [0, 4e6]) {
      const harness = fake({ checkpointBytes });
      let prompt = text(900);
      for (let turn = 0; turn < 4; turn++) {
        const answer = await harness.run(prompt, { cacheKey: "agent" });
        if (turn > 0) expect(answer.finish).toMatchObject({ reusedFrom: "slot", slot: 0 });
        expect((await harness.run(text(60), { cacheKey: `title ${turn}` })).finish?.slot).toBe(1);
        prompt = [...prompt, ...answer.tokens, ...text(20)];
      }
    }
  });

  it("with one slot the agent comes back from its checkpoint", async () => {
    const harness = fake({ slots: 1 });
    const prompt = text(500);
    const answer = await harness.run(prompt, { maxTokens: 200 });
    await harness.run(text(50));
    const next = await harness.run([...prompt, ...answer.tokens, ...text(10)]);
    expect(next.finish).toMatchObject({ reusedFrom: "checkpoint", reusedTokens: 500 + 199 });
  });

  it("holds its budget, and works with none", async () => {
    for (const checkpointBytes of [0, 10_000, 40_000]) {
      const harness = fake({ checkpointBytes });
      for (let i = 0; i < 12; i++) {
        await harness.run(text(300));
        const { kvBytes } = harness.scheduler.stats();
        expect(kvBytes.checkpoints).toBeLessThanOrEqual(checkpointBytes);
      }
      expect(harness.scheduler.stats().counters.finished).toBe(12);
    }
  });

  it("a checkpoint that the backend refuses or fails on is dropped, and the request served (case 112)", async () => {
    const backend = new FakeBackend(VOCAB, hashed(VOCAB), 64);
    const harness = new SchedulerHarness(backend, { ...settings, slots: 1 });
    const prompt = text(300);
    const first = await harness.run(prompt);
    let faults = 0;
    const forward = backend.forward.bind(backend);
    backend.forward = (ranges) => {
      if (faults === 0 && ranges[0].kv.lengthTokens === 300 - TAIL_TOKENS) {
        faults++;
        throw new Error("this state is damaged");
      }
      return forward(ranges);
    };
    const again = await harness.run(prompt);
    expect(faults).toBe(1);
    expect(again.tokens).toEqual(first.tokens);
    expect(reused(again)).toBe(0);
    backend.kvs[0].restore = () => {
      throw new Error("refused");
    };
    expect((await harness.run(prompt)).tokens).toEqual(first.tokens);
    expect(harness.logs.some((line) => line.includes("refused"))).toBe(true);
  });
});

describe("with a real model's state (tiny, reference backend)", () => {
  const backend = createReferenceBackend(tinyModel());
  const open = (extra = {}) =>
    new SchedulerHarness(backend, { ...settings, ctxTokens: 400, checkpointTokens: 50, ...extra });

  it("restored and batched runs answer as lone ones; checkpoints share their compressed rows", async () => {
    const stem = text(150);
    const prompts = [
      [...stem, ...text(30)],
      [...stem.slice(0, 110), ...text(20)],
      [...stem, ...text(5)],
      stem,
    ];
    const alone = open({ slots: 1, checkpointBytes: 0 });
    const expected: number[][] = [];
    for (const prompt of prompts) {
      alone.scheduler.step();
      expected.push((await alone.run(prompt)).tokens);
    }
    const together = open({ slots: 2 });
    const all = [...prompts, ...prompts].map((prompt) => together.submit(prompt));
    await together.settle();
    expect(all.map(({ tokens }) => tokens)).toEqual([...expected, ...expected]);
    const { counters, kvBytes, checkpointCount } = together.scheduler.stats();
    expect(counters.reuse.checkpoint).toBeGreaterThanOrEqual(3);
    expect(counters.reusedTokens).toBeGreaterThan(400);
    const kv = backend.createKv(400);
    kv.reset();
    expect(checkpointCount).toBeGreaterThan(4);
    expect(kvBytes.checkpoints).toBeLessThan(checkpointCount * kv.bytes);
    kv.close();
  }, 60_000);
});
