// Lets the model call a function until it answers in words.
import { type ChatMessageParam, type ChatToolParam, Engine } from "ds4-ts";

const weather: Record<string, string> = { Paris: "sunny", London: "rainy" };
const tools: ChatToolParam[] = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Get the weather in a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

await using engine = await Engine.open({ model: process.env.MODEL, ctxTokens: 4096 });
const messages: ChatMessageParam[] = [{ role: "user", content: "What is the weather in Paris?" }];
for (let round = 0; round < 5; round++) {
  const { choices, usage } = await engine.chat.completions.create({
    messages,
    tools,
    reasoning_effort: "none",
    temperature: 0,
  });
  const { message } = choices[0];
  messages.push(message);
  console.log(
    `round ${round}: ${usage.prompt_tokens_details.cached_tokens} of ${usage.prompt_tokens} cached`,
  );
  if (message.tool_calls === undefined) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    const { city } = JSON.parse(call.function.arguments);
    console.log(`${call.function.name}: ${city}`);
    const content = JSON.stringify({ weather: weather[city] ?? "unknown" });
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
