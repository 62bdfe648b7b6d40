import { describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import { MemoryCheckpoints } from "./checkpoints.ts";
import { Session } from "./session.ts";
import { ContextFullError } from "./session-errors.ts";

const VOCAB = 50;
const prompt = Int32Array.from({ length: 40 }, (_, i) => (i * 7) % VOCAB);

function open(capacity = 100, checkpoints?: MemoryCheckpoints) {
  const backend = new FakeBackend(VOCAB, hashed(VOCAB));
  return { backend, session: new Session(backend, capacity, checkpoints) };
}

const expectedLogits = (tokens: ArrayLike<number>) => hashed(VOCAB)(Array.from(tokens));

describe("prefill", () => {
  it.each([1, 2, 3, 7, 39, 40, 41, 1000])("gives the same state in chunks of %i (case 31)", (chunkTokens) => {
    const { session, backend } = open();
    session.prefill(prompt, { chunkTokens });
    expect([...session.tokens]).toEqual([...prompt]);
    expect(session.logits).toEqual(expectedLogits(prompt));
    expect(Math.max(...backend.calls)).toBe(Math.min(chunkTokens, 40));
  });

  it.each([1, 2, 3, 4, 5])("takes prompts of %i tokens (case 30)", (length) => {
    const { session } = open();
    session.prefill(prompt.subarray(0, length));
    expect(session.logits).toEqual(expectedLogits(prompt.subarray(0, length)));
  });

  it("never exceeds the backend's batch", () => {
    const backend = new FakeBackend(VOCAB, hashed(VOCAB), 16);
    const session = new Session(backend, 100);
    session.prefill(prompt, { chunkTokens: 64 });
    expect(backend.calls).toEqual([16, 16, 8]);
  });

  it("reports every chunk", () => {
    const { session } = open();
    const reports: string[] = [];
    session.prefill(prompt, {
      chunkTokens: 16,
      onProgress: (p) => reports.push(`${p.done}/${p.total} ${p.unit}`),
    });
    expect(reports).toEqual(["16/40 tokens", "32/40 tokens", "40/40 tokens"]);
  });

  it("stops between chunks and keeps what was computed", () => {
    const { session } = open();
    const controller = new AbortController();
    const onProgress = ({ done }: { done: number }) => done === 20 && controller.abort();
    const run = () => session.prefill(prompt, { chunkTokens: 10, signal: controller.signal, onProgress });
    expect(run).toThrow(CancelledError);
    expect(session.lengthTokens).toBe(20);
    expect(session.logits).toEqual(expectedLogits(prompt.subarray(0, 20)));
    expect(session.sync(prompt)).toEqual({ reusedTokens: 20, evaluatedTokens: 20 });
    expect(session.logits).toEqual(expectedLogits(prompt));
  });

  it("refuses tokens outside the vocabulary before evaluating any (case 39)", () => {
    const { session, backend } = open();
    expect(() => session.prefill([1, 2, VOCAB])).toThrow(/token 2: expected an id in 0\.\.49, got 50/);
    expect(() => session.step(-1)).toThrow(/got -1/);
    expect(() => session.prefill([1.5])).toThrow(Ds4Error);
    expect(backend.calls).toEqual([]);
  });

  it("refuses bad chunk and context sizes", () => {
    const { session, backend } = open();
    expect(() => session.prefill(prompt, { chunkTokens: 0 })).toThrow(/prefill chunk/);
    expect(() => new Session(backend, 0)).toThrow(/context/);
  });
});

describe("a full context", () => {
  it("answers a typed error with the numbers and changes nothing", () => {
    const { session } = open(45);
    session.prefill(prompt);
    let caught: unknown;
    try {
      session.prefill(prompt);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(ContextFullError);
    expect(caught).toMatchObject({
      code: "context-full",
      usedTokens: 40,
      addedTokens: 40,
      capacityTokens: 45,
    });
    expect(session.lengthTokens).toBe(40);
    for (let i = 0; i < 5; i++) session.step(i);
    expect(() => session.step(1)).toThrow(ContextFullError);
    expect(() => session.sync(new Int32Array(46))).toThrow(ContextFullError);
    expect(session.lengthTokens).toBe(45);
  });
});

describe("sync", () => {
  it("evaluates only what is new when the prompt continues the timeline (case 99)", () => {
    const { session, backend } = open();
    session.prefill(prompt);
    session.step(3);
    const longer = [...prompt, 3, 4, 5];
    expect(session.sync(longer)).toEqual({ reusedTokens: 41, evaluatedTokens: 2 });
    expect(backend.calls).toEqual([40, 1, 2]);
    expect(session.logits).toEqual(expectedLogits(longer));
  });

  it("does nothing when the timeline is equal", () => {
    const { session, backend } = open();
    session.prefill(prompt);
    expect(session.sync(prompt)).toEqual({ reusedTokens: 40, evaluatedTokens: 0 });
    expect(backend.calls).toEqual([40]);
  });

  it("starts again when the prompt differs or is shorter", () => {
    const { session } = open();
    session.prefill(prompt);
    const other = [...prompt];
    other[39] = 1;
    expect(session.sync(other)).toEqual({ reusedTokens: 0, evaluatedTokens: 40 });
    expect(session.logits).toEqual(expectedLogits(other));
    expect(session.sync(prompt.subarray(0, 10))).toEqual({ reusedTokens: 0, evaluatedTokens: 10 });
    expect(session.logits).toEqual(expectedLogits(prompt.subarray(0, 10)));
  });

  it("restores the longest checkpoint that is a prefix", () => {
    const { session } = open(100, new MemoryCheckpoints(3));
    for (const end of [10, 20, 30]) {
      session.prefill(prompt.subarray(end - 10, end));
      session.checkpoint();
    }
    const branch = [...prompt.subarray(0, 25), 1, 2, 3];
    expect(session.sync(branch)).toEqual({ reusedTokens: 20, evaluatedTokens: 8 });
    expect(session.logits).toEqual(expectedLogits(branch));
  });
});

describe("candidates", () => {
  it("are what a step asked for; the row can be had until the backend goes on", () => {
    const { backend, session } = open();
    session.prefill([1, 2, 3]);
    expect(session.candidates).toBe(session.logits);
    session.step(4, "top");
    expect(session.candidates).not.toBeInstanceOf(Float32Array);
    expect(session.logits).toEqual(hashed(VOCAB)([1, 2, 3, 4]));
    expect(session.candidates).toBe(session.logits);
    session.step(5, "top");
    const other = new Session(backend, 10);
    other.prefill([1]);
    expect(() => session.logits).toThrow(expect.objectContaining({ code: "session" }));
    expect(backend.wanted).toEqual(["last", "top", "top", "last"]);
    session.step(6);
    expect(session.logits).toEqual(hashed(VOCAB)([1, 2, 3, 4, 5, 6]));
  });

  it("alone do not make a timeline that can be sampled from again", () => {
    const { session } = open();
    session.prefill([1, 2, 3]);
    session.step(4, "top");
    expect(session.sync([1, 2, 3, 4])).toEqual({ reusedTokens: 0, evaluatedTokens: 4 });
    session.step(5, "top");
    const saved = session.snapshot();
    session.reset();
    session.restore(saved);
    expect(session.sync([1, 2, 3, 4, 5]).evaluatedTokens).toBe(0);
    expect(session.candidates).toEqual(hashed(VOCAB)([1, 2, 3, 4, 5]));
  });
});

describe("snapshot, restore and rollback", () => {
  it.each([1, 3, 4, 15, 16, 17, 39])("continues from a snapshot at %i like a cold run (case 43)", (at) => {
    const { session } = open();
    session.prefill(prompt.subarray(0, at));
    const saved = session.snapshot();
    session.prefill([9, 9, 9]);
    session.restore(saved);
    expect(session.logits).toEqual(expectedLogits(prompt.subarray(0, at)));
    session.prefill(prompt.subarray(at));
    expect(session.logits).toEqual(expectedLogits(prompt));
  });

  it("rolls back from the nearest checkpoint", () => {
    const checkpoints = new MemoryCheckpoints(2);
    const { session, backend } = open(100, checkpoints);
    session.prefill(prompt.subarray(0, 32));
    session.checkpoint();
    session.prefill(prompt.subarray(32));
    expect(session.rollback(35)).toEqual({ reusedTokens: 32, evaluatedTokens: 3 });
    expect(backend.calls.at(-1)).toBe(3);
    expect(session.logits).toEqual(expectedLogits(prompt.subarray(0, 35)));
    expect(() => session.rollback(36)).toThrow(/expected 0\.\.35/);
    expect(session.rollback(0)).toEqual({ reusedTokens: 0, evaluatedTokens: 0 });
    expect(() => session.logits).toThrow(/no logits/);
  });

  it("refuses a snapshot whose parts disagree or that is too long", () => {
    const { session } = open();
    session.prefill(prompt);
    const saved = session.snapshot();
    expect(() => session.restore({ ...saved, tokens: saved.tokens.slice(1) })).toThrow(
      /do not belong together/,
    );
    expect(() => open(39).session.restore(saved)).toThrow(ContextFullError);
  });

  it("keeps only the newest checkpoints, one per timeline", () => {
    const checkpoints = new MemoryCheckpoints(2);
    const { session } = open(100, checkpoints);
    for (let i = 0; i < 4; i++) {
      session.step(i);
      session.checkpoint();
      session.checkpoint();
    }
    expect(checkpoints.count).toBe(2);
    expect(checkpoints.longestPrefix([0, 1])).toBeUndefined();
    expect(checkpoints.longestPrefix([0, 1, 2, 9])?.tokens.length).toBe(3);
  });
});

it("refuses work after close, which frees the KV state once", () => {
  const { session, backend } = open();
  session.close();
  session.close();
  expect(backend.kvs[0].closed).toBe(true);
  expect(() => session.prefill([1])).toThrow(/closed/);
});
