// The package used one level below the API: the second example of the README, run.
import { expect, it } from "vitest";
import {
  encodePieces,
  openGguf,
  renderConversation,
  SessionEngine,
  tokenizerFromGguf,
} from "../../src/index.ts";
import { nanoModelPath } from "../fixtures/nano-model.ts";

it("answers a conversation through the public surface", async () => {
  const modelPath = nanoModelPath();
  const file = openGguf(modelPath);
  const tokenizer = tokenizerFromGguf(file);
  file.close();
  const messages = [{ role: "user" as const, content: "What is the capital of France?" }];
  const promptTokens = encodePieces(tokenizer, renderConversation({ messages, thinking: "off" }));
  await using engine = await SessionEngine.open({ modelPath, backend: "reference", ctxTokens: 512 });
  let text = "";
  const request = { promptTokens, stopTokenIds: tokenizer.stopIds, sampling: { temperature: 0 } };
  for await (const event of engine.generate(request)) if (event.kind !== "prompt") text += event.text;
  expect(text).toBe("The capital of France is Paris.");
});
