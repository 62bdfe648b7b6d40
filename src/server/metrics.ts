// Counters and histograms in Prometheus' text format. Only what happened here; gauges come from their owners at the time
// of reading.
import { CancelledError } from "../core/errors.ts";
import type { AnswerUsage } from "./answer-events.ts";
import type { Gauge } from "./answer-source.ts";

const TTFT_BUCKETS_S = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const TOKEN_BUCKETS_S = [0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5];

/** Follows one answer. */
export interface AnswerMeter {
  /** A token was sampled. */
  token(): void;
  finish(usage: AnswerUsage): void;
  fail(error: unknown): void;
  /** The answer is over, however. */
  end(): void;
}

/** What is only known at the time of reading. */
export interface MetricGauges {
  running: number;
  queued: number;
  isReady: boolean;
  /** The source's own. */
  source: readonly Gauge[];
}

/** The server's counters. */
export class ServerMetrics {
  readonly #ttft = new Histogram(TTFT_BUCKETS_S);
  readonly #interToken = new Histogram(TOKEN_BUCKETS_S);
  readonly #requests = new Map<string, number>();
  readonly #malformed = new Map<string, number>();
  readonly #answers = { finished: 0, failed: 0, cancelled: 0 };
  #promptTokens = 0;
  #reusedTokens = 0;
  #completionTokens = 0;
  #reasoningTokens = 0;

  /** Counts a request by its route and status. */
  request(route: string, status: number): void {
    const labels = `route="${route}",status="${status}"`;
    this.#requests.set(labels, (this.#requests.get(labels) ?? 0) + 1);
  }

  /** Counts call markup that was no call. */
  malformedCall(reason: string): void {
    this.#malformed.set(reason, (this.#malformed.get(reason) ?? 0) + 1);
  }

  /** Starts the clock of an answer, its time in the queue included. */
  startAnswer(): AnswerMeter {
    const started = performance.now();
    let lastToken: number | undefined;
    let outcome: "finished" | "failed" | "cancelled" = "cancelled";
    return {
      token: () => {
        const now = performance.now();
        if (lastToken === undefined) this.#ttft.add((now - started) / 1000);
        else this.#interToken.add((now - lastToken) / 1000);
        lastToken = now;
      },
      finish: (usage) => {
        outcome = "finished";
        this.#promptTokens += usage.promptTokens;
        this.#reusedTokens += usage.reusedTokens;
        this.#completionTokens += usage.completionTokens;
        this.#reasoningTokens += usage.reasoningTokens;
      },
      fail: (error) => {
        if (!(error instanceof CancelledError)) outcome = "failed";
      },
      end: () => {
        this.#answers[outcome]++;
      },
    };
  }

  /** The text of `/metrics`. */
  render(gauges: MetricGauges): string {
    const out: string[] = [];
    const family = (name: string, type: string, help: string, samples: readonly [string, number][]) => {
      out.push(`# HELP ds4_${name} ${help}`, `# TYPE ds4_${name} ${type}`);
      for (const [labels, value] of samples)
        out.push(`ds4_${name}${labels === "" ? "" : `{${labels}}`} ${value}`);
    };
    const counter = (name: string, help: string, value: number) =>
      family(name, "counter", help, [["", value]]);
    const gauge = (name: string, help: string, value: number) => family(name, "gauge", help, [["", value]]);
    family("requests_total", "counter", "HTTP requests by route and status", [...this.#requests]);
    const outcomes = Object.entries(this.#answers).map(([k, v]): [string, number] => [`outcome="${k}"`, v]);
    family("answers_total", "counter", "Answers by how they ended", outcomes);
    counter("prompt_tokens_total", "Prompt tokens of finished answers", this.#promptTokens);
    counter("prompt_tokens_reused_total", "Prompt tokens that were not evaluated again", this.#reusedTokens);
    counter("completion_tokens_total", "Sampled tokens of finished answers", this.#completionTokens);
    counter("reasoning_tokens_total", "Sampled tokens that were reasoning", this.#reasoningTokens);
    const malformed = [...this.#malformed].map(([k, v]): [string, number] => [`reason="${k}"`, v]);
    family("malformed_calls_total", "counter", "Tool call markup that was no call", malformed);
    gauge("answers_running", "Answers being computed", gauges.running);
    gauge("answers_queued", "Answers waiting for a place", gauges.queued);
    gauge("ready", "1 when requests are served", gauges.isReady ? 1 : 0);
    out.push(
      ...this.#ttft.render("ds4_time_to_first_token_seconds", "Request to first token, queue included"),
    );
    out.push(...this.#interToken.render("ds4_inter_token_seconds", "Time between two tokens of an answer"));
    const names = new Set(gauges.source.map(({ name }) => name));
    for (const name of names) {
      const samples = gauges.source.filter((sample) => sample.name === name);
      const values = samples.map(({ labels, value }): [string, number] => [labels, value]);
      family(name, "gauge", samples[0].help, values);
    }
    return `${out.join("\n")}\n`;
  }
}

class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  add(value: number): void {
    this.#sum += value;
    this.#count++;
    const bucket = this.#bounds.findIndex((bound) => value <= bound);
    if (bucket >= 0) this.#counts[bucket]++;
  }

  render(name: string, help: string): string[] {
    const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`];
    let total = 0;
    this.#bounds.forEach((bound, index) => {
      total += this.#counts[index];
      lines.push(`${name}_bucket{le="${bound}"} ${total}`);
    });
    lines.push(
      `${name}_bucket{le="+Inf"} ${this.#count}`,
      `${name}_sum ${this.#sum}`,
      `${name}_count ${this.#count}`,
    );
    return lines;
  }
}
