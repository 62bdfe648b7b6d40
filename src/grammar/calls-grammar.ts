// Tool calls as the template writes them: one block of calls, each with parameters in the schema's order, strings raw
// and everything else as JSON.
import { GrammarError } from "./grammar-error.ts";
import { type GrammarParts, SchemaGrammar } from "./schema-grammar.ts";
import type { Json } from "./schema-keywords.ts";
import type { Shape } from "./schema-shapes.ts";

/** How the tags of calls are spelled. */
export interface CallTags {
  /** The special token before every tag's word. */
  mark: string;
  block: string;
  invoke: string;
  parameter: string;
}

/** A tool that may be called. */
export interface CallableTool {
  name: string;
  /** JSON Schema of its arguments. */
  parameters: Json;
}

/** The calls that an answer must be. */
export interface CallsConstraint {
  tools: readonly CallableTool[];
  /** Most calls in the block. */
  maxCalls: number;
  tags: CallTags;
  /** Leaves out what is not supported of the schemas: for calls that are only one of two choices. */
  isLenient?: boolean;
}

/** Longest name in a tag, in UTF-16 units: a whole tag has at most 512. */
const MAX_NAME_UNITS = 300;

/**
 * Adds a block of calls between two states. A tool that no arguments can satisfy is left out. Throws `GrammarError`;
 * paths begin with `tools[i]`.
 */
export function addCalls(parts: GrammarParts, calls: CallsConstraint, from: number, to: number): void {
  const { builder } = parts;
  const { mark, block } = calls.tags;
  const call = builder.rule();
  const end = builder.state();
  builder.final(end);
  calls.tools.forEach((tool, index) => {
    try {
      new ToolCall(parts, tool, calls).add(call.start, end);
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      throw new GrammarError(`tools[${index}]${error.path === "" ? "" : `.${error.path}`}`, error.reason);
    }
  });
  const more = builder.ruleOf((start) => builder.call(builder.text(start, "\n"), call.rule));
  const first = builder.call(builder.text(from, `\n\n<${mark}${block}>\n`), call.rule);
  const last = builder.call(first, more, 0, calls.maxCalls - 1);
  builder.text(last, `\n</${mark}${block}>`, to);
}

class ToolCall {
  readonly #parts: GrammarParts;
  readonly #tool: CallableTool;
  readonly #tags: CallTags;
  readonly #schema: SchemaGrammar;

  constructor(parts: GrammarParts, tool: CallableTool, calls: CallsConstraint) {
    this.#parts = parts;
    this.#tool = tool;
    this.#tags = calls.tags;
    this.#schema = new SchemaGrammar(parts, tool.parameters, calls.isLenient);
  }

  add(from: number, to: number): void {
    const { builder } = this.#parts;
    const { mark, invoke } = this.#tags;
    const name = attributeOf(this.#tool.name);
    if (name === undefined)
      throw new GrammarError("name", `${JSON.stringify(this.#tool.name)} cannot be written`);
    const opened = builder.text(from, `<${mark}${invoke} name="${name}">\n`);
    const closed = builder.text(builder.state(), `\n</${mark}${invoke}>`, to);
    const closing = builder.state();
    builder.text(closing, `\n</${mark}${invoke}>`, closed);
    const shapes = this.#schema.reader.shapes([{ schema: this.#tool.parameters, path: "" }]);
    for (const shape of shapes) {
      if (shape.kinds.has("object") && shape.values === undefined) this.#parameters(shape, opened, closing);
    }
    this.#schema.finish();
  }

  // As in objects there are two states before each parameter: nothing written yet, or something to be separated.
  #parameters(shape: Shape, from: number, closing: number): void {
    const { builder } = this.#parts;
    let fresh = from;
    let after = builder.state();
    for (const [name, schemas] of shape.properties) {
      const isRequired = shape.required.has(name);
      const attribute = attributeOf(name);
      if (attribute === undefined && isRequired) {
        throw new GrammarError(
          "",
          `the required parameter ${JSON.stringify(name)} cannot be written in a tag`,
        );
      }
      const written = builder.state();
      if (attribute !== undefined) {
        const parameter = builder.jump(fresh, builder.state());
        builder.text(after, "\n", parameter);
        this.#parameter(attribute, parameter, written, {
          raw: this.#schema.rule(schemas, "raw-strings"),
          json: this.#schema.rule(schemas, "no-strings"),
        });
      }
      if (!isRequired) builder.jump(after, written);
      fresh = isRequired ? builder.state() : builder.jump(fresh, builder.state());
      after = written;
    }
    builder.jump(fresh, closing);
    builder.jump(after, closing);
  }

  #parameter(name: string, from: number, to: number, rules: { raw: number; json: number }): void {
    const { builder } = this.#parts;
    const { mark, parameter } = this.#tags;
    const named = builder.text(from, `<${mark}${parameter} name="${name}" string="`);
    const ends = [
      builder.call(builder.text(named, 'true">'), rules.raw),
      builder.call(builder.text(named, 'false">'), rules.json),
    ];
    for (const end of ends) builder.text(end, `</${mark}${parameter}>`, to);
  }
}

/** A name as it stands in a tag, or undefined if none can hold it. */
function attributeOf(name: string): string | undefined {
  if (name === "" || name.length > MAX_NAME_UNITS || /[\u0000-\u001f]/.test(name)) return undefined;
  return name
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
