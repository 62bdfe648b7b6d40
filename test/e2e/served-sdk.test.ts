// The official clients against `ds4-server` on the CPU; scripts/cuda-serve-check.ts runs the same checks on a GPU.
import { afterAll, beforeAll, describe, it } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { sdkChecks } from "../contract/served-sdk.ts";
import { killServers, startServer } from "../fixtures/server-process.ts";

const served = { url: "", apiKey: "sk-check", model: "checked" };

describe.skipIf(loadNative().addon === null)("official clients, a real model", () => {
  beforeAll(async () => {
    const flags = [
      "--cpu",
      "--api-key",
      served.apiKey,
      "--alias",
      served.model,
      "--ctx",
      "4096",
      "--slots",
      "4",
    ];
    served.url = (await startServer(flags)).url;
  }, 120_000);
  afterAll(killServers);

  for (const [index, { name }] of sdkChecks({ ...served, url: "http://localhost" }).entries()) {
    it(name, { timeout: 120_000 }, () => sdkChecks(served)[index].run());
  }
});
