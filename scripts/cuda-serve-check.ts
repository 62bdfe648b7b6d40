// Starts `ds4-server --cuda` with a model and lets the official clients talk to it, by the same checks that the CPU backend
// passes in the tests: npm run cuda:serve-check [-- -m FILE --backend cpu --kv-type f16x2].
// Needs what `ds4-server` needs, and the packages openai and @anthropic-ai/sdk.
import { join } from "node:path";
import { parseArgs } from "node:util";
import { sdkChecks } from "../test/contract/served-sdk.ts";
import { startServer } from "../test/fixtures/server-process.ts";

const { values } = parseArgs({
  options: {
    model: {
      type: "string",
      short: "m",
      default: join(import.meta.dirname, "..", "models", "nano-q2-q4.gguf"),
    },
    backend: { type: "string", default: "cuda" },
    "kv-type": { type: "string", default: "f16" },
  },
});

const API_KEY = "sk-check";
const MODEL = "checked";

async function main(): Promise<void> {
  const args = ["-m", values.model, "--backend", values.backend, "--kv-type", values["kv-type"]];
  const server = await startServer([
    ...args,
    ...["--api-key", API_KEY, "--alias", MODEL, "--ctx", "4096", "--slots", "4"],
  ]);
  let failures = 0;
  try {
    for (const { name, run } of sdkChecks({ url: server.url, apiKey: API_KEY, model: MODEL })) {
      const started = performance.now();
      const failure = await run().then(
        () => undefined,
        (error: unknown) => (error instanceof Error ? error.message : String(error)),
      );
      if (failure !== undefined) failures++;
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      console.log(
        `${failure === undefined ? "ok  " : "FAIL"} ${name}, ${seconds} s${failure ? `: ${failure}` : ""}`,
      );
    }
  } finally {
    server.child.kill("SIGTERM");
    const code = await server.exited;
    if (code !== 0) {
      console.log(`FAIL the server ended with ${code}`);
      failures++;
    }
  }
  console.log(failures === 0 ? "all checks hold" : `${failures} checks failed`);
  if (failures > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
