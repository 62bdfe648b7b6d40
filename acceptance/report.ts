// The summary of a run: what each agent sent, what was reused, what the server counted. Holds no paths of this machine.
import { mkdirSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import type { AnswerRecord } from "../test/fixtures/scripted-server.ts";
import type { Agent } from "./agents.ts";

/** One agent's session. */
export interface AgentRun {
  agent: Agent;
  version: string;
  /** Empty if everything is as it should be. */
  problems: string[];
  requests: (AnswerRecord & { path: string; bodyBytes: number; hasTools: boolean })[];
  /** The server's metrics at the end. */
  counters: Map<string, number>;
}

/** Writes `results/<date>.md`. */
export function writeReport(runs: readonly AgentRun[]): void {
  const folder = join(import.meta.dirname, "results");
  const date = new Date().toISOString().slice(0, 10);
  mkdirSync(folder, { recursive: true });
  const text = [
    `# Coding agents, ${date}`,
    "",
    "Written by `node acceptance/run.ts`. Each agent was run twice in an empty folder with an empty home: once with a question,",
    `and once going on with the session. ${isCutOff() ? "There was no network but the loopback. " : ""}The server was the whole of`,
    "`ds4-server` over a scripted model with the nano model's tokenizer (4,087 tokens, so the same text is more tokens than with",
    "V4's). The model thought, called the agent's shell, and answered with what the shell had said.",
    "",
    "| agent | version | API | result | cached of later prompts |",
    "| --- | --- | --- | --- | --- |",
    ...runs.map((run) => `| ${run.agent.name} | ${run.version} | ${run.agent.api} | ${resultOf(run)} |`),
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

function resultOf(run: AgentRun): string {
  const later = run.requests.filter(({ hasTools }) => hasTools).slice(1);
  const sum = (name: "promptTokens" | "reusedTokens") =>
    later.reduce((total, request) => total + request[name], 0);
  const share = ((100 * sum("reusedTokens")) / sum("promptTokens")).toFixed(1);
  return `${run.problems.length === 0 ? "passed" : "failed"} | ${share} %`;
}

function sectionOf({ agent, version, requests, problems, counters }: AgentRun): string[] {
  const kept = /^ds4_(requests_total|answers_total|prompt_tokens|completion_tokens|reuse_requests)/;
  return [
    "",
    `## ${agent.name} ${version}`,
    "",
    ...problems.map((problem) => `- ${problem}`),
    "| request | body, bytes | tools | prompt, tokens | cached | from | answer, tokens |",
    "| --- | --- | --- | --- | --- | --- | --- |",
    ...requests.map((request) => {
      const { path, bodyBytes, hasTools, promptTokens, reusedTokens, reusedFrom, completionTokens } = request;
      const cached = `${reusedTokens} (${((100 * reusedTokens) / promptTokens).toFixed(1)} %)`;
      const cells = [
        path,
        bodyBytes,
        hasTools ? "yes" : "no",
        promptTokens,
        cached,
        reusedFrom,
        completionTokens,
      ];
      return `| ${cells.join(" | ")} |`;
    }),
    "",
    "```",
    ...[...counters].filter(([name, value]) => kept.test(name) && value > 0).map((pair) => pair.join(" ")),
    "```",
  ];
}
