// The places of a step folded into layers: what every layer has once separates them, layers of the same kernels with the
// same weights are one kind.
import type { Place, StepTimes } from "./steps.ts";
import type { LaunchWeights } from "./weight-launches.ts";

/** A kernel at one place of all layers of a kind. Times in microseconds, means over the layers. */
export interface TraceRow {
  name: string;
  /** Per token. */
  count: number;
  /** Of the grid: the smallest and the largest. */
  blocks: [least: number, most: number];
  registers: number;
  costUs: number;
  ownUs: number;
  overlapUs: number;
  idleUs: number;
  /** Of a token's time, all layers together; 0..1. */
  share: number;
  /** Weights read by one launch; null where it is not known. */
  weightBytes: number | null;
  /** Their rate over `costUs`; null likewise, and for launches that read no weights or cost no time. */
  gigabytesPerSecond: number | null;
  /** The tensors, without block and suffix. */
  tensors: string[];
}

/** Rows that belong together. */
export interface TraceSection {
  /** Which layers, or what comes before or after them. */
  title: string;
  /** Indexes; empty outside of layers. */
  layers: number[];
  rows: TraceRow[];
}

/** A place with the weights that its launch reads. */
interface WeighedPlace extends Place {
  weights: LaunchWeights | null;
}

/**
 * The table of a trace. `launches`: what each launch of a step reads, in order; left out where it is not known or does not
 * fit the trace. `layerCount`: of the model; without it, the count that most kernels have.
 */
export function traceSections(
  times: StepTimes,
  launches: readonly LaunchWeights[] | null = null,
  layerCount?: number,
): TraceSection[] {
  const known = launches !== null && fits(times.places, launches) ? launches : null;
  const places = times.places.map((place, i) => ({ ...place, weights: known?.[i] ?? null }));
  const { before, layers, after } = cutLayers(places, layerCount);
  const kinds = new Map<string, WeighedPlace[][]>();
  const indexes = new Map<string, number[]>();
  layers.forEach((layer, index) => {
    const key = layer.map(({ name, weights }) => `${name} ${weights?.bytes ?? "?"}`).join("\n");
    kinds.set(key, [...(kinds.get(key) ?? []), layer]);
    indexes.set(key, [...(indexes.get(key) ?? []), index]);
  });
  const ofKinds = [...kinds].map(([key, some]) => {
    const numbers = indexes.get(key)!;
    const title = `${some.length === 1 ? "layer" : "layers"} ${ranges(numbers)}`;
    return { title, layers: numbers, rows: rowsOf(some, times.stepUs) };
  });
  const edge = (title: string, some: WeighedPlace[]) =>
    some.length === 0 ? [] : [{ title, layers: [], rows: rowsOf([some], times.stepUs) }];
  const whole = layers.length === 0;
  return [
    ...edge(whole ? "the step" : "before the layers", before),
    ...ofKinds,
    ...edge("after the layers", after),
  ];
}

/** True when launches and places name the same kernels. */
export function fits(places: readonly Place[], launches: readonly LaunchWeights[]): boolean {
  return places.length === launches.length && places.every(({ name }, i) => name === launches[i].kernel);
}

interface Cut {
  before: WeighedPlace[];
  layers: WeighedPlace[][];
  after: WeighedPlace[];
}

/** Without layers that can be told apart, all places are `before`. */
function cutLayers(places: WeighedPlace[], layerCount: number | undefined): Cut {
  const counts = new Map<string, number>();
  for (const { name } of places) counts.set(name, (counts.get(name) ?? 0) + 1);
  const count = layerCount ?? mostCommon([...counts.values()].filter((each) => each > 1));
  const last = places.findLast(({ name }) => counts.get(name) === count);
  if (count === undefined || count < 2 || last === undefined)
    return { before: places, layers: [], after: [] };
  const layers: WeighedPlace[][] = [];
  let begin = 0;
  places.forEach(({ name }, i) => {
    if (name !== last.name) return;
    layers.push(places.slice(begin, i + 1));
    begin = i + 1;
  });
  // Where the first layer begins, the others tell.
  const start = layers[0].findIndex(({ name }) => name === layers[1][0].name);
  const before = layers[0].splice(0, Math.max(0, start));
  return { before, layers, after: places.slice(begin) };
}

/** The value that occurs most often, the largest of several; undefined for none. */
function mostCommon(values: readonly number[]): number | undefined {
  const occurrences = (value: number) => values.filter((each) => each === value).length;
  return values.toSorted((a, b) => occurrences(b) - occurrences(a) || b - a)[0];
}

/** One row per place of layers that are alike. */
function rowsOf(layers: readonly WeighedPlace[][], stepUs: number): TraceRow[] {
  return layers[0].map((first, at) => {
    const places = layers.map((layer) => layer[at]);
    const mean = (value: (place: Place) => number) =>
      places.reduce((sum, place) => sum + value(place), 0) / places.length;
    const blocks = places.map((place) => place.blocks);
    const costUs = mean((place) => place.costUs);
    const { weights } = first;
    const weightBytes = weights?.bytes ?? null;
    const hasRate = weightBytes !== null && weightBytes > 0 && costUs > 0;
    return {
      ...{ name: first.name, count: places.length, blocks: [Math.min(...blocks), Math.max(...blocks)] },
      ...{ registers: first.registers, costUs },
      ownUs: mean((place) => place.ownUs),
      overlapUs: mean((place) => place.overlapUs),
      idleUs: mean((place) => place.idleUs),
      share: stepUs > 0 ? (places.length * costUs) / stepUs : 0,
      weightBytes,
      gigabytesPerSecond: hasRate ? weightBytes / costUs / 1e3 : null,
      tensors: weights?.tensors ?? [],
    } satisfies TraceRow;
  });
}

/** `0-1, 4, 6`; every second one as `2, 4 … 42`. */
function ranges(numbers: readonly number[]): string {
  const step = numbers[1] - numbers[0];
  const even = numbers.length > 3 && numbers.every((n, i) => i === 0 || n - numbers[i - 1] === step);
  if (even && step > 1) return `${numbers[0]}, ${numbers[1]} … ${numbers.at(-1)}`;
  const parts: string[] = [];
  for (let i = 0; i < numbers.length; ) {
    let to = i;
    while (numbers[to + 1] === numbers[to] + 1) to++;
    parts.push(to === i ? `${numbers[i]}` : `${numbers[i]}-${numbers[to]}`);
    i = to + 1;
  }
  return parts.join(", ");
}
