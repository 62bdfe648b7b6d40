// Compares streamed parses of random answers with whole ones, and checks what must hold for every parse.
import { createAnswerParser } from "../../src/dsml/answer-parser.ts";
import { EventList } from "../../src/dsml/event-list.ts";
import type { MarkRange, ParseEvent } from "../../src/dsml/events.ts";
import { mulberry32 } from "../random-values.ts";
import {
  FUZZ_TOOLS,
  type MarkedText,
  type RandomAnswer,
  randomAnswer,
  randomCuts,
  wholeText,
} from "./dsml-answers.ts";

/** What a run found. */
export interface DsmlFuzzSummary {
  cases: number;
  /** Cases with at least one event of the kind, to see that all kinds are met. */
  withEvents: Record<ParseEvent["type"], number>;
  failures: { index: number; problem: string }[];
}

/** Runs the cases `start` to `start + count` of a seed. */
export function fuzzDsml(options: { count: number; seed: number; start?: number }): DsmlFuzzSummary {
  const { count, seed, start = 0 } = options;
  const withEvents = {} as DsmlFuzzSummary["withEvents"];
  const failures: DsmlFuzzSummary["failures"] = [];
  for (let index = start; index < start + count; index++) {
    const random = mulberry32(Math.imul(seed, 0x9e3779b1) ^ Math.imul(index, 0x85ebca6b));
    const answer = randomAnswer(random);
    const whole = wholeText(answer.pieces);
    try {
      const known = random() % 2 === 0;
      const events = parse([whole], answer, known);
      const problem =
        lawBroken(events, whole, known) ??
        difference(events, parse(randomCuts(whole, random), answer, known));
      if (problem !== undefined) failures.push({ index, problem: `${problem}\n${JSON.stringify(answer)}` });
      for (const type of new Set(events.map((event) => event.type)))
        withEvents[type] = (withEvents[type] ?? 0) + 1;
    } catch (error) {
      failures.push({ index, problem: `${(error as Error).stack}\n${JSON.stringify(answer)}` });
    }
  }
  return { cases: count, withEvents, failures };
}

/** Events of an answer that comes in `parts`, with adjacent deltas joined. */
function parse(parts: readonly MarkedText[], answer: RandomAnswer, known: boolean): ParseEvent[] {
  const parser = createAnswerParser({ thinking: answer.thinking, tools: FUZZ_TOOLS });
  const events = new EventList();
  for (const { text, marks } of parts)
    for (const event of parser.push(text, known ? marks : undefined)) events.add(event);
  for (const event of parser.finish(answer.end)) events.add(event);
  return events.take();
}

function difference(whole: ParseEvent[], streamed: ParseEvent[]): string | undefined {
  const [a, b] = [JSON.stringify(whole), JSON.stringify(streamed)];
  return a === b ? undefined : `whole    ${a}\nstreamed ${b}`;
}

/** The law that a list of events breaks, or undefined. */
function lawBroken(events: readonly ParseEvent[], sampled: MarkedText, known: boolean): string | undefined {
  const origins = originLetters(sampled.text.length, sampled.marks);
  let text = "";
  let started = 0;
  const open = new Map<number, string>();
  for (const event of events) {
    if (event.type === "reasoning" || event.type === "content") text += event.text;
    else if (event.type === "toolCallStart") {
      if (event.index !== started++ || open.size > 0) return "calls are not started one by one";
      open.set(event.index, "");
    } else if (event.type === "toolCallArguments") {
      const before = open.get(event.index);
      if (before === undefined) return "arguments of a call that is not open";
      open.set(event.index, before + event.delta);
    } else {
      const { length } = event.rawText;
      const expected = known ? origins.slice(text.length, text.length + length) : undefined;
      if ((event.marks && originLetters(length, event.marks)) !== (length === 0 ? "" : expected))
        return `wrong marks of ${event.type}`;
      text += event.rawText;
    }
    if (event.type === "toolCallEnd") {
      if (open.get(event.index) !== event.argumentsJson) return "the deltas are not the arguments";
      const parsed = JSON.parse(event.argumentsJson);
      if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
        return "arguments are no object";
      open.delete(event.index);
    }
    if (event.type === "malformedCall" && event.index !== undefined && !open.delete(event.index))
      return "a call that is not open is void";
  }
  if (open.size > 0) return "a call was left open";
  return text === sampled.text ? undefined : `text was lost: ${JSON.stringify(text)}`;
}

/** One letter for each character: `s` within a mark, `-` outside. */
function originLetters(length: number, marks: readonly MarkRange[]): string {
  let letters = "";
  for (const [start, end] of marks) letters += "-".repeat(start - letters.length) + "s".repeat(end - start);
  return letters + "-".repeat(length - letters.length);
}
