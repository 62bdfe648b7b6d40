// A small SVG line chart: axes with round ticks, a legend, one colour per series. No dependency, no script;
// readable on white and when printed.

/** One line of the chart. */
export interface ChartSeries {
  name: string;
  points: readonly { x: number; y: number }[];
}

/** Titles and the kind of x axis. */
export interface ChartOptions {
  title: string;
  xLabel: string;
  yLabel: string;
  /** Powers of two at equal distances: for sweeps that double. Default false. */
  logX?: boolean;
  /** Horizontal line with a label, e.g. the memory that is available. */
  limit?: { y: number; label: string };
}

const WIDTH = 760;
const HEIGHT = 440;
const HEADING_HEIGHT = 36;
/** Width of a character at the font size of labels, a little more than the average. */
const CHARACTER_WIDTH = 7.5;
const LEGEND_COLUMNS = 4;
const MARGIN = { left: 76, right: 24, top: 48, bottom: 88 };
/** Distinct for colour-blind readers too (Okabe-Ito without yellow). */
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"];

/** Where data coordinates land on the picture. */
interface Scale {
  px: (x: number) => number;
  py: (y: number) => number;
  xTicks: number[];
  yTicks: number[];
}

const PLOT_WIDTH = WIDTH - MARGIN.left - MARGIN.right;
const PLOT_HEIGHT = HEIGHT - MARGIN.top - MARGIN.bottom;
const BASELINE = MARGIN.top + PLOT_HEIGHT;

/** Draws the chart. Points with a non-finite coordinate are skipped. */
export function drawLineChart(series: readonly ChartSeries[], options: ChartOptions): string {
  const finite = series.map((entry) => ({
    name: entry.name,
    points: entry.points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y)),
  }));
  const scale = makeScale(
    finite.flatMap((entry) => entry.points),
    options,
  );
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="system-ui, sans-serif" font-size="13">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>`,
    `<text x="${WIDTH / 2}" y="26" text-anchor="middle" font-size="16" font-weight="600">${escapeXml(shorten(options.title, (WIDTH - 48) / 1.3))}</text>`,
    ...drawAxes(scale, options),
    ...(options.limit ? drawLimit(scale, options.limit) : []),
    ...finite.flatMap((entry, index) => [
      ...drawSeries(scale, entry, index),
      ...drawLegend(entry.name, index, finite.length),
    ]),
  ];
  return `${parts.join("\n")}\n</svg>\n`;
}

/** Charts of `drawLineChart` below each other in one picture, under a heading that is cut to the width. */
export function stackCharts(charts: readonly string[], heading: string): string {
  const height = HEADING_HEIGHT + HEIGHT * charts.length;
  const placed = charts.map((chart, index) =>
    chart.replace("<svg ", `<svg y="${HEADING_HEIGHT + index * HEIGHT}" `),
  );
  const shown = escapeXml(shorten(heading, WIDTH - 2 * MARGIN.right));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="13">
<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>
<text x="${WIDTH / 2}" y="24" text-anchor="middle" fill="#444444">${shown}</text>
${placed.join("")}</svg>
`;
}

function makeScale(points: readonly { x: number; y: number }[], options: ChartOptions): Scale {
  const toX = (x: number) => (options.logX ? Math.log2(Math.max(x, 1)) : x);
  const xs = points.map((p) => p.x);
  const minX = xs.length > 0 ? Math.min(...xs) : 0;
  const maxX = xs.length > 0 ? Math.max(...xs) : 1;
  const yTicks = niceTicks(0, Math.max(...points.map((p) => p.y), options.limit?.y ?? 0, 1e-9), 6);
  const maxY = yTicks[yTicks.length - 1];
  const width = toX(maxX) - toX(minX);
  return {
    px: (x) => MARGIN.left + (width > 0 ? (toX(x) - toX(minX)) / width : 0.5) * PLOT_WIDTH,
    py: (y) => BASELINE - (y / maxY) * PLOT_HEIGHT,
    xTicks: options.logX
      ? [...new Set(xs)].sort((a, b) => a - b)
      : xTicks(xs, minX, maxX).filter((tick) => tick >= minX && tick <= maxX),
    yTicks,
  };
}

// Contexts come in multiples of powers of two; ticks at 5000 would lie between all points.
function xTicks(xs: readonly number[], minX: number, maxX: number): number[] {
  const isBinary = maxX > minX && xs.every((x) => x % 256 === 0);
  if (!isBinary) return niceTicks(minX, maxX, 8);
  const step = 2 ** Math.ceil(Math.log2((maxX - minX) / 10));
  const first = Math.ceil(minX / step);
  return Array.from({ length: Math.floor(maxX / step) - first + 1 }, (_, index) => (first + index) * step);
}

function drawAxes(scale: Scale, options: ChartOptions): string[] {
  const right = WIDTH - MARGIN.right;
  const yLines = scale.yTicks.map((tick) => {
    const y = r(scale.py(tick));
    const line = `<line x1="${MARGIN.left}" y1="${y}" x2="${right}" y2="${y}" stroke="#dddddd"/>`;
    return `${line}<text x="${MARGIN.left - 8}" y="${y + 4}" text-anchor="end">${formatTick(tick)}</text>`;
  });
  const xLines = thin(scale.xTicks, 12).map((tick) => {
    const x = r(scale.px(tick));
    const line = `<line x1="${x}" y1="${BASELINE}" x2="${x}" y2="${BASELINE + 5}" stroke="#444444"/>`;
    return `${line}<text x="${x}" y="${BASELINE + 20}" text-anchor="middle">${formatTick(tick)}</text>`;
  });
  return [
    ...yLines,
    ...xLines,
    `<line x1="${MARGIN.left}" y1="${BASELINE}" x2="${right}" y2="${BASELINE}" stroke="#444444"/>`,
    `<text x="${MARGIN.left + PLOT_WIDTH / 2}" y="${BASELINE + 42}" text-anchor="middle">${escapeXml(options.xLabel)}</text>`,
    `<text transform="translate(18 ${MARGIN.top + PLOT_HEIGHT / 2}) rotate(-90)" text-anchor="middle">${escapeXml(options.yLabel)}</text>`,
  ];
}

function drawLimit(scale: Scale, limit: { y: number; label: string }): string[] {
  const y = r(scale.py(limit.y));
  const right = WIDTH - MARGIN.right;
  return [
    `<line x1="${MARGIN.left}" y1="${y}" x2="${right}" y2="${y}" stroke="#b00020" stroke-dasharray="6 4"/>`,
    `<text x="${right}" y="${y - 6}" text-anchor="end" fill="#b00020">${escapeXml(limit.label)}</text>`,
  ];
}

function drawSeries(scale: Scale, entry: ChartSeries, index: number): string[] {
  const color = COLORS[index % COLORS.length];
  const path = entry.points.map((p) => `${r(scale.px(p.x))},${r(scale.py(p.y))}`).join(" ");
  return [
    `<polyline points="${path}" fill="none" stroke="${color}" stroke-width="2"/>`,
    ...entry.points.map(
      (p) => `<circle cx="${r(scale.px(p.x))}" cy="${r(scale.py(p.y))}" r="3" fill="${color}"/>`,
    ),
  ];
}

function drawLegend(name: string, index: number, count: number): string[] {
  const columns = Math.min(LEGEND_COLUMNS, count);
  const columnWidth = PLOT_WIDTH / columns;
  const x = r(MARGIN.left + (index % columns) * columnWidth);
  const y = HEIGHT - 24 + Math.floor(index / columns) * 18;
  const shown = escapeXml(shorten(name, columnWidth - 30));
  return [
    `<rect x="${x}" y="${y - 10}" width="12" height="12" fill="${COLORS[index % COLORS.length]}"/>`,
    `<text x="${x + 18}" y="${y}">${shown}</text>`,
  ];
}

// Cut in the middle: file names differ at both ends.
function shorten(text: string, width: number): string {
  const most = Math.floor(width / CHARACTER_WIDTH);
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

/** Round numbers (1, 2, 2.5, 5 times a power of ten) covering the interval. */
export function niceTicks(min: number, max: number, count: number): number[] {
  const rough = (max - min) / Math.max(1, count - 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step =
    [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? rough;
  const ticks: number[] = [];
  for (let index = Math.floor(min / step); index <= Math.ceil(max / step); index++) ticks.push(index * step);
  return ticks;
}

function thin(ticks: number[], most: number): number[] {
  const every = Math.ceil(ticks.length / most);
  return ticks.filter((_, index) => index % every === 0 || index === ticks.length - 1);
}

function formatTick(value: number): string {
  if (value >= 1_048_576 && value % 1_048_576 === 0) return `${value / 1_048_576}M`;
  if (value >= 1024 && value % 1024 === 0) return `${value / 1024}k`;
  return String(Number(value.toPrecision(6)));
}

function r(value: number): number {
  return Math.round(value * 10) / 10;
}

function escapeXml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
