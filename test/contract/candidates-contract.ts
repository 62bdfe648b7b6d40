// What every backend must return of rows of which sampling alone wants something.
import { expect, test } from "vitest";
import { type Backend, TOP_LOGITS } from "../../src/backend/backend.ts";
import type { TinyModelOptions } from "../fixtures/tiny-model.ts";
import type { ContractTolerances } from "./backend-contract.ts";
import { CAPACITY, expectClose, expectCode, feed, forwardOne, testTokens } from "./feeding.ts";

/** A part of the suite in backend-contract.ts. */
export function describeCandidates(
  backend: () => Backend,
  open: (options: TinyModelOptions) => Backend,
  { self }: ContractTolerances,
): void {
  test.each([
    ["top", "all", "top"],
    ["last", "top", "top"],
    ["none", "top", "last"],
  ] as const)(
    "candidates are the largest of the last row, in order, beside other ranges: %s %s %s",
    (...wanted) => {
      const { vocabSize } = backend().spec;
      const prompts = [testTokens(6, 6), testTokens(9, 7), testTokens(1, 8)];
      const states = prompts.map(() => backend().createKv(CAPACITY));
      const ranges = prompts.map((tokens, i) => ({ kv: states[i], tokens, logits: wanted[i] }));
      const { logits, top } = backend().forward(ranges);
      const lengths = { none: 0, top: 0, last: vocabSize };
      expect(logits.map(({ length }) => length)).toEqual(
        wanted.map((each, i) => (each === "all" ? prompts[i].length * vocabSize : lengths[each])),
      );
      expect(top.map((each) => each !== undefined)).toEqual(wanted.map((each) => each === "top"));
      const rows = top.map((each, i) => each?.row().slice() ?? logits[i].slice(-vocabSize));
      const sums = top.map((each) => each?.logSumExp());
      prompts.forEach((tokens, i) => {
        if (wanted[i] === "none") return;
        const row = rows[i];
        expectClose(row, feed(backend(), tokens, [tokens.length]).subarray(-vocabSize), self);
        if (top[i] === undefined) return;
        const { ids, logits: values } = top[i];
        const order = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b).slice(0, TOP_LOGITS);
        expect([...ids]).toEqual(order);
        expect([...values]).toEqual(order.map((id) => row[id]));
        const sum = row.reduce((total, value) => total + Math.exp(value), 0);
        expect(Math.abs(sums[i]! - Math.log(sum))).toBeLessThanOrEqual(1e-6);
      });
      for (const kv of states) kv.close();
    },
  );

  test("a candidate row of more tokens than candidates is found whole, until the next call", () => {
    const own = open({ vocab: 700, seed: 9 });
    const kv = own.createKv(CAPACITY);
    forwardOne(own, kv, testTokens(5, 1), "none");
    for (let step = 0; step < 4; step++) {
      const [top] = own.forward([{ kv, tokens: Int32Array.of(step), logits: "top" }]).top;
      const row = top!.row();
      expect(row.length).toBe(700);
      const order = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b).slice(0, TOP_LOGITS);
      expect([...top!.ids]).toEqual(order);
      expect([...top!.logits]).toEqual(order.map((id) => row[id]));
      own.forward([{ kv, tokens: Int32Array.of(7), logits: "none" }]);
      expectCode("session", () => top!.row());
      expectCode("session", () => top!.logSumExp());
      expect([...top!.ids]).toEqual(order);
    }
    kv.close();
  });
}
