// One answer: the conversation and the settings as a request, the stream as changes of an assistant's message.
import { request, streamedEvents } from "./api.js";

/**
 * @typedef {import("./store.js").AssistantMessage} AssistantMessage
 * @typedef {import("./store.js").Message} Message
 */

/** @type {Record<string, string>} settings that are numbers, by the request's field */
const NUMBERS = { temperature: "temperature", top_p: "topP", max_tokens: "maxTokens", seed: "seed" };

/**
 * The body of the request. Throws an `Error` for tools that are no JSON array.
 * @param {readonly Message[]} messages
 * @param {Record<string, string>} settings
 * @param {string} cacheKey
 */
export function chatBody(messages, settings, cacheKey) {
  /** @type {Record<string, unknown>} */
  const body = { messages: wireMessages(messages, settings.system ?? ""), stream: true };
  body.stream_options = { include_usage: true };
  body.prompt_cache_key = cacheKey;
  for (const [field, name] of Object.entries(NUMBERS)) {
    const value = Number.parseFloat(settings[name] ?? "");
    if (Number.isFinite(value)) body[field] = value;
  }
  if (settings.effort) body.reasoning_effort = settings.effort;
  const tools = toolsOf(settings.tools ?? "");
  if (tools.length > 0) body.tools = tools;
  return body;
}

/**
 * The definitions in a text, OpenAI's `tools`. Throws an `Error` that says what is wrong.
 * @param {string} text
 * @returns {unknown[]}
 */
export function toolsOf(text) {
  if (text.trim() === "") return [];
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`The tools in the settings are not valid JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (!Array.isArray(tools)) throw new Error("The tools in the settings must be a JSON array.");
  return tools;
}

/**
 * @param {readonly Message[]} messages
 * @param {string} system
 */
function wireMessages(messages, system) {
  /** @type {object[]} */
  const out = system.trim() === "" ? [] : [{ role: "system", content: system }];
  for (const message of messages) {
    if (message.role === "user") {
      out.push({ role: "user", content: message.content });
      continue;
    }
    const { content, reasoning, calls } = message;
    const toolCalls = calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
    out.push({
      role: "assistant",
      content,
      ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
      ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    });
    for (const call of calls) out.push({ role: "tool", tool_call_id: call.id, content: call.result ?? "" });
  }
  return out;
}

/**
 * Streams the answer into `message`, calling `changed` after each step. Throws `ServerError`, or an `AbortError`.
 * @param {object} body
 * @param {AssistantMessage} message
 * @param {AbortSignal} signal
 * @param {() => void} changed
 */
export async function streamAnswer(body, message, signal, changed) {
  const response = await request("/v1/chat/completions", { body, signal });
  let thinkingSince = 0;
  for await (const event of streamedEvents(response, signal)) {
    const choice = event.choices?.[0];
    const delta = choice?.delta ?? {};
    if (delta.reasoning_content) {
      thinkingSince ||= performance.now();
      message.reasoning += delta.reasoning_content;
    }
    if (
      thinkingSince > 0 &&
      message.thinkMs === undefined &&
      (delta.content || delta.tool_calls || choice?.finish_reason)
    ) {
      message.thinkMs = performance.now() - thinkingSince;
    }
    if (delta.content) message.content += delta.content;
    for (const part of delta.tool_calls ?? []) addCall(message, part);
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    if (event.usage) message.usage = usageOf(event);
    changed();
  }
}

/**
 * @param {AssistantMessage} message
 * @param {{ index: number, id?: string, function?: { name?: string, arguments?: string } }} part
 */
function addCall({ calls }, { index, id, function: called }) {
  calls[index] ??= { id: id ?? `call_${index}`, name: "", arguments: "" };
  calls[index].name += called?.name ?? "";
  calls[index].arguments += called?.arguments ?? "";
}

/**
 * @param {any} event
 * @returns {import("./store.js").Usage}
 */
function usageOf({ usage, timings }) {
  return {
    promptTokens: usage.prompt_tokens ?? 0,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    completionTokens: usage.completion_tokens ?? 0,
    reasoningTokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
    prefillRate: timings?.prompt_per_second ?? 0,
    decodeRate: timings?.predicted_per_second ?? 0,
  };
}
