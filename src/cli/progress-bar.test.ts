import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { describeProgress, ProgressBar } from "./progress-bar.ts";
import type { Terminal } from "./terminal.ts";

let written: string[] = [];

function terminal(isTTY: boolean, quiet = false): Terminal {
  const stream = { isTTY, columns: 60, write: (text: string) => written.push(text) };
  return { out: stream as never, err: stream as never, quiet };
}

beforeEach(() => {
  written = [];
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const report = (done: number) => ({ label: "prefill", done, total: 1000, unit: "tokens" as const });

describe("progress bar", () => {
  it("redraws one line on a terminal, at most ten times a second, and erases itself at the end", () => {
    const bar = new ProgressBar(terminal(true));
    vi.advanceTimersByTime(5000);
    for (let done = 0; done <= 1000; done += 10) {
      bar.update(report(done));
      vi.advanceTimersByTime(10);
    }
    expect(written.length).toBeLessThan(15);
    expect(written[0]).toMatch(/^\rprefill \[\.+\] 0%/);
    expect(written.at(-1)).toMatch(/^\r +\r$/);
    expect(written.every((text) => text.length < 70)).toBe(true);
  });

  it("writes nothing for short work off a terminal, and plain lines for long work", () => {
    const bar = new ProgressBar(terminal(false));
    vi.advanceTimersByTime(60_000);
    bar.update(report(100));
    vi.advanceTimersByTime(1900);
    bar.update(report(200));
    expect(written).toEqual([]);
    for (let done = 300; done < 1000; done += 10) {
      vi.advanceTimersByTime(500);
      bar.update(report(done));
    }
    bar.update(report(1000));
    expect(written.length).toBe(4); // after 2 s, then every 10 s
    expect(written.join("")).not.toContain("\x1b");
    expect(written.join("")).not.toContain("\r");
  });

  it("stays silent when quiet", () => {
    const bar = new ProgressBar(terminal(true, true));
    vi.advanceTimersByTime(5000);
    bar.update(report(1));
    expect(written).toEqual([]);
  });
});

it("describes share, amounts, rate and time left", () => {
  expect(describeProgress(report(500), 10, true)).toBe(
    "prefill [############............] 50%  500 of 1000 tokens  50.0 tokens/s  10.0 s left",
  );
  const bytes = {
    label: "load",
    done: 1024 ** 3,
    total: 4 * 1024 ** 3,
    unit: "bytes" as const,
    detail: "blk.3",
  };
  expect(describeProgress(bytes, 0, false)).toBe("load 25%  1.00 GiB of 4.00 GiB  blk.3");
});

it("leaves what an earlier run did out of the rate, and fits 80 columns with large amounts", () => {
  const progress = { label: "download", done: 60 * 2 ** 30, total: 90 * 2 ** 30, unit: "bytes" as const };
  const line = describeProgress({ ...progress, doneBefore: 50 * 2 ** 30 }, 1000, true, 79);
  expect(line).toContain("10.24 MiB/s  50 min 00 s left");
  expect(line.length).toBeLessThan(80);
});
