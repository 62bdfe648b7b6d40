// A trace as tables: for people, for bench-results, as CSV.
import { textTable } from "../../../src/core/text-table.ts";
import type { TraceRow, TraceSection } from "./layers.ts";
import type { StepTimes } from "./steps.ts";

/** What was traced. */
export interface TraceFacts {
  date: string;
  /** Empty when only a trace file is known. */
  device: string;
  driver: string;
  model: string;
  ctxTokens: number | null;
  kvType: string;
  /** The host's clock, medians over the tokens: while kernels were traced, and in a run of its own without. Milliseconds. */
  tracedMs: number | null;
  plainMs: number | null;
  /** What the reader should know of this trace. */
  notes: string[];
}

/** Everything that is reported. */
export interface TraceReport {
  facts: TraceFacts;
  times: Omit<StepTimes, "places">;
  sections: TraceSection[];
}

/** Costs and idle times of all rows, per token, in microseconds. */
export function sumUs({ sections }: Pick<TraceReport, "sections">): { costUs: number; idleUs: number } {
  const rows = sections.flatMap((section) => section.rows);
  const sum = (value: (row: TraceRow) => number) =>
    rows.reduce((total, row) => total + row.count * value(row), 0);
  return { costUs: sum((row) => row.costUs), idleUs: sum((row) => row.idleUs) };
}

const HEAD = [
  ...["kernel", "n", "blocks", "regs", "cost us", "own us", "beside us", "idle us", "token us", "share"],
  ...["MB", "GB/s", "weights"],
];
const ALIGN = `l${"r".repeat(HEAD.length - 2)}l`;
const MOST_TENSORS = 3;

function cells(row: TraceRow): string[] {
  const [least, most] = row.blocks;
  const { tensors } = row;
  const more = tensors.length > MOST_TENSORS ? ` +${tensors.length - MOST_TENSORS}` : "";
  return [
    ...[
      row.name,
      String(row.count),
      least === most ? String(least) : `${least}-${most}`,
      String(row.registers),
    ],
    ...[row.costUs, row.ownUs, row.overlapUs, row.idleUs, row.count * row.costUs].map((us) => us.toFixed(1)),
    `${(100 * row.share).toFixed(1)} %`,
    row.weightBytes ? (row.weightBytes / 1e6).toFixed(2) : "",
    row.gigabytesPerSecond === null ? "" : row.gigabytesPerSecond.toFixed(0),
    tensors.slice(0, MOST_TENSORS).join(" ") + more,
  ];
}

function sectionLines(sections: readonly TraceSection[]): string[] {
  const lines = textTable(ALIGN, [HEAD, ...sections.flatMap(({ rows }) => rows.map(cells))]);
  const out = [lines[0]];
  let at = 1;
  for (const { title, rows } of sections) {
    out.push("", title, ...lines.slice(at, at + rows.length));
    at += rows.length;
  }
  return out;
}

function kernelLines(sections: readonly TraceSection[]): string[] {
  const kernels = new Map<string, { count: number; costUs: number; ownUs: number; share: number }>();
  for (const row of sections.flatMap(({ rows }) => rows)) {
    const sum = kernels.get(row.name) ?? { count: 0, costUs: 0, ownUs: 0, share: 0 };
    sum.count += row.count;
    sum.costUs += row.count * row.costUs;
    sum.ownUs += row.count * row.ownUs;
    sum.share += row.share;
    kernels.set(row.name, sum);
  }
  const lines = [...kernels]
    .sort(([, a], [, b]) => b.costUs - a.costUs)
    .map(([name, { count, costUs, ownUs, share }]) => [
      ...[name, String(count), costUs.toFixed(1), ownUs.toFixed(1), `${(100 * share).toFixed(1)} %`],
    ]);
  return textTable("lrrrr", [["kernel", "n", "token us", "own us", "share"], ...lines]);
}

function sumLines(report: TraceReport): string[] {
  const { facts, times } = report;
  const { costUs, idleUs } = sumUs(report);
  const inside = idleUs - times.betweenUs;
  const lines = [
    `A token, from the end of the last kernel before it to the end of its own last: ${times.stepUs.toFixed(0)} us ` +
      `(median of ${times.steps}).`,
    `Kernels cost ${costUs.toFixed(0)} us of it, the device waits ${inside.toFixed(0)} us between them and ` +
      `${times.betweenUs.toFixed(0)} us before the first (the host, copies).`,
  ];
  const ms = (value: number) => `${(1000 * value).toFixed(0)} us`;
  if (facts.tracedMs !== null) {
    const plain = facts.plainMs === null ? "" : `, in a run without tracing ${ms(facts.plainMs)}`;
    lines.push(`By the host's clock a step takes ${ms(facts.tracedMs)} while kernels are traced${plain}.`);
  }
  return lines;
}

/** Markdown: the facts, the sums, what every place costs, what every kernel costs. */
export function traceText(report: TraceReport): string {
  const { date, device, driver, model, ctxTokens, kvType, notes } = report.facts;
  const facts = [
    `${date.slice(0, 10)}. ${[device, driver, model].filter((each) => each !== "").join("; ")}`,
    ...(ctxTokens === null ? [] : [`; ${ctxTokens} tokens of context, --kv-type ${kvType}`]),
    ". Made by `npm run cuda:trace`.",
  ].join("");
  return [
    `# Decode, kernel by kernel${device === "" ? "" : `, on ${device.split(",")[0]}`}`,
    ...["", facts, ""],
    ...[...sumLines(report), ...notes.map((note) => `Note: ${note}.`)],
    "",
    "cost: from the end of all kernels before it to the end of this one, without the time in which nothing ran (idle). " +
      "own: from its start to its end. beside: of that, while earlier kernels still ran. token us and share: all n of a " +
      "token. MB: weights that one launch reads, GB/s: over its cost.",
    ...["", "```", ...sectionLines(report.sections), "```"],
    ...["", "```", ...kernelLines(report.sections), "```", ""],
  ].join("\n");
}

/** The table of all places, one row each. */
export function traceCsv(sections: readonly TraceSection[]): string {
  const head =
    "place,kernel,count,blocks_least,blocks_most,registers,cost_us,own_us,beside_us,idle_us,token_us,share,weight_bytes,gb_per_s,weights";
  const lines = sections.flatMap(({ title, rows }) =>
    rows.map((row) =>
      [
        ...[title.replaceAll(",", ""), row.name, row.count, ...row.blocks, row.registers],
        ...[row.costUs, row.ownUs, row.overlapUs, row.idleUs, row.count * row.costUs].map((us) =>
          us.toFixed(3),
        ),
        ...[row.share.toFixed(5), row.weightBytes ?? "", row.gigabytesPerSecond?.toFixed(1) ?? ""],
        row.tensors.join(" "),
      ].join(","),
    ),
  );
  return `${[head, ...lines].join("\n")}\n`;
}
