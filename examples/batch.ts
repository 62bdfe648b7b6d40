// Asks many questions at once; all slots decode in one batch, and each question has a time limit of its own.
import { Ds4Error, Engine } from "ds4-ts";

const cities = ["France", "Italy", "Spain", "Japan", "Norway", "Egypt"];
const timeoutMs = Number(process.argv[2] ?? 60_000);

await using engine = await Engine.open({ model: process.env.MODEL, ctxTokens: 1024, slots: 4 });
const answers = await Promise.all(
  cities.map(async (city) => {
    try {
      const { choices } = await engine.chat.completions.create(
        {
          messages: [{ role: "user", content: `What is the capital of ${city}?` }],
          reasoning_effort: "none",
          temperature: 0,
        },
        { signal: AbortSignal.timeout(timeoutMs) },
      );
      return choices[0].message.content;
    } catch (error) {
      if (error instanceof Ds4Error && error.code === "cancelled") return "out of time";
      throw error;
    }
  }),
);
for (const [at, answer] of answers.entries()) console.log(`${cities[at]}: ${answer}`);
