// Where a block of calls may begin: the tags that open one, looked at before anything is consumed.
import { isExact, MAX_GAP_UNITS, readTag, skipSpace, type Tag } from "./tags.ts";
import type { TextWindow } from "./text-window.ts";
import type { ToolSchema } from "./tool-table.ts";

/** The beginning of a block, or a closing tag that belongs to nothing. */
export type BlockStart =
  | { kind: "block"; exact: boolean; block: Tag | undefined }
  | { kind: "stray-closer"; tag: Tag };

/**
 * What begins at the `<` at `open`. A block is its tag followed by a tag; in any other spelling than the template's,
 * and where the block's tag was left out, the first call must name a known tool.
 */
export function findBlockStart(
  window: TextWindow,
  open: number,
  tools: ReadonlyMap<string, ToolSchema>,
): BlockStart | "partial" | undefined {
  const tag = readTag(window, open);
  if (tag === "partial" || tag === undefined) return tag;
  if (tag.closing) return { kind: "stray-closer", tag };
  if (tag.kind === "parameter") return undefined;
  if (tag.kind === "invoke")
    return callsTool(tag, tools) ? { kind: "block", exact: isExact(tag), block: undefined } : undefined;
  const { text } = window;
  const at = skipSpace(text, tag.end);
  if (at - tag.end > MAX_GAP_UNITS) return undefined;
  if (at === text.length) return "partial";
  if (text[at] !== "<") return undefined;
  const first = readTag(window, at);
  if (first === "partial" || first === undefined) return first;
  const exact = isExact(tag);
  return exact || callsTool(first, tools) ? { kind: "block", exact, block: tag } : undefined;
}

function callsTool(tag: Tag, tools: ReadonlyMap<string, ToolSchema>): boolean {
  return tag.kind === "invoke" && !tag.closing && tools.has(tag.attributes.get("name") ?? "");
}
