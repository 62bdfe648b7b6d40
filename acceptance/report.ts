// The summary of a run: what each agent sent, what was reused, what the server counted. Holds no paths of this machine.
import { mkdirSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import type { AnswerRecord } from "../test/fixtures/scripted-server.ts";
import type { Agent } from "./agents.ts";
import { sessionOf } from "./checks.ts";

/** What one check found. */
export interface CheckResult {
  name: string;
  /** Empty if everything is as it should be. */
  problems: string[];
  answers: AnswerRecord[];
  requestCount: number;
  /** The server's metrics at the end. */
  counters: Map<string, number>;
}

/** One agent's checks. */
export interface AgentRun {
  agent: Agent;
  version: string;
  results: CheckResult[];
}

/** Writes `results/<date>.md`. */
export function writeReport(runs: readonly AgentRun[]): void {
  const folder = join(import.meta.dirname, "results");
  const date = new Date().toISOString().slice(0, 10);
  mkdirSync(folder, { recursive: true });
  const checks = runs[0].results.map(({ name }) => name);
  const text = [
    `# Coding agents, ${date}`,
    "",
    "Written by `node acceptance/run.ts`. Each check runs the agent in an empty folder with an empty home and without a person,",
    `one process per question. ${isCutOff() ? "There was no network but the loopback. " : ""}The server was the whole of \`ds4-server\` over a`,
    "scripted model with the nano model's tokenizer (4,087 tokens, so the same text is more tokens than with V4's). What the",
    "checks are is in [README.md](../README.md).",
    "",
    `| agent | version | API | ${checks.join(" | ")} | works: cached of later prompts |`,
    `| --- | --- | --- | ${checks.map(() => "---").join(" | ")} | --- |`,
    ...runs.map(rowOf),
    ...runs.flatMap(sectionOf),
  ].join("\n");
  writeFileSync(join(folder, `${date}.md`), `${text}\n`);
}

/** Whether this machine has no network interface but the loopback. */
function isCutOff(): boolean {
  return Object.values(networkInterfaces()).every((addresses) =>
    addresses?.every(({ internal }) => internal),
  );
}

function rowOf({ agent, version, results }: AgentRun): string {
  const outcomes = results.map(({ problems }) => (problems.length === 0 ? "passed" : "failed"));
  // Of the plain session: what tools print at length in the others is new by its nature.
  const later = results
    .filter(({ name }) => name === "works")
    .flatMap(({ answers }) => sessionOf(answers).slice(1));
  const sum = (name: "promptTokens" | "reusedTokens") =>
    later.reduce((total, answer) => total + answer[name], 0);
  const share = `${((100 * sum("reusedTokens")) / sum("promptTokens")).toFixed(1)} %`;
  return `| ${[agent.name, version, agent.api, ...outcomes, share].join(" | ")} |`;
}

function sectionOf({ agent, version, results }: AgentRun): string[] {
  return ["", `## ${agent.name} ${version}`, ...results.flatMap(checkSection)];
}

function checkSection({ name, problems, answers, counters }: CheckResult): string[] {
  const kept = /^ds4_(requests_total|answers_total|prompt_tokens|completion_tokens|malformed|reuse_requests)/;
  const rows = answers.map((answer) => {
    const { request, promptTokens, reusedTokens, reusedFrom, completionTokens, finishReason } = answer;
    const isSide = !sessionOf([answer]).includes(answer);
    const cached = `${reusedTokens} (${((100 * reusedTokens) / promptTokens).toFixed(1)} %)`;
    const cells = [request.path, request.bodyBytes, promptTokens, cached, reusedFrom, completionTokens];
    return `| ${[...cells, isSide ? `${finishReason}, aside` : finishReason].join(" | ")} |`;
  });
  return [
    "",
    `### ${name}: ${problems.length === 0 ? "passed" : "failed"}`,
    "",
    ...problems.map(
      (problem) => `- ${problem.replace(/\/\S*\/ds4-acceptance-\w+/g, "…").replaceAll("\n", " ")}`,
    ),
    "| request | body, bytes | prompt, tokens | cached | from | answer, tokens | end |",
    "| --- | --- | --- | --- | --- | --- | --- |",
    ...rows,
    "",
    "```",
    ...[...counters]
      .filter(([metric, value]) => kept.test(metric) && value > 0)
      .map((pair) => pair.join(" ")),
    "```",
  ];
}
