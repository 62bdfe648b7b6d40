// Runs real coding agents against the whole server over a scripted backend, and checks what came of it: the tool ran, the
// answer was printed, the session went on, and every request after the first reused what was evaluated.
// `node acceptance/run.ts [agent ...]`; the summary goes to acceptance/results/.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ScriptedServer, scriptedServer } from "../test/fixtures/scripted-server.ts";
import { AGAIN, PROOF_FILE } from "../test/fixtures/shell-script.ts";
import { AGENTS, type Agent, CTX_TOKENS, installedVersion, MODEL, setUp } from "./agents.ts";
import { type AgentRun, writeReport } from "./report.ts";

const TIMEOUT_MS = 180_000;
const API_KEY = "sk-acceptance";
/** Share of its prompt that every later request of a session must reuse. */
const LEAST_REUSE = 0.9;
const SCRIPT = new URL("../test/fixtures/shell-script.ts", import.meta.url);

interface Output {
  code: number | null;
  stdout: string;
  stderr: string;
}

function runProgram(program: string, args: string[], cwd: string, env: NodeJS.ProcessEnv): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    const out = { stdout: "", stderr: "" };
    child.stdout.on("data", (chunk: Buffer) => {
      out.stdout += chunk;
    });
    child.stderr.on("data", (chunk: Buffer) => {
      out.stderr += chunk;
    });
    const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
    child.once("error", reject);
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve({ code, ...out });
    });
  });
}

/** One session of two questions. */
async function runAgent(agent: Agent, version: string): Promise<AgentRun> {
  const root = mkdtempSync(join(tmpdir(), "ds4-acceptance-"));
  const home = join(root, "home");
  const folder = join(root, "project");
  mkdirSync(home);
  mkdirSync(folder);
  const app = { apiKeys: [API_KEY] };
  const engine = { ctxTokens: CTX_TOKENS };
  const server = await scriptedServer(SCRIPT, { app, engine, modelId: MODEL });
  const place = { url: server.url, apiKey: API_KEY, home };
  const run: AgentRun = { agent, version, problems: [], requests: [], counters: new Map() };
  const check = (isTrue: boolean, problem: string) => {
    if (!isTrue) run.problems.push(problem);
  };
  try {
    setUp(agent, place);
    const { PATH, LANG = "C.UTF-8" } = process.env;
    const env = { PATH, LANG, HOME: home, TMPDIR: root, ...agent.env(place) };
    const program = join(import.meta.dirname, agent.program);
    const proof = "proof 42 of project";
    const ask = async (question: string, isContinued: boolean, expected: string) => {
      const output = await runProgram(program, agent.args(place, question, isContinued), folder, env);
      const { code, stdout, stderr } = output;
      if (process.env["DS4_SHOW"]) console.log(`${stdout}\n--- stderr\n${stderr}`);
      check(code === 0, `exit code ${code}: ${stderr.slice(-400)}`);
      check(stdout.includes(expected), `expected ${JSON.stringify(expected)} in what it prints`);
    };
    await ask("Write the proof file with your shell.", false, `First: the file says "${proof}".`);
    const path = join(folder, PROOF_FILE);
    check(existsSync(path) && readFileSync(path, "utf8").trim() === proof, "the tool did not write the file");
    await ask(`Read the proof file ${AGAIN}.`, true, `Again: the file says "${proof}".`);
    await judge(run, server, check);
    if (process.env["DS4_SHOW"])
      writeFileSync(`/tmp/ds4-${agent.name}.json`, JSON.stringify(server, null, 1));
  } finally {
    await server.close();
    rmSync(root, { recursive: true, force: true });
  }
  return run;
}

async function judge(run: AgentRun, server: ScriptedServer, check: (isTrue: boolean, text: string) => void) {
  run.counters = await server.metrics();
  run.requests = server.answers.map((answer) => {
    const { path, bodyBytes, body } = answer.request;
    return { ...answer, path, bodyBytes, hasTools: (body.tools?.length ?? 0) > 0 };
  });
  const session = run.requests.filter(({ hasTools }) => hasTools);
  check(session.length === 4, `expected 4 requests of the session, got ${session.length}`);
  for (const [at, { promptTokens, reusedTokens }] of session.entries()) {
    const share = reusedTokens / promptTokens;
    check(at === 0 || share > LEAST_REUSE, `request ${at + 1} reused ${(100 * share).toFixed(1)} %`);
  }
  for (const [name, value] of run.counters) {
    const status = /^ds4_requests_total\{.*status="(\d+)"/.exec(name)?.[1];
    const isRefused = status !== undefined && Number(status) >= 400;
    check(!isRefused || name.includes('route="other"'), `${value} times ${name}`);
    check(!/malformed|outcome="(failed|cancelled)"/.test(name) || value === 0, `${value} times ${name}`);
  }
}

const names = process.argv.slice(2).filter((name) => name !== "all");
const runs: AgentRun[] = [];
for (const agent of AGENTS) {
  if (names.length > 0 && !names.includes(agent.name)) continue;
  const version = installedVersion(agent);
  if (version === undefined) {
    console.log(`${agent.name}: not installed, see acceptance/README.md`);
    process.exitCode = 1;
    continue;
  }
  const run = await runAgent(agent, version);
  runs.push(run);
  const shares = run.requests.map(({ promptTokens, reusedTokens }) => `${reusedTokens}/${promptTokens}`);
  console.log(
    `${agent.name} ${version}: ${run.problems.length === 0 ? "passed" : "FAILED"}, reused ${shares}`,
  );
  for (const problem of run.problems) console.log(`  ${problem}`);
  if (run.problems.length > 0) process.exitCode = 1;
}
if (names.length === 0) writeReport(runs);
console.log(`${runs.filter(({ problems }) => problems.length === 0).length} of ${runs.length} agents passed`);
