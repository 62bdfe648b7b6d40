// The report of `ds4 inspect` as text and as JSON. Everything that comes out of the file is escaped: a header may not
// move the terminal's cursor.
import { quotedText } from "../core/quoted-text.ts";
import { textTable } from "../core/text-table.ts";
import { formatBytes, GIB } from "../core/units.ts";
import type { MetadataArray, MetadataValue, TensorInfo } from "../gguf/gguf-file.ts";
import type { InspectReport, LayerRange, TensorTotal } from "./inspect-report.ts";

/** Array elements shown before the rest is only counted. */
const MAX_SHOWN_ELEMENTS = 6;
/** Characters shown of a string inside an array. */
const MAX_ELEMENT_CHARACTERS = 24;

/** The report as plain text with aligned columns; `tensors` adds the tensor table. */
export function formatInspect(report: InspectReport, options: { tensors?: boolean } = {}): string {
  const sections = [
    headLines(report),
    ["Metadata", ...metadataLines(report)],
    ["By type", ...totalLines(report.types)],
    ["By class", ...totalLines(report.classes)],
  ];
  if (report.layers.length > 0) sections.push(["Layers", ...report.layers.map(layerLine)]);
  if (options.tensors) sections.push(["Tensors", ...tensorLines(report)]);
  return `${sections.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}

/** The whole report as JSON: arrays in full, 64-bit integers beyond 2^53 as strings, NaN and infinities as null. */
export function inspectJson(report: InspectReport): string {
  const metadata = Array.from(report.metadata, ([key, value]) => [key, jsonValue(value)]);
  return JSON.stringify({ ...report, metadata: Object.fromEntries(metadata) });
}

function headLines(report: InspectReport): string[] {
  const { tokenizer, parts } = report;
  const rows: [string, string][] = [
    ["file", safeText(report.name)],
    ["format", `GGUF v${report.version}, alignment ${report.alignmentBytes} bytes`],
    ["architecture", report.architecture === null ? "not stated" : quotedText(report.architecture)],
    ["size", `${formatBytes(report.fileBytes)} (${report.fileBytes} bytes)`],
    ["tensors", `${report.tensorCount} tensors, ${formatBytes(report.tensorBytes)}`],
    ["tokenizer", tokenizer === null ? "none" : `${tokenizer.tokens} tokens, ${tokenizer.merges} merges`],
  ];
  if (parts.length > 1) rows.push(["parts", `${parts.length}`], ...parts.map(partRow));
  return table(rows, "ll");
}

function partRow(path: string): [string, string] {
  return ["", safeText(path)];
}

function metadataLines(report: InspectReport): string[] {
  if (report.metadata.size === 0) return ["  (none)"];
  const rows = Array.from(report.metadata, ([key, value]) => [
    safeText(key),
    value.type === "array" ? `${value.elementType}[${value.values.length}]` : value.type,
    shownValue(value),
  ]);
  return table(rows, "lll");
}

function totalLines(totals: readonly TensorTotal[]): string[] {
  const rows = totals.map(({ name, count, bytes, values }) => [
    name,
    `${count}`,
    `${bytes}`,
    (bytes / GIB).toFixed(4),
    ((bytes * 8) / values).toFixed(2),
  ]);
  return table([["", "count", "bytes", "GiB", "bits/weight"], ...rows], "lrrrr");
}

function layerLine({ first, last, experts, attention, bytes }: LayerRange): string {
  const range = first === last ? `layer ${first}` : `layers ${first}-${last}`;
  const types = [];
  if (experts.length > 0) types.push(`experts ${experts.join("/")}`);
  if (attention.length > 0) types.push(`attention ${attention[0]}`);
  return `  ${range}: ${[...types, formatBytes(bytes)].join(", ")}`;
}

function tensorLines(report: InspectReport): string[] {
  const isSplit = report.parts.length > 1;
  const row = (tensor: TensorInfo) => [
    safeText(tensor.name),
    tensor.type,
    `[${tensor.dims.join(", ")}]`,
    `${tensor.bytes}`,
    isSplit ? `${tensor.fileIndex + 1}:${tensor.offsetBytes}` : `${tensor.offsetBytes}`,
  ];
  const head = ["name", "type", "dims", "bytes", isSplit ? "part:offset" : "offset"];
  return table([head, ...report.tensors.map(row)], "lllrr");
}

function table(rows: readonly (readonly string[])[], align: string): string[] {
  return textTable(align, rows).map((line) => `  ${line}`);
}

function shownValue(value: MetadataValue): string {
  if (value.type === "array") return shownArray(value);
  return typeof value.value === "string" ? quotedText(value.value) : shownNumber(value.value, value.type);
}

function shownArray({ elementType, values }: MetadataArray): string {
  const shown = Array.from<MetadataArray["values"][number]>(values.slice(0, MAX_SHOWN_ELEMENTS)).map(
    (element) => {
      if (typeof element === "string") return quotedText(element, MAX_ELEMENT_CHARACTERS);
      if (typeof element === "object") return `${element.elementType}[${element.values.length}]`;
      return shownNumber(element, elementType);
    },
  );
  const more = values.length > shown.length ? `, … ${values.length - shown.length} more` : "";
  return `[${shown.join(", ")}${more}]`;
}

/** A float32 has about seven digits; its double's further ones are noise. */
function shownNumber(value: number | bigint | boolean, type: string): string {
  return type === "f32" ? String(Number((value as number).toPrecision(7))) : String(value);
}

function safeText(text: string): string {
  return quotedText(text, text.length).slice(1, -1).replaceAll('\\"', '"');
}

type JsonValue = string | number | boolean | null | JsonValue[];

function jsonValue(value: MetadataValue): { type: string; elementType?: string; value: JsonValue } {
  if (value.type !== "array") return { type: value.type, value: jsonScalar(value.value) };
  return { type: "array", elementType: value.elementType, value: jsonArray(value) };
}

function jsonArray({ values }: MetadataArray): JsonValue[] {
  return Array.from<MetadataArray["values"][number], JsonValue>(values, (element) =>
    typeof element === "object" ? jsonArray(element) : jsonScalar(element),
  );
}

function jsonScalar(value: string | number | boolean | bigint): JsonValue {
  if (typeof value !== "bigint") return value;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}
