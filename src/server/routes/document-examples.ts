// One request and its answer for each documented route. A test sends every request and compares the answer's shape, so
// the reference cannot say what the server does not.

/** What a route is asked and answers. */
export interface RouteExample {
  /** The body of a POST. */
  request?: object;
  /** A JSON document, or text. */
  response: object | string;
}

const QUESTION = "What is the capital of France?";
const MESSAGES = [{ role: "user", content: QUESTION }];
const CREATED_S = 1_796_083_200;
const CREATED = "2026-12-01T00:00:00.000Z";
const MODEL = "model";

const OPENAI_USAGE = {
  prompt_tokens: 12,
  completion_tokens: 5,
  total_tokens: 17,
  prompt_tokens_details: { cached_tokens: 3 },
  completion_tokens_details: { reasoning_tokens: 3 },
};
const TIMINGS = {
  ...{ cache_n: 3, prompt_n: 9, prompt_ms: 50, prompt_per_second: 180 },
  ...{ predicted_n: 5, predicted_ms: 400, predicted_per_second: 12.5 },
};
const MODEL_OBJECT = {
  ...{ id: MODEL, object: "model", type: "model", created: CREATED_S, created_at: CREATED },
  ...{ display_name: MODEL, owned_by: "ds4-ts", context_length: 32768, max_model_len: 32768 },
  ...{ max_input_tokens: 32767, max_tokens: 32767, input_modalities: ["text"], output_modalities: ["text"] },
  supported_parameters: ["tools", "reasoning", "temperature", "top_p", "seed", "stop", "logprobs"],
};

const CHAT: RouteExample = {
  request: { model: MODEL, messages: MESSAGES, max_tokens: 500, temperature: 0.7 },
  response: {
    ...{ id: "chatcmpl-1", object: "chat.completion", created: CREATED_S, model: MODEL },
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: "Paris.", refusal: null, reasoning_content: "Easy." },
        logprobs: null,
        finish_reason: "stop",
      },
    ],
    usage: OPENAI_USAGE,
    timings: TIMINGS,
  },
};

const COMPLETION: RouteExample = {
  request: { model: MODEL, prompt: "The capital of France is", max_tokens: 16 },
  response: {
    ...{ id: "cmpl-1", object: "text_completion", created: CREATED_S, model: MODEL },
    choices: [{ index: 0, text: " Paris.", logprobs: null, finish_reason: "stop" }],
    usage: OPENAI_USAGE,
    timings: TIMINGS,
  },
};

const RESPONSE: RouteExample = {
  request: { model: MODEL, input: QUESTION },
  response: {
    ...{ id: "resp_1", object: "response", created_at: CREATED_S, status: "completed", error: null },
    ...{ incomplete_details: null, instructions: null, max_output_tokens: null, metadata: {}, model: MODEL },
    output: [
      {
        ...{ id: "rs_1", type: "reasoning", summary: [] },
        content: [{ type: "reasoning_text", text: "Easy." }],
        status: "completed",
      },
      {
        ...{ id: "msg_1", type: "message", status: "completed", role: "assistant" },
        content: [{ type: "output_text", text: "Paris.", annotations: [], logprobs: [] }],
      },
    ],
    ...{ parallel_tool_calls: true, previous_response_id: null, reasoning: { effort: null, summary: null } },
    ...{ store: true, temperature: 1, text: { format: { type: "text" } }, tool_choice: "auto", tools: [] },
    ...{ top_p: 1, truncation: "disabled" },
    usage: {
      ...{ input_tokens: 12, input_tokens_details: { cached_tokens: 3 } },
      ...{ output_tokens: 5, output_tokens_details: { reasoning_tokens: 3 }, total_tokens: 17 },
    },
  },
};

const ANTHROPIC: RouteExample = {
  request: {
    ...{ model: MODEL, max_tokens: 2000, messages: MESSAGES },
    thinking: { type: "enabled", budget_tokens: 1024 },
  },
  response: {
    ...{ id: "msg_1", type: "message", role: "assistant", model: MODEL, stop_sequence: null },
    content: [
      { type: "thinking", thinking: "Easy.", signature: "ds4.sha256.…" },
      { type: "text", text: "Paris." },
    ],
    stop_reason: "end_turn",
    usage: {
      ...{ input_tokens: 9, cache_creation_input_tokens: 0, cache_read_input_tokens: 3, output_tokens: 5 },
    },
  },
};

const OLLAMA: RouteExample = {
  request: { model: MODEL, messages: MESSAGES, stream: false },
  response: {
    ...{ model: MODEL, created_at: CREATED },
    message: { role: "assistant", content: "Paris.", thinking: "Easy." },
    ...{ done: true, done_reason: "stop", total_duration: 450_000_000, load_duration: 0 },
    ...{ prompt_eval_count: 12, prompt_eval_duration: 50_000_000, eval_count: 5, eval_duration: 400_000_000 },
  },
};

const OLLAMA_DETAILS = {
  ...{ parent_model: "", format: "gguf", family: "deepseek4", families: ["deepseek4"] },
  ...{ parameter_size: "", quantization_level: "" },
};
const OLLAMA_ENTRY = {
  ...{ name: MODEL, model: MODEL, size: 97_600_000_000, digest: "", details: OLLAMA_DETAILS },
};

const TAGS: RouteExample = { response: { models: [{ ...OLLAMA_ENTRY, modified_at: CREATED }] } };

const RUNNING: RouteExample = {
  response: {
    models: [{ ...OLLAMA_ENTRY, expires_at: "2318-01-01T00:00:00Z", size_vram: 0, context_length: 32768 }],
  },
};

const SHOW: RouteExample = {
  request: { model: MODEL },
  response: {
    ...{ modelfile: "", parameters: "", template: "", details: OLLAMA_DETAILS },
    model_info: {
      ...{ "general.architecture": "deepseek4", "general.basename": MODEL },
      "deepseek4.context_length": 32768,
    },
    ...{ capabilities: ["completion", "tools", "thinking"], modified_at: CREATED },
  },
};

/** By path. */
export const EXAMPLES: Readonly<Record<string, RouteExample>> = {
  "/v1/chat/completions": CHAT,
  "/v1/completions": COMPLETION,
  "/v1/responses": RESPONSE,
  "/v1/models": {
    response: { object: "list", data: [MODEL_OBJECT], has_more: false, first_id: MODEL, last_id: MODEL },
  },
  "/v1/models/{id}": { response: MODEL_OBJECT },
  "/v1/messages": ANTHROPIC,
  "/v1/messages/count_tokens": {
    request: { model: MODEL, messages: MESSAGES },
    response: { input_tokens: 12 },
  },
  "/api/chat": OLLAMA,
  "/api/tags": TAGS,
  "/api/ps": RUNNING,
  "/api/show": SHOW,
  "/api/version": { response: { version: "0.1.0" } },
  "/tokenize": {
    request: { content: "Hello world" },
    response: { tokens: [19923, 2058], count: 2, max_model_len: 32768 },
  },
  "/detokenize": { request: { tokens: [50, 51] }, response: { content: "PQ", prompt: "PQ" } },
  "/health": { response: { status: "ok" } },
  "/metrics": {
    response: "# HELP ds4_ready 1 when requests are served\n# TYPE ds4_ready gauge\nds4_ready 1\n",
  },
};

/** The JSON schema that an example is an instance of: every field with its type, lists by their first entry. */
export function schemaOf(value: unknown): Record<string, unknown> {
  if (value === null) return { type: "null" };
  if (Array.isArray(value)) return { type: "array", items: value.length > 0 ? schemaOf(value[0]) : {} };
  if (typeof value !== "object") return { type: typeof value };
  const fields = Object.entries(value).map(([name, field]): [string, unknown] => [
    name,
    field === null ? {} : schemaOf(field),
  ]);
  return { type: "object", properties: Object.fromEntries(fields) };
}
