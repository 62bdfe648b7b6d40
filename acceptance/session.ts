// One agent in an empty folder with an empty home, and the server that it talks to.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SchedulerOptions } from "../src/scheduler/scheduler-engine.ts";
import { type ScriptedServer, scriptedServer } from "../test/fixtures/scripted-server.ts";
import { type Agent, CTX_TOKENS, MODEL, setUp } from "./agents.ts";

const TIMEOUT_MS = 180_000;
const INTERRUPT_CHECK_MS = 300;
const API_KEY = "sk-acceptance";

/** What a program said. */
export interface Output {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** See the file's head. */
export class Session {
  readonly agent: Agent;
  readonly root = mkdtempSync(join(tmpdir(), "ds4-acceptance-"));
  /** Where the agent works. */
  readonly folder = join(this.root, "project");
  server!: ScriptedServer;
  apiKey = API_KEY;
  readonly #home = join(this.root, "home");

  constructor(agent: Agent) {
    this.agent = agent;
    mkdirSync(this.#home);
    mkdirSync(this.folder);
  }

  /** Starts the server; one that runs already is ended first. */
  async serve(script: URL, engine: Partial<SchedulerOptions> = {}): Promise<ScriptedServer> {
    await this.server?.close();
    this.server = await scriptedServer(script, {
      app: { apiKeys: [API_KEY] },
      engine: { ctxTokens: CTX_TOKENS, ...engine },
      modelId: MODEL,
    });
    return this.server;
  }

  /** Runs the agent with one question; `isTime` says when it gets what Ctrl-C sends. */
  ask(question: string, isContinued: boolean, isTime: () => boolean = () => false): Promise<Output> {
    const { agent } = this;
    const place = { url: this.server.url, apiKey: this.apiKey, home: this.#home };
    setUp(agent, place);
    const { PATH, LANG = "C.UTF-8" } = process.env;
    const env = { PATH, LANG, HOME: this.#home, TMPDIR: this.root, ...agent.env(place) };
    const program = join(import.meta.dirname, agent.program);
    const args = agent.args(place, question, isContinued);
    return new Promise((resolve, reject) => {
      const child = spawn(program, args, { cwd: this.folder, env, stdio: ["ignore", "pipe", "pipe"] });
      const out = { stdout: "", stderr: "" };
      child.stdout.on("data", (chunk: Buffer) => {
        out.stdout += chunk;
      });
      child.stderr.on("data", (chunk: Buffer) => {
        out.stderr += chunk;
      });
      const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
      const interrupt = setInterval(() => isTime() && child.kill("SIGINT"), INTERRUPT_CHECK_MS);
      child.once("error", reject);
      child.once("close", (code) => {
        clearTimeout(timer);
        clearInterval(interrupt);
        if (process.env["DS4_SHOW"]) console.log(`${out.stdout}\n--- stderr\n${out.stderr}`);
        resolve({ code, ...out });
      });
    });
  }

  async close(): Promise<void> {
    await this.server?.close();
    rmSync(this.root, { recursive: true, force: true });
  }
}
