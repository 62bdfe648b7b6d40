import { PassThrough } from "node:stream";
import { describe, expect, it } from "vitest";
import { LineSource } from "./line-source.ts";

const CTRL_C = "\x03";
const CTRL_D = "\x04";
const soon = () => new Promise((resolve) => setTimeout(resolve, 20));

function terminal() {
  const input = new PassThrough();
  const output = Object.assign(new PassThrough(), { isTTY: true, columns: 80 });
  let shown = "";
  output.on("data", (data) => {
    shown += data;
  });
  return { input, lines: new LineSource(input, output), shown: () => shown };
}

describe("lines of a pipe", () => {
  it("come in order, also those that arrive during an answer, then the end", async () => {
    const input = new PassThrough();
    const lines = new LineSource(input, undefined);
    input.write("one\ntwo\n");
    expect(await lines.next(() => {})).toBe("one");
    await lines.during(async (signal) => {
      input.end("three");
      await soon();
      expect(signal.aborted).toBe(false);
    });
    expect(await lines.next(() => {})).toBe("two");
    expect(await lines.next(() => {})).toBe("three");
    expect(await lines.next(() => {})).toBeUndefined();
  });

  it("end at the first interrupt outside an answer", async () => {
    const lines = new LineSource(new PassThrough(), undefined);
    const next = lines.next(() => {});
    lines.interrupt();
    expect(await next).toBeUndefined();
  });
});

describe("lines of a terminal", () => {
  it("are prompted for", async () => {
    const { input, lines, shown } = terminal();
    const next = lines.next(() => {});
    input.write("hello\r");
    expect(await next).toBe("hello");
    expect(shown()).toContain("> ");
    lines.close();
  });

  it("let Ctrl+C stop the answer and keep the chat", async () => {
    const { input, lines } = terminal();
    await lines.during(async (signal) => {
      input.write(CTRL_C);
      await soon();
      expect(signal.aborted).toBe(true);
    });
    const next = lines.next(() => {});
    input.write("on\r");
    expect(await next).toBe("on");
    lines.close();
  });

  it("end with the second Ctrl+C in a row at the prompt, with a hint at the first", async () => {
    const { input, lines } = terminal();
    let hints = 0;
    const first = lines.next(() => hints++);
    input.write(CTRL_C);
    await soon();
    input.write("still here\r");
    expect(await first).toBe("still here");
    const second = lines.next(() => hints++);
    input.write(CTRL_C);
    await soon();
    input.write(CTRL_C);
    expect(await second).toBeUndefined();
    expect(hints).toBe(2);
    lines.close();
  });

  it("end with Ctrl+D", async () => {
    const { input, lines } = terminal();
    const next = lines.next(() => {});
    input.write(CTRL_D);
    expect(await next).toBeUndefined();
  });
});
