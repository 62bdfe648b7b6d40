// What an agent is put through. Each check names what was not as it should be.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { AnswerRecord } from "../test/fixtures/scripted-server.ts";
import { AGAIN, PROOF_FILE } from "../test/fixtures/shell-script.ts";
import { STRANGE_TEXT } from "./hard-script.ts";
import type { Session } from "./session.ts";

/** Share of what was evaluated before that every later request of a session must reuse. */
const LEAST_REUSE = 0.9;
const SHELL_SCRIPT = new URL("../test/fixtures/shell-script.ts", import.meta.url);
const HARD_SCRIPT = new URL("./hard-script.ts", import.meta.url);

/** Takes what is wrong. */
export type Report = (isTrue: boolean, problem: string) => void;

/** A check of one agent. */
export type Check = (session: Session, report: Report) => Promise<void>;

/** A tool runs, and a second process goes on with the session. */
const works: Check = async (session, report) => {
  const server = await session.serve(SHELL_SCRIPT);
  const proof = "proof 42 of project";
  await expectAnswer(
    session,
    report,
    "Write the proof file with your shell.",
    false,
    `First: the file says "${proof}".`,
  );
  const path = join(session.folder, PROOF_FILE);
  report(existsSync(path) && readFileSync(path, "utf8").trim() === proof, "the tool did not write the file");
  await expectAnswer(
    session,
    report,
    `Read the proof file ${AGAIN}.`,
    true,
    `Again: the file says "${proof}".`,
  );
  report(sessionOf(server.answers).length === 4, `${sessionOf(server.answers).length} requests, expected 4`);
  judgeReuse(server.answers, report);
  await judgeCounters(session, report);
};

/** Several calls at once, failing and strange tools, long results, exact files, a call that the model spoils. */
const hard: Check = async (session, report) => {
  const server = await session.serve(HARD_SCRIPT);
  const ask = (name: string, expected: string) =>
    expectAnswer(session, report, `Do case-${name}`, server.answers.length > 0, expected);
  await ask("parallel with your shell.", "Both: number 2 and number 3.");
  await ask("failing with your shell.", "It failed, with its words.");
  await ask("strange with your shell.", "Strange: 完成 🎉 and **done**.");
  await ask("long with your shell.", "Long: much came.");
  const path = join(session.folder, "strange.txt");
  await ask(`write to the file ${path}`, "Written as it is.");
  const written = existsSync(path) ? readFileSync(path, "utf8") : "nothing";
  report(written === STRANGE_TEXT, `the file holds ${JSON.stringify(written)}`);
  judgeReuse(server.answers, report);
  await judgeCounters(session, report);
  await ask("malformed with your shell.", "Well formed at last.");
};

/** A new server process finds the session on disk. */
const restart: Check = async (session, report) => {
  const disk = { kvDiskFolder: join(session.root, "kv"), kvDiskMinTokens: 512 };
  await session.serve(SHELL_SCRIPT, disk);
  await session.ask("Write the proof file with your shell.", false);
  const server = await session.serve(SHELL_SCRIPT, disk);
  await expectAnswer(session, report, `Read the proof file ${AGAIN}.`, true, "Again: the file says");
  const [first] = sessionOf(server.answers);
  report(first?.reusedFrom === "disk", `the session came from ${first?.reusedFrom}, not from disk`);
  report(first?.reusedTokens > LEAST_REUSE * first?.promptTokens, `only ${first?.reusedTokens} tokens of it`);
  judgeReuse(server.answers, report);
};

/** A wrong key is said at once. */
const denied: Check = async (session, report) => {
  const server = await session.serve(SHELL_SCRIPT);
  session.apiKey = "sk-wrong";
  const { code, stdout, stderr } = await session.ask("Write the proof file.", false);
  session.apiKey = "sk-acceptance";
  const tries = server.lines.filter((line) => line.includes(" 401 ")).length;
  report(tries > 0 && tries <= 8, `it tried ${tries} times`);
  report(code !== 0 || /401|api key|auth/i.test(stdout + stderr), "a wrong key passed");
  report(
    /key|auth|logged in/i.test(stdout + stderr),
    `nothing was said of the key: ${(stdout + stderr).slice(-300)}`,
  );
};

/** A prompt that does not fit is said, and not tried without end. */
const overflow: Check = async (session, report) => {
  const server = await session.serve(SHELL_SCRIPT, { ctxTokens: 1024 });
  const { stdout, stderr } = await session.ask("Write the proof file.", false);
  // One agent makes a summary of what it has, asks once more, and ends without a word.
  const isSaid = /context|too long|maximum|tokens/i.test(stdout + stderr) || server.answers.length > 0;
  report(isSaid, `not said: ${(stdout + stderr).slice(-300)}`);
  report(server.requests.length <= 12, `it asked ${server.requests.length} times`);
};

/** An interrupted agent stops the work. */
const interrupted: Check = async (session, report) => {
  const server = await session.serve(HARD_SCRIPT);
  const isAsked = () => server.requests.some(({ body }) => body.tools?.length > 0);
  await session.ask("Do case-endless please.", false, isAsked);
  await sleep(500);
  const counters = await server.metrics();
  report(counters.get("ds4_answers_running") === 0, "an answer still runs");
  report((counters.get('ds4_answers_total{outcome="cancelled"}') ?? 0) > 0, "nothing was cancelled");
};

/** All of them by name. */
export const CHECKS: Readonly<Record<string, Check>> = {
  works,
  hard,
  restart,
  denied,
  overflow,
  interrupted,
};

/** The requests of the conversation itself, without side requests such as those for a title. */
export function sessionOf(answers: readonly AnswerRecord[]): AnswerRecord[] {
  return answers.filter(({ request }) => (request.body.tools?.length ?? 0) > 0);
}

async function expectAnswer(
  session: Session,
  report: Report,
  question: string,
  isContinued: boolean,
  expected: string,
): Promise<void> {
  const { code, stdout, stderr } = await session.ask(question, isContinued);
  report(code === 0, `${question}: exit code ${code}: ${stderr.slice(-400)}`);
  report(
    stdout.includes(expected),
    `${question}: expected ${JSON.stringify(expected)}, got ${stdout.slice(-300)}`,
  );
}

/** What was evaluated for one request must be there for the next; what a tool said is new. */
function judgeReuse(answers: readonly AnswerRecord[], report: Report): void {
  const session = sessionOf(answers);
  for (const [at, { promptTokens, reusedTokens }] of session.slice(1).entries()) {
    const known = Math.min(promptTokens, session[at].promptTokens + session[at].completionTokens);
    const what = `request ${at + 2} reused ${reusedTokens} of ${promptTokens}, ${known} were known`;
    report(reusedTokens > LEAST_REUSE * known, what);
  }
}

async function judgeCounters(session: Session, report: Report): Promise<void> {
  for (const [name, value] of await session.server.metrics()) {
    const status = /^ds4_requests_total\{.*status="(\d+)"/.exec(name)?.[1];
    const isRefused = status !== undefined && Number(status) >= 400;
    report(!isRefused || name.includes('route="other"'), `${value} times ${name}`);
    report(!/malformed|outcome="(failed|cancelled)"/.test(name) || value === 0, `${value} times ${name}`);
  }
}
