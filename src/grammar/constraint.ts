// What an answer must be, as plain data that crosses threads, and the grammar of it.
import { addCalls, type CallsConstraint } from "./calls-grammar.ts";
import { type Grammar, GrammarBuilder } from "./grammar.ts";
import { GrammarError } from "./grammar-error.ts";
import { grammarParts, SchemaGrammar } from "./schema-grammar.ts";
import type { Json } from "./schema-keywords.ts";

/** What an answer must be: a JSON text, tool calls, or (with both) one of them. */
export interface AnswerConstraint {
  /** Schema of the answer as JSON; `{ type: "object" }` for any object. */
  json?: { schema: Json };
  calls?: CallsConstraint;
}

/** Largest constraint as JSON text, in UTF-16 units. */
export const MAX_CONSTRAINT_UNITS = 1 << 20;

/** A constraint's text: equal ones have equal grammars. */
export function constraintKey(constraint: AnswerConstraint): string {
  return JSON.stringify(constraint);
}

/**
 * The grammar of `constraint`. Throws `GrammarError` with the path of what is wrong, also when no answer meets it. A
 * path within the answer's schema begins in it, one within a tool begins with `tools[i]`.
 */
export function constraintGrammar(constraint: AnswerConstraint): Grammar {
  const size = constraintKey(constraint).length;
  if (size > MAX_CONSTRAINT_UNITS) {
    throw new GrammarError("", `the schema has ${size} characters; at most ${MAX_CONSTRAINT_UNITS} are read`);
  }
  const { json, calls } = constraint;
  const builder = new GrammarBuilder(calls === undefined ? [] : [calls.tags.mark]);
  const { start } = builder.rule();
  const end = builder.state();
  builder.final(end);
  const parts = grammarParts(builder);
  if (json !== undefined) {
    const schema = new SchemaGrammar(parts, json.schema);
    builder.call(start, schema.rule([{ schema: json.schema, path: "" }], "json"), 1, 1, end);
    schema.finish();
  }
  if (calls !== undefined) addCalls(parts, calls, start, end);
  const grammar = builder.finish();
  if (grammar === undefined) throw new GrammarError("", "no value meets the schema");
  return grammar;
}
