// Fields that several APIs share: sampling, thinking, content, tools. Unknown fields are ignored everywhere, wrong types
// refused.
import { z } from "zod";
import { SAMPLING_RANGES, type SamplingParams } from "../../session/sampling-params.ts";
import { MAX_STOP_STRINGS } from "../../session/stop-strings.ts";
import type { ContentPart, Thinking, ToolDefinition } from "../../template/conversation.ts";
import type { JsonValue } from "../../template/json-python.ts";
import { ApiError } from "../api-error.ts";
import { MAX_TOOLS } from "../limits.ts";

const rangeOf = (name: keyof typeof SAMPLING_RANGES) => {
  const { min, max, integer } = SAMPLING_RANGES[name];
  const number = integer ? z.int() : z.number();
  return number.min(min).max(max).nullish();
};

/** Sampling under OpenAI's names, with what local servers add to them. */
export const samplingFields = {
  temperature: rangeOf("temperature"),
  top_p: rangeOf("topP"),
  top_k: z.int().min(-1).nullish(),
  min_p: rangeOf("minP"),
  presence_penalty: rangeOf("presencePenalty"),
  frequency_penalty: rangeOf("frequencyPenalty"),
  repetition_penalty: rangeOf("repeatPenalty"),
  seed: z.number().refine(Number.isInteger, "expected an integer").nullish(),
  logit_bias: z.record(z.string(), z.number()).nullish(),
};

type SamplingFields = z.output<z.ZodObject<typeof samplingFields>>;

/** The parameters that were given. */
export function samplingOf(fields: Partial<SamplingFields>): Partial<SamplingParams> {
  const params: { -readonly [K in keyof SamplingParams]?: SamplingParams[K] } = {};
  const set = <K extends keyof SamplingParams>(name: K, value: SamplingParams[K] | null | undefined) => {
    if (value !== null && value !== undefined) params[name] = value;
  };
  set("temperature", fields.temperature);
  set("topP", fields.top_p);
  set("topK", fields.top_k === -1 ? 0 : fields.top_k);
  set("minP", fields.min_p);
  set("presencePenalty", fields.presence_penalty);
  set("frequencyPenalty", fields.frequency_penalty);
  set("repeatPenalty", fields.repetition_penalty);
  set("logitBias", fields.logit_bias);
  // Negative seeds are seeds too.
  if (typeof fields.seed === "number") params.seed = BigInt.asUintN(64, BigInt(fields.seed));
  return params;
}

/** A count of tokens to generate. */
export const maxTokensField = z.int().min(1).nullish();

/** One stop string or several. */
export const stopField = z.union([z.string(), z.array(z.string()).max(MAX_STOP_STRINGS)]).nullish();

/** The stop strings, empty ones left out: they would end every answer. */
export function stopsOf(stop: string | readonly string[] | null | undefined): string[] {
  return [stop ?? []].flat().filter((text) => text !== "");
}

/** Part of a message. */
export const partSchema = z.looseObject({ type: z.string(), text: z.string().nullish() });
/** Content as text or parts. */
export const contentSchema = z.union([z.string(), z.array(partSchema)]).nullish();

/** Text parts of the given types. Throws naming the first part of another type: nothing is dropped in silence. */
export function textParts(
  content: z.output<typeof contentSchema>,
  types: readonly string[],
  path: string,
): string | ContentPart[] {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part, index) => {
    if (types.includes(part.type)) return { type: "text", text: part.text ?? "" };
    const param = `${path}[${index}]`;
    throw new ApiError(
      "invalid-request",
      `${param}: content of type ${JSON.stringify(part.type)} is not supported; this model takes text only`,
      { param },
    );
  });
}

const EFFORTS: Readonly<Record<string, Thinking>> = {
  none: "off",
  minimal: "low",
  low: "low",
  medium: "on",
  high: "on",
  xhigh: "on",
  max: "max",
};

/** How hard to think, under all names that clients use. */
export const effortField = z.enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]).nullish();

/** The template's mode for an effort; `undefined` stays. */
export function effortOf(effort: string | null | undefined): Thinking | undefined {
  return effort === null || effort === undefined ? undefined : EFFORTS[effort];
}

/** Switches that clients use to turn thinking off or on. */
export const thinkingFields = {
  thinking: z
    .looseObject({
      type: z.enum(["enabled", "disabled", "adaptive", "auto"]),
      budget_tokens: z.int().min(1).nullish(),
    })
    .nullish(),
  think: z.boolean().nullish(),
  enable_thinking: z.boolean().nullish(),
  chat_template_kwargs: z
    .looseObject({ enable_thinking: z.boolean().nullish(), thinking: z.boolean().nullish() })
    .nullish(),
  reasoning_effort: effortField,
  reasoning: z
    .looseObject({ effort: effortField, enabled: z.boolean().nullish(), summary: z.string().nullish() })
    .nullish(),
};

type ThinkingFields = z.output<z.ZodObject<typeof thinkingFields>>;

/** The mode that the fields ask for: any switch that says off wins, else the effort, else `fallback`. */
export function thinkingOf(fields: Partial<ThinkingFields>, fallback: Thinking): Thinking {
  const { thinking, think, enable_thinking, chat_template_kwargs: template, reasoning } = fields;
  const switches = [
    think,
    enable_thinking,
    template?.enable_thinking,
    template?.thinking,
    reasoning?.enabled,
  ];
  if (thinking?.type === "disabled" || switches.includes(false)) return "off";
  const effort = effortOf(fields.reasoning_effort) ?? effortOf(reasoning?.effort);
  if (effort !== undefined) return effort;
  const isOn = (thinking !== null && thinking !== undefined) || switches.includes(true);
  return isOn && fallback === "off" ? "on" : fallback;
}

/** An object that is passed on by reference: a copy would lose how its numbers were written. */
export const jsonObject = z
  .unknown()
  .refine(isPlainObject, { error: ({ input }) => `expected object, got ${typeName(input)}` })
  .meta({ type: "object" });

function isPlainObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function typeName(value: unknown): string {
  return value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
}

/** A function as the model sees it. */
export const functionSchema = z.looseObject({
  name: z.string().min(1),
  description: z.string().nullish(),
  parameters: jsonObject.nullish(),
});

/** OpenAI's tools: functions wrapped in `function`; other types are servers' own and not offered. */
export const toolsField = z
  .array(z.looseObject({ type: z.string(), function: functionSchema.optional() }))
  .max(MAX_TOOLS)
  .nullish();

/** `text`, `json_object`, or `json_schema` with a schema in it. */
export const responseFormatField = z
  .looseObject({ type: z.string(), json_schema: z.looseObject({ schema: jsonObject.nullish() }).nullish() })
  .nullish();

/** Only what the model should see, in a fixed order, so that a prompt does not change with a client's extras. */
export function toolDefinition(
  name: string,
  description: string | null | undefined,
  parameters: unknown,
): ToolDefinition {
  return {
    name,
    description: description ?? undefined,
    parameters: (parameters ?? { type: "object", properties: {} }) as JsonValue,
  };
}
