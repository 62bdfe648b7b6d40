// Candidates of rows that lie in the host's memory, and results of forward calls made of them.
import { Ds4Error } from "../core/errors.ts";
import { largestValues } from "../core/largest-values.ts";
import { sumExp } from "../core/sum-exp.ts";
import { type ForwardResult, TOP_LOGITS, type TopLogits } from "./backend.ts";
import type { Segment } from "./token-batch.ts";

/** The candidates of a row [vocabSize], whose view `row` returns. */
export function topOfRow(row: Float32Array): TopLogits {
  const { places: ids, values: logits } = largestValues(row, TOP_LOGITS);
  let known: number | undefined;
  const logSumExp = () => {
    known ??= logits[0] + Math.log(sumExp(row, logits[0]));
    return known;
  };
  return { ids, logits, logSumExp, row: () => row };
}

/** The result of a call that left the wanted rows [rows, vocabSize] of every segment in the host's memory. */
export function resultOfRows(
  segments: readonly Pick<Segment<never>, "logits">[],
  rows: readonly Float32Array[],
): ForwardResult {
  const top = segments.map(({ logits }, index) => (logits === "top" ? topOfRow(rows[index]) : undefined));
  return { logits: rows.map((each, index) => (top[index] ? each.subarray(0, 0) : each)), top };
}

/** The same candidates, of whose row more can be had only while `isCurrent`. */
export function whileCurrent(top: TopLogits, isCurrent: () => boolean): TopLogits {
  const checked = <Result>(get: () => Result): Result => {
    if (isCurrent()) return get();
    const text =
      "the row of these candidates is gone: ask for it before the next forward call of the backend";
    throw new Ds4Error("session", text);
  };
  const { ids, logits } = top;
  return { ids, logits, logSumExp: () => checked(top.logSumExp), row: () => checked(top.row) };
}
