// What a request demands of the form of its answer: a JSON text or calls of tools. The same for all APIs; each says
// where its fields stand. Schemas are tried here, so that a wrong one is answered before anything is queued.
import { CALL_TAGS } from "../../dsml/tags.ts";
import { type AnswerConstraint, constraintGrammar } from "../../grammar/constraint.ts";
import { GrammarError } from "../../grammar/grammar-error.ts";
import type { ToolDefinition } from "../../template/conversation.ts";
import type { JsonValue } from "../../template/json-python.ts";
import { ApiError } from "../api-error.ts";

/** Most calls of one answer that must call tools. */
export const MAX_DEMANDED_CALLS = 16;

/** A tool of the request. */
export interface OfferedTool {
  definition: ToolDefinition;
  /** Where its schema stands, `tools[0].function.parameters`. */
  schemaPath: string;
}

/** What the request says of calls. */
export interface ToolChoice {
  mode: "auto" | "none" | "required";
  /** The only tools that may be called; undefined for all. */
  names?: readonly string[];
  /** Most calls of one answer. */
  maxCalls: number;
}

/** A JSON text as the whole answer. */
export interface JsonFormat {
  schema: unknown;
  /** Where the schema stands. */
  path: string;
  /** Whether the prompt shows the schema to the model. */
  isShown: boolean;
}

/** What of it goes into the request. */
export interface AnswerForm {
  /** Tools to show to the model. */
  tools: ToolDefinition[];
  /** Schema to show to the model. */
  responseFormat: JsonValue | undefined;
  constraint: AnswerConstraint | undefined;
}

/** The form of an answer. Throws `ApiError` naming the field, down to the keyword of a schema. */
export function answerForm(
  tools: readonly OfferedTool[],
  choice: ToolChoice,
  format: JsonFormat | undefined,
): AnswerForm {
  const { mode, names } = choice;
  const known = new Set(tools.map(({ definition }) => nameOf(definition)));
  for (const name of names ?? []) {
    if (!known.has(name))
      throw wrongChoice(`expected the name of a tool of the request, got ${JSON.stringify(name)}`);
  }
  if (mode === "required" && tools.length === 0)
    throw wrongChoice("a call is required, but there are no tools");
  const callable = tools.filter(
    ({ definition }) => names === undefined || names.includes(nameOf(definition)),
  );
  // Demands leave the prompt as it is, for the cache; where calls are free, what must not be called is not shown.
  const shown = mode === "none" ? [] : mode === "required" ? tools : callable;
  const constraint: AnswerConstraint = {};
  if (mode !== "required" && format !== undefined) constraint.json = { schema: format.schema };
  const hasCalls = mode === "required" || (constraint.json !== undefined && shown.length > 0);
  if (hasCalls) {
    constraint.calls = {
      tools: callable.map(({ definition }) => ({
        name: nameOf(definition),
        parameters: (definition as { parameters?: unknown }).parameters,
      })),
      maxCalls: choice.maxCalls,
      tags: CALL_TAGS,
      isLenient: mode !== "required",
    };
  }
  const isConstrained = hasCalls || constraint.json !== undefined;
  if (isConstrained) tryOut(constraint, callable, format);
  return {
    tools: shown.map(({ definition }) => definition),
    responseFormat:
      constraint.json !== undefined && format?.isShown ? (format.schema as JsonValue) : undefined,
    constraint: isConstrained ? constraint : undefined,
  };
}

/** The format of `response_format` and its like. Throws `ApiError` for an unknown type or a missing schema. */
export function jsonFormat(
  type: string | undefined,
  schema: unknown,
  paths: { type: string; schema: string },
): JsonFormat | undefined {
  if (type === undefined || type === "text") return undefined;
  if (type === "json_object") return { schema: { type: "object" }, path: paths.type, isShown: false };
  if (type !== "json_schema") {
    const expected = "expected text, json_object or json_schema";
    throw wrongField(`${paths.type}.type`, `${expected}, got ${JSON.stringify(type)}`);
  }
  if (typeof schema !== "object" || schema === null) throw wrongField(paths.schema, "expected a JSON schema");
  return { schema, path: paths.schema, isShown: true };
}

/** The format of `response_format`. Throws `ApiError`. */
export function responseFormat(
  field: { type: string; json_schema?: { schema?: unknown } | null } | null | undefined,
): JsonFormat | undefined {
  const paths = { type: "response_format", schema: "response_format.json_schema.schema" };
  return jsonFormat(field?.type, field?.json_schema?.schema, paths);
}

/** OpenAI's tool choice. `nameIn` finds the name in what names a function. Throws `ApiError`. */
export function openAiToolChoice(
  choice: string | { readonly type: string; readonly [key: string]: unknown } | null | undefined,
  isParallel: boolean | null | undefined,
  nameIn: (entry: { readonly [key: string]: unknown }) => unknown,
): ToolChoice {
  const maxCalls = isParallel === false ? 1 : MAX_DEMANDED_CALLS;
  if (choice === null || choice === undefined) return { mode: "auto", maxCalls };
  if (typeof choice === "string") return { mode: modeOf(choice, ["auto", "none", "required"]), maxCalls };
  const name = (entry: unknown): string => {
    const found = isRecord(entry) ? nameIn(entry) : undefined;
    if (typeof found === "string") return found;
    throw wrongChoice("expected the name of a function");
  };
  if (choice.type === "function") return { mode: "required", names: [name(choice)], maxCalls: 1 };
  if (choice.type === "allowed_tools") {
    // Chat completions wrap it once more.
    const allowed = isRecord(choice.allowed_tools) ? choice.allowed_tools : choice;
    if (!Array.isArray(allowed.tools)) throw wrongChoice("expected an array of tools");
    return { mode: modeOf(allowed.mode, ["auto", "required"]), names: allowed.tools.map(name), maxCalls };
  }
  return { mode: modeOf(choice.type, ["auto", "none", "required"]), maxCalls };
}

/** Anthropic's tool choice. Throws `ApiError`. */
export function anthropicToolChoice(
  choice:
    | { type: string; name?: string | null; disable_parallel_tool_use?: boolean | null }
    | null
    | undefined,
): ToolChoice {
  const maxCalls = choice?.disable_parallel_tool_use === true ? 1 : MAX_DEMANDED_CALLS;
  const type = choice?.type ?? "auto";
  if (type === "auto" || type === "none") return { mode: type, maxCalls };
  if (type === "any") return { mode: "required", maxCalls };
  if (!choice?.name) throw wrongChoice("expected the name of a tool");
  return { mode: "required", names: [choice.name], maxCalls: 1 };
}

function modeOf<Mode extends string>(value: unknown, modes: readonly Mode[]): Mode {
  const found = modes.find((mode) => mode === value);
  if (found !== undefined) return found;
  throw wrongChoice(`expected ${modes.join(", ")} or a function, got ${JSON.stringify(value)}`);
}

/** Builds the grammar once: what is wrong with it is the client's error. */
function tryOut(
  constraint: AnswerConstraint,
  callable: readonly OfferedTool[],
  format: JsonFormat | undefined,
): void {
  try {
    constraintGrammar(constraint);
  } catch (error) {
    if (!(error instanceof GrammarError)) throw error;
    const inTool = /^tools\[(\d+)\]\.?(.*)$/s.exec(error.path);
    const base = inTool ? callable[Number(inTool[1])].schemaPath : (format?.path ?? callable[0].schemaPath);
    const path = inTool ? inTool[2] : error.path;
    throw wrongField(path === "" || path.startsWith("[") ? base + path : `${base}.${path}`, error.reason);
  }
}

function nameOf(definition: ToolDefinition): string {
  return String((definition as { name?: unknown }).name);
}

function isRecord(value: unknown): value is { readonly [key: string]: unknown } {
  return typeof value === "object" && value !== null;
}

function wrongChoice(reason: string): ApiError {
  return wrongField("tool_choice", reason);
}

function wrongField(param: string, reason: string): ApiError {
  return new ApiError("invalid-request", `${param}: ${reason}`, { param });
}
