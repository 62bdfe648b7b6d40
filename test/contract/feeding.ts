// How the contract suite feeds a backend and compares what comes out.
import { expect } from "vitest";
import type { Backend, KvState, LogitsWanted } from "../../src/backend/backend.ts";
import type { KvSnapshot } from "../../src/backend/kv-snapshot.ts";
import { Ds4Error, type ErrorCode } from "../../src/core/errors.ts";

/** Tokens of the states that the suite creates. */
export const CAPACITY = 320;

/** Fixed pseudo-random token ids. */
export function testTokens(count: number, seed: number, vocabSize = 96): Int32Array {
  let state = (seed + 1) * 2654435761;
  return Int32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}

/** Logits of all tokens [tokens, vocab], fed in chunks; the last chunk size repeats. */
export function feed(backend: Backend, tokens: Int32Array, chunks: readonly number[]): Float32Array {
  const { vocabSize } = backend.spec;
  const kv = backend.createKv(CAPACITY);
  const logits = new Float32Array(tokens.length * vocabSize);
  for (let start = 0, index = 0; start < tokens.length; index++) {
    const size = chunks[Math.min(index, chunks.length - 1)];
    logits.set(forwardOne(backend, kv, tokens.subarray(start, start + size), "all"), start * vocabSize);
    start += size;
  }
  kv.close();
  return logits;
}

/** One range through one forward call; its logits, valid until the next call. */
export function forwardOne(
  backend: Backend,
  kv: KvState,
  tokens: Int32Array,
  logits: LogitsWanted,
): Float32Array {
  return backend.forward([{ kv, tokens: tokens.slice(), logits }]).logits[0];
}

/** Fails when any value differs by more than the tolerance, or is not a number. */
export function expectClose(found: Float32Array, expected: Float32Array, tolerance: number): void {
  expect(found.length).toBe(expected.length);
  let worst = 0;
  found.forEach((value, index) => {
    const difference = Math.abs(value - expected[index]);
    worst = Math.max(worst, difference); // stays NaN once it is
  });
  expect(worst).toBeLessThanOrEqual(tolerance);
}

/** Fails unless both states hold the same sections with close values. */
export function expectSnapshotsClose(found: KvSnapshot, expected: KvSnapshot, tolerance: number): void {
  expect(found.lengthTokens).toBe(expected.lengthTokens);
  expect(found.shapeKey).toBe(expected.shapeKey);
  const shapes = (snapshot: KvSnapshot) => snapshot.sections.map(({ name, shape }) => `${name} ${shape}`);
  expect(shapes(found)).toEqual(shapes(expected));
  found.sections.forEach((section, index) => {
    expectClose(section.data, expected.sections[index].data, tolerance);
  });
}

/** Fails unless the action throws a typed error with this code. */
export function expectCode(code: ErrorCode, action: () => unknown): void {
  let caught: unknown;
  try {
    action();
  } catch (error) {
    caught = error;
  }
  expect(caught).toBeInstanceOf(Ds4Error);
  expect((caught as Ds4Error).code).toBe(code);
}
