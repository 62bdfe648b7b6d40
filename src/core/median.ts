/** The middle of the values, the mean of the two middle ones where their count is even; 0 of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle];
  return sorted.length === 0 ? 0 : (sorted[middle - 1] + sorted[middle]) / 2;
}
