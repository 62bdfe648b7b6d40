// Random answers of a model, valid and damaged, and random ways to cut them.
import type { MarkRange } from "../../src/dsml/events.ts";
import type { ToolDefinition } from "../../src/template/conversation.ts";

const MARK = "｜DSML｜";

/** Tools that the random answers call, with one parameter of each kind. */
export const FUZZ_TOOLS: ToolDefinition[] = [
  {
    name: "bash",
    parameters: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
  },
  {
    type: "function",
    function: {
      name: "search",
      parameters: {
        type: "object",
        properties: {
          query: { type: "string" },
          count: { type: "integer" },
          deep: { type: ["boolean", "null"] },
        },
      },
    },
  },
  { name: "free" },
];

/** A sampled piece: its text and whether it is one special token. */
export interface Piece {
  text: string;
  special: boolean;
}

/** One random answer: its pieces, and whether thinking is open at its start. */
export interface RandomAnswer {
  pieces: Piece[];
  thinking: boolean;
  end: "stop" | "length" | "cancelled";
}

const SNIPPETS = [
  "<",
  "</",
  "<｜",
  "<｜D",
  MARK,
  "<think>",
  "</think>",
  "`",
  "``",
  "```",
  "\n```\n",
  "~~~\n",
  "\n",
  "\n\n",
  " ",
  "  \t",
  "a",
  "hello ",
  "😀",
  "\ud83d",
  "é",
  '"',
  "\\",
  "\u0000",
  "&lt;",
  ">",
  "2>&1",
  "</parameter>",
  `</${MARK}parameter>`,
  `</${MARK}invoke>`,
  `</${MARK}tool_calls>`,
  `<${MARK}tool_calls>`,
  `<${MARK}invoke name="bash">`,
  "<tool_calls>\n",
  '<invoke name="bash">',
  "</invoke>",
  "</tool_calls>",
  "<p>",
  "<thin",
  "</thi",
  "12",
  "12 apples",
  "[1, 2]",
  "null",
  "True",
  '"5"',
  "{",
  "}",
  "\n                    \n",
  '<invoke name="bash',
  "<｜｜DSML｜｜invoke name=“free”>",
  "<|DSML|tool_calls>",
  `<${MARK}parameter name="command" string="true">`,
];

/** A random answer; `random` gives unsigned 32-bit integers. */
export function randomAnswer(random: () => number): RandomAnswer {
  const pick = <Item>(items: readonly Item[]): Item => items[random() % items.length];
  const chance = (percent: number) => random() % 100 < percent;
  const noise = (most: number) =>
    Array.from({ length: random() % (most + 1) }, () => pick(SNIPPETS)).join("");
  const marks = chance(75) ? [MARK] : ["", "DSML｜", "｜｜DSML｜｜", "|DSML|", MARK];
  const quote = chance(85)
    ? ['"', '"']
    : pick([
        ["'", "'"],
        ["“", "”"],
      ]);
  const mark = () => pick(marks);
  const parameter = () => {
    const own = mark();
    const name = pick(["command", "query", "count", "deep", "x", "y&amp;z"]);
    const flag = chance(90) ? ` string=${quote[0]}${pick(["true", "false"])}${quote[1]}` : "";
    return `<${own}parameter name=${quote[0]}${name}${quote[1]}${flag}>${noise(3)}</${own}parameter>\n`;
  };
  const call = () => {
    const name = pick(["bash", "bash", "search", "free", "rm_all"]);
    const parameters = Array.from({ length: random() % 3 }, parameter).join("");
    return `<${mark()}invoke name=${quote[0]}${name}${quote[1]}>\n${parameters}</${mark()}invoke>\n`;
  };
  const block = () => {
    const own = mark();
    const calls = Array.from({ length: 1 + (random() % 2) }, call).join("");
    return chance(90) ? `<${own}tool_calls>\n${calls}</${own}tool_calls>` : calls;
  };
  const thinking = chance(50);
  let text = thinking ? noise(3) + (chance(25) ? block() : "") + (chance(70) ? "</think>" : "") : "";
  for (let parts = random() % 3; parts >= 0; parts--) {
    text += chance(40) ? noise(5) : "\n\n";
    if (chance(70)) text += chance(20) ? `\n\`\`\`\n${block()}\n${chance(70) ? "```\n" : ""}` : block();
  }
  if (chance(50)) text = damage(text, random);
  return { pieces: splitSpecial(text, random), thinking, end: pick(["stop", "stop", "length", "cancelled"]) };
}

/** Deletes, doubles or cuts off a stretch, or puts something in. */
function damage(text: string, random: () => number): string {
  const at = random() % (text.length + 1);
  const end = Math.min(text.length, at + 1 + (random() % 20));
  switch (random() % 4) {
    case 0:
      return text.slice(0, at) + text.slice(end);
    case 1:
      return text.slice(0, end) + text.slice(at);
    case 2:
      return text.slice(0, at);
    default:
      return text.slice(0, at) + SNIPPETS[random() % SNIPPETS.length] + text.slice(at);
  }
}

/** Marks and think tags become special tokens nine times out of ten; otherwise ordinary tokens spell them. */
function splitSpecial(text: string, random: () => number): Piece[] {
  return text
    .split(/(｜DSML｜|<\/?think>)/)
    .filter((part) => part !== "")
    .map((part) => ({ text: part, special: /^(｜DSML｜|<\/?think>)$/.test(part) && random() % 10 > 0 }));
}

/** A text and where its special tokens are. */
export interface MarkedText {
  text: string;
  marks: MarkRange[];
}

/** The whole answer in one text. */
export function wholeText(pieces: readonly Piece[]): MarkedText {
  let text = "";
  const marks: MarkRange[] = [];
  for (const piece of pieces) {
    if (piece.special) marks.push([text.length, text.length + piece.text.length]);
    text += piece.text;
  }
  return { text, marks };
}

/** Cuts a text at random places, most often into single characters; special tokens may be cut too. */
export function randomCuts({ text, marks }: MarkedText, random: () => number): MarkedText[] {
  const longest = [1, 4, 12, 100][random() % 4];
  const chance = (percent: number) => random() % 100 < percent;
  const parts: MarkedText[] = [];
  let next = 0;
  for (let at = 0; at < text.length; ) {
    const end = Math.min(text.length, at + (chance(3) ? 0 : 1 + (random() % longest)));
    const inside: MarkRange[] = [];
    for (let i = next; i < marks.length && marks[i][0] < end; i++)
      inside.push([Math.max(marks[i][0], at) - at, Math.min(marks[i][1], end) - at]);
    while (next < marks.length && marks[next][1] <= end) next++;
    parts.push({ text: text.slice(at, end), marks: inside });
    at = end;
  }
  return parts;
}
