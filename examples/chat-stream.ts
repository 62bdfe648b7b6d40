// Streams one answer to standard output; thinking goes to standard error.
import { Engine } from "ds4-ts";

await using engine = await Engine.open({ model: process.env.MODEL, ctxTokens: 4096 });
const stream = await engine.chat.completions.create({
  messages: [{ role: "user", content: process.argv[2] ?? "What is the capital of France?" }],
  reasoning_effort: "none",
  temperature: 0,
  stream: true,
});
for await (const { choices } of stream) {
  const delta = choices[0]?.delta;
  process.stderr.write(delta?.reasoning_content ?? "");
  process.stdout.write(delta?.content ?? "");
}
process.stdout.write("\n");
