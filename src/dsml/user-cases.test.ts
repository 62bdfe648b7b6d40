// Cases of people whose tool calls were lost, leaked or mistyped, by the numbers of the collection they are from.
import { describe, expect, it } from "vitest";
import { BASH, bashBlock, parseAnswer, parseParts } from "../../test/fixtures/parsed-answer.ts";

const LS = [{ name: "bash", args: '{"command":"ls"}' }];

describe("tool calls that people lost", () => {
  it("case 51: the call after the end of thinking, and no markup anywhere else", () => {
    const answer = parseAnswer(`ok</think>${bashBlock("ls")}`, { thinking: true });
    expect(answer).toMatchObject({ reasoning: "ok", content: "", calls: LS, malformed: [] });
  });

  it("case 52: a block that ends unclosed thinking runs, a quoted one does not", () => {
    const forgotten = parseAnswer(`I will list files.\n\n${bashBlock("ls")}`, { thinking: true });
    expect(forgotten).toMatchObject({ reasoning: "I will list files.", content: "", calls: LS });
    expect(forgotten.calls[0].notes).toEqual(["recovered from unclosed thinking"]);
    const quoted = parseAnswer(`a call looks like ${bashBlock("ls")} but I will not</think>No.`, {
      thinking: true,
    });
    expect(quoted).toMatchObject({ content: "No.", calls: [], malformed: [] });
    expect(quoted.reasoning).toBe(`a call looks like ${bashBlock("ls")} but I will not`);
  });

  it.each(["length", "cancelled"] as const)("case 52: nothing is recovered after %s", (end) => {
    const answer = parseAnswer(`So:\n\n${bashBlock("ls")}`, { thinking: true, end });
    expect(answer).toMatchObject({ reasoning: `So:\n\n${bashBlock("ls")}`, calls: [], malformed: [] });
  });

  it("case 53: foreign closing tags make a malformed call with its raw text", () => {
    const block =
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">ls</tool_call></function>';
    const answer = parseAnswer(`</think>${block}`, { thinking: true });
    expect(answer.calls).toEqual([]);
    expect(answer.malformed).toEqual([{ reason: "unclosed", index: 0, raw: block }]);
  });

  it("case 54: what is not JSON stays as a string", () => {
    const { calls } = parseAnswer(call("free", ["n", "false", "12 apples"]), { tools: [{ name: "free" }] });
    expect(calls[0].args).toBe('{"n":"12 apples"}');
    expect(calls[0].notes).toEqual(["parameter n: not JSON: kept as a string"]);
  });

  it("case 55: an attribute that only ends in name is not the name", () => {
    const bare = '<｜DSML｜invoke xname="bash">';
    expect(parseAnswer(bare)).toMatchObject({ content: bare, calls: [] });
    const block = `<｜DSML｜tool_calls>\n${bare}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>`;
    expect(parseAnswer(block)).toMatchObject({ content: "", calls: [], malformed: [{ reason: "no-name" }] });
  });

  it("case 56: JSON types are kept", () => {
    const answer = parseAnswer(
      call("s", ["max_results", "false", "10"], ["exclude_domains", "false", "[]"], ["query", "true", "10"]),
      { tools: [{ name: "s" }] },
    );
    expect(answer.calls[0].args).toBe('{"max_results":10,"exclude_domains":[],"query":"10"}');
  });

  it.each(["make 2>&1", 'echo "</parameter>"', "cat <<E > a\n</x>\nE", "a</｜DSML｜param", "x\n"])(
    "case 57: the value is exact for %j",
    (command) => {
      expect(JSON.parse(parseAnswer(bashBlock(command)).calls[0].args)).toEqual({ command });
    },
  );

  it("case 58: a split start marker is held back, text like it is not lost", () => {
    const parts = [
      "<",
      "｜",
      "DS",
      "ML｜tool",
      "_calls>",
      bashBlock("ls").slice("<｜DSML｜tool_calls>".length),
    ];
    expect(parseParts(parts)).toMatchObject({ content: "", calls: LS });
    expect(parseAnswer("a <｜D b")).toMatchObject({ content: "a <｜D b", calls: [] });
  });

  it("case 59: a stray closing tag behind a block does not reach the content", () => {
    const answer = parseAnswer(`</think>${bashBlock("ls")}</｜DSML｜invoke>`, { thinking: true });
    expect(answer).toMatchObject({ content: "", calls: LS, markup: expect.stringMatching(/invoke>$/) });
  });

  it("case 60: the block alone is enough, whatever made the model call", () => {
    expect(parseAnswer(bashBlock("ls"), { tools: [BASH], marks: "known" })).toMatchObject({ calls: LS });
  });

  it("case 61: nothing after thinking is no content; a call after thinking is a call", () => {
    const silent = parseAnswer("think…</think>\n\n", { thinking: true });
    expect(silent).toMatchObject({ reasoning: "think…", content: "", markup: "</think>\n\n" });
    const calling = parseAnswer(`think…</think>\n\n${bashBlock("ls")}`, { thinking: true });
    expect(calling).toMatchObject({ reasoning: "think…", content: "", calls: LS });
  });

  it("case 62: no cut makes a finished call of partial arguments", () => {
    const block = bashBlock("ls");
    const callEnd = block.indexOf("</｜DSML｜invoke>") + "</｜DSML｜invoke>".length;
    for (let length = 0; length < block.length; length++) {
      const answer = parseAnswer(block.slice(0, length), { end: "length" });
      expect(answer.calls.length).toBe(length < callEnd ? 0 : 1);
      expect(answer.content).not.toContain("DSML｜");
      if (length >= "<｜DSML｜".length && length < callEnd)
        expect(answer.malformed).toMatchObject([{ reason: "truncated", raw: block.slice(0, length) }]);
    }
  });

  it("case 63: doubled bars and curly quotes, for known tools only", () => {
    const text =
      "<｜｜DSML｜｜invoke name=“get_pages”>\n<｜｜DSML｜｜parameter name=“pages” string=“true”>3-5</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>";
    const known = parseAnswer(text, { tools: [{ name: "get_pages" }] });
    expect(known).toMatchObject({ content: "", calls: [{ name: "get_pages", args: '{"pages":"3-5"}' }] });
    expect(parseAnswer(text)).toMatchObject({ content: text, calls: [], malformed: [] });
  });

  it("case 64: empty values and calls without parameters survive", () => {
    expect(parseAnswer(bashBlock("")).calls).toMatchObject([{ args: '{"command":""}' }]);
    const none = parseAnswer(call("free"), { tools: [{ name: "free" }] });
    expect(none.calls).toMatchObject([{ args: "{}", notes: [] }]);
  });

  it("case 65: a call of an unknown tool is reported, never started", () => {
    const answer = parseAnswer(call("rm_all", ["path", "true", "/"]));
    expect(answer.calls).toEqual([]);
    expect(answer.events.map((event) => event.type)).toEqual(["malformedCall", "markup"]);
    expect(answer.malformed).toMatchObject([{ reason: "unknown-tool", index: undefined }]);
  });

  it("case 68: each of several calls ends as it closes", () => {
    const text = call("bash", ["command", "true", "a"]).replace("\n</｜DSML｜tool_calls>", "");
    const one = text.slice(text.indexOf("\n<｜DSML｜invoke"));
    const { events, calls } = parseAnswer(`${text}${one}${one}\n</｜DSML｜tool_calls>`);
    const edges = events.filter(({ type }) => type === "toolCallStart" || type === "toolCallEnd");
    expect(edges.map((event) => [event.type, "index" in event && event.index])).toEqual(
      [0, 1, 2].flatMap((index) => [
        ["toolCallStart", index],
        ["toolCallEnd", index],
      ]),
    );
    expect(calls.map(({ raw }) => raw).join("")).toBe(text + one + one);
  });

  it("case 70: thinking cut off stays thinking, once", () => {
    const answer = parseAnswer("secret plan", { thinking: true, end: "length" });
    expect(answer).toMatchObject({ reasoning: "secret plan", content: "", markup: "" });
  });

  it("case 71: an answer without the closing tag is thinking, once", () => {
    expect(parseAnswer("Good morning!", { thinking: true })).toMatchObject({
      reasoning: "Good morning!",
      content: "",
    });
  });

  it("case 80: arguments are streamed while the value is being sampled", () => {
    const parts = bashBlock("x".repeat(5000)).split("");
    const { events } = parseParts(parts);
    expect(events.length).toBeGreaterThan(3);
    const early = parseParts(parts.slice(0, 2000), { end: "cancelled" }).events;
    expect(early).toContainEqual({
      type: "toolCallArguments",
      index: 0,
      delta: expect.stringMatching(/x{1800}/),
    });
  });
});

function call(name: string, ...parameters: [key: string, isString: string, value: string][]): string {
  const lines = parameters.map(
    ([key, isString, value]) =>
      `<｜DSML｜parameter name="${key}" string="${isString}">${value}</｜DSML｜parameter>`,
  );
  return `<｜DSML｜tool_calls>\n<｜DSML｜invoke name="${name}">\n${lines.join("\n")}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>`;
}
