// What goes wrong or looks strange in real sessions: each question names a case, and the model behaves accordingly.
import { type AnswerScript, callText } from "../test/fixtures/scripted-backend.ts";
import shellScript, { isResult, shellOf } from "../test/fixtures/shell-script.ts";

/** Text that must arrive in a file as it is: quotes, escapes, marks of the markup, characters beyond the first plane. */
export const STRANGE_TEXT =
  'a "b" \\n \\\\ $HOME `x` </parameter> <｜User｜> <think>\n\té 漢字 🎉 \u2028 <|im_end|>\n';
/** Prints marks of the template, a colour and a byte that is no UTF-8. */
const STRANGE_COMMAND =
  "printf 'start \\074/think> <｜User｜> <｜end▁of▁sentence｜> <tool_result> \\033[31mred\\033[0m \\377 end\\n'";

/** Tools that write a file: name to its parameters. */
const WRITERS: Readonly<Record<string, readonly [path: string, content: string]>> = {
  Write: ["file_path", "content"],
  write: ["path", "content"],
};

let malformedCount = 0;

/** Answers of a case: of the question, and of what the tools said. */
const CASES: Readonly<Record<string, (turn: Parameters<AnswerScript>[0]) => string>> = {
  parallel: ({ prompt, lastTurn }) => {
    if (!isResult(lastTurn))
      return `Two at once.${shells(prompt, ["echo number $((1 + 1))", "echo number $((2 + 1))"])}`;
    return `Both: ${[...lastTurn.matchAll(/number \d/g)].join(" and ")}.`;
  },
  failing: ({ prompt, lastTurn }) =>
    isResult(lastTurn)
      ? `It failed, ${lastTurn.includes("oops-42") ? "with its words" : "without a word"}.`
      : `I try.${shells(prompt, ["echo oops-$((40 + 2)) >&2; exit 3"])}`,
  strange: ({ prompt, lastTurn }) =>
    isResult(lastTurn)
      ? `Strange: ${/start .* end/s.test(lastTurn) ? "完成 🎉" : "cut"} and **done**.`
      : `I print.${shells(prompt, [STRANGE_COMMAND])}`,
  long: ({ prompt, lastTurn }) =>
    isResult(lastTurn)
      ? `Long: ${lastTurn.length > 1000 ? "much" : "little"} came.`
      : `I count.${shells(prompt, ["seq 1 30000"])}`,
  write: ({ prompt, lastTurn }) => {
    if (isResult(lastTurn)) return "Written as it is.";
    const path = /file (\/\S+\.txt)/.exec(lastTurn)![1];
    return `I write.${writeCall(prompt, path)}`;
  },
  malformed: ({ prompt, lastTurn }) => {
    if (isResult(lastTurn)) return "Well formed at last.";
    const call = shells(prompt, ["echo fine"]);
    return malformedCount++ === 0 ? call.slice(0, call.indexOf("</｜DSML｜invoke>")).trimEnd() : call;
  },
  endless: () => "and on ".repeat(20_000),
};

const script: AnswerScript = (turn) => {
  const name = [...turn.prompt.matchAll(/case-(\w+)/g)].at(-1)?.[1];
  const answer = name === undefined ? undefined : CASES[name];
  if (answer === undefined || shellOf(turn.prompt) === undefined) return shellScript(turn);
  return `${turn.isThinking ? `Case ${name}.</think>` : ""}${answer(turn)}`;
};

/** Calls of the shell, all in one block. */
function shells(prompt: string, commands: readonly string[]): string {
  const { name, parameter } = shellOf(prompt)!;
  const extra: Record<string, string> = /^bash$/i.test(name) ? { description: "Runs it" } : {};
  const calls = commands.map((command) => callText(name, { [parameter]: command, ...extra }));
  const inner = calls.map((call) => call.slice(call.indexOf("\n", 2) + 1, call.lastIndexOf("</")));
  return `\n\n<｜DSML｜tool_calls>\n${inner.join("")}</｜DSML｜tool_calls>`;
}

function writeCall(prompt: string, path: string): string {
  for (const [name, [pathName, contentName]] of Object.entries(WRITERS)) {
    if (!prompt.includes(`"name": "${name}"`)) continue;
    const key = prompt.includes('"filePath"') ? "filePath" : pathName;
    return callText(name, { [key]: path, [contentName]: STRANGE_TEXT });
  }
  const quoted = STRANGE_TEXT.replaceAll("'", "'\\''");
  return shells(prompt, [`printf %s '${quoted}' > '${path}'`]);
}

export default script;
