// Runs real coding agents against the whole server over a scripted backend, and checks what came of it.
// `node acceptance/run.ts [agent ...] [--check name ...]`; a run of everything writes acceptance/results/.
import { parseArgs } from "node:util";
import { AGENTS, type Agent, installedVersion } from "./agents.ts";
import { CHECKS } from "./checks.ts";
import { type AgentRun, writeReport } from "./report.ts";
import { Session } from "./session.ts";

async function runAgent(agent: Agent, version: string, checks: readonly string[]): Promise<AgentRun> {
  const run: AgentRun = { agent, version, results: [] };
  for (const name of checks) {
    const session = new Session(agent);
    const problems: string[] = [];
    const started = performance.now();
    try {
      await CHECKS[name](session, (isTrue, problem) => void (isTrue || problems.push(problem)));
      const { answers, requests } = session.server;
      const counters = await session.server.metrics();
      run.results.push({ name, problems, answers, requestCount: requests.length, counters });
    } finally {
      await session.close();
    }
    console.log(
      `${agent.name} ${version} ${name}: ${problems.length === 0 ? "passed" : "FAILED"}, ${seconds(started)} s`,
    );
    for (const problem of problems) console.log(`  ${problem}`);
  }
  return run;
}

function seconds(started: number): string {
  return ((performance.now() - started) / 1000).toFixed(0);
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { check: { type: "string", multiple: true } },
});
const names = positionals.filter((name) => name !== "all");
const checks = values.check ?? Object.keys(CHECKS);
const runs: AgentRun[] = [];
for (const agent of AGENTS) {
  if (names.length > 0 && !names.includes(agent.name)) continue;
  const version = installedVersion(agent);
  if (version === undefined) {
    console.log(`${agent.name}: not installed, see acceptance/README.md`);
    process.exitCode = 1;
  } else runs.push(await runAgent(agent, version, checks));
}
const results = runs.flatMap((run) => run.results);
const failed = results.filter(({ problems }) => problems.length > 0);
if (failed.length > 0) process.exitCode = 1;
if (names.length === 0 && values.check === undefined) writeReport(runs);
console.log(`${results.length - failed.length} of ${results.length} checks passed`);
