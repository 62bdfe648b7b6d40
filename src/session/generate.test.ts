import { describe, expect, it } from "vitest";
import {
  ByteDecoder,
  FakeBackend,
  hashed,
  type LogitsFunction,
  scripted,
} from "../../test/fixtures/fake-backend.ts";
import {
  type FinishEvent,
  type GenerateEvent,
  type GenerateRequest,
  generate,
  type TokenEvent,
} from "./generate.ts";
import { topLogprobs } from "./logprobs.ts";
import { type CancelSignal, Session } from "./session.ts";

const VOCAB = 300;
const END = 299;
const THINK = 256;
const THINK_CLOSE = 257;
const PROMPT = Int32Array.of(65, 66, 67, 68);
const bytes = (text: string) => Array.from(new TextEncoder().encode(text));
const script = (...tokens: number[]) => scripted(VOCAB, PROMPT.length, tokens, END);

function setup(logits: LogitsFunction, request: Partial<GenerateRequest> = {}, ctxTokens = 200) {
  const backend = new FakeBackend(VOCAB, logits);
  const session = new Session(backend, ctxTokens);
  const full: GenerateRequest = {
    promptTokens: PROMPT,
    sampling: { temperature: 0 },
    stopTokenIds: [END],
    ...request,
  };
  const events = (signal?: CancelSignal) => generate({ session, decoder: new ByteDecoder(), signal }, full);
  return { backend, session, events };
}

function collect(events: Iterable<GenerateEvent>) {
  const all = [...events];
  const finish = all.at(-1) as FinishEvent;
  const textOf = (channel: string) =>
    all.map((event) => (event.kind !== "prompt" && event.channel === channel ? event.text : "")).join("");
  const tokens = all.filter((event): event is TokenEvent => event.kind === "token");
  return { all, finish, tokens, content: textOf("content"), thinking: textOf("thinking") };
}

const tags = { openId: THINK, closeId: THINK_CLOSE, startsOpen: true };

describe("an answer", () => {
  it("streams text and ends at a stop token, which is not output", () => {
    const { events, session } = setup(script(...bytes("Hello")));
    const { finish, content, tokens, all } = collect(events());
    expect(content).toBe("Hello");
    expect(tokens.map((event) => event.text)).toEqual(["H", "e", "l", "l", "o"]);
    expect(all[0]).toMatchObject({ kind: "prompt", promptTokens: 4, reusedTokens: 0 });
    expect(finish).toMatchObject({
      finishReason: "stop",
      stopTokenId: END,
      completionTokens: 5,
      promptTokens: 4,
    });
    expect(session.lengthTokens).toBe(9);
  });

  it("holds incomplete characters back and flushes them at the end (case 115)", () => {
    const { events } = setup(script(...bytes("😀你")));
    const { tokens, content } = collect(events());
    expect(content).toBe("😀你");
    expect(tokens.map((event) => event.text)).toEqual(["", "", "", "😀", "", "", "你"]);
    const cut = collect(setup(script(0xf0, 0x9f)).events());
    expect(cut.content).toBe("\ufffd");
    expect(cut.finish.text).toBe("\ufffd");
  });

  it("ends with length at exactly maxTokens, and at the end of the context by default (case 75)", () => {
    const endless = script(...new Array(500).fill(120));
    expect(collect(setup(endless, { maxTokens: 7 }).events())).toMatchObject({
      content: "x".repeat(7),
      finish: { finishReason: "length", completionTokens: 7 },
    });
    const { events, session } = setup(endless, {}, 64);
    expect(collect(events()).finish).toMatchObject({ finishReason: "length", completionTokens: 60 });
    expect(session.lengthTokens).toBe(63);
    expect(collect(setup(endless, { maxTokens: 0 }).events()).finish.completionTokens).toBe(0);
  });

  it("refuses a prompt that leaves no room for one token", () => {
    const { events, backend } = setup(script(), {}, 4);
    expect(() => collect(events())).toThrow(/context holds 4 tokens.*no room is left/);
    expect(backend.calls).toEqual([]);
  });

  it("reuses the sampled tokens in the next turn, however they were cut (case 99)", () => {
    const { events, session, backend } = setup(script(...bytes("hel"), ...bytes("lo")));
    collect(events());
    const next = Int32Array.from([...PROMPT, ...bytes("hello"), END, 70]);
    const second = generate(
      { session, decoder: new ByteDecoder() },
      { promptTokens: next, stopTokenIds: [END], maxTokens: 0 },
    );
    expect(collect(second).finish.reusedTokens).toBe(9);
    expect(backend.calls.at(-1)).toBe(2);
  });
});

describe("stop strings", () => {
  it("cut exactly, name the string and stop the model (case 105)", () => {
    const { events, backend } = setup(script(...bytes("A B C STOP D")), { stopStrings: ["STOP"] });
    const { content, finish } = collect(events());
    expect(content).toBe("A B C ");
    expect(finish).toMatchObject({ finishReason: "stop-string", stopString: "STOP", completionTokens: 10 });
    expect(backend.calls).toEqual([4, ...new Array(9).fill(1)]);
  });

  it("release held-back text when the answer ends without a match", () => {
    expect(collect(setup(script(...bytes("A ST")), { stopStrings: ["STOP"] }).events()).content).toBe("A ST");
  });

  it("are found in text that only the end releases", () => {
    const { events } = setup(script(0x41, 0xf0, 0x9f), { stopStrings: ["\ufffd"] });
    const { content, finish } = collect(events());
    expect(content).toBe("A");
    expect(finish.finishReason).toBe("stop-string");
  });

  it("do not act on thinking", () => {
    const logits = script(...bytes("STOP"), THINK_CLOSE, ...bytes("a STOP"));
    const { thinking, content } = collect(setup(logits, { stopStrings: ["STOP"], thinking: tags }).events());
    expect(thinking).toBe("STOP");
    expect(content).toBe("a ");
  });
});

describe("thinking", () => {
  it("is split from content by token id, without the tags", () => {
    const logits = script(...bytes("plan"), THINK_CLOSE, ...bytes("</think>ok"));
    const { thinking, content, finish } = collect(setup(logits, { thinking: tags }).events());
    expect(thinking).toBe("plan");
    expect(content).toBe("</think>ok");
    expect(finish).toMatchObject({ completionTokens: 15, thinkingTokens: 5 });
  });

  it("stays thinking when it is not closed (cases 70, 71, 74)", () => {
    const request = { thinking: tags, maxTokens: 6 };
    const cut = collect(setup(script(...bytes("secret plan")), request).events());
    expect(cut).toMatchObject({ thinking: "secret", content: "", finish: { finishReason: "length" } });
    const ended = collect(setup(script(...bytes("Good")), { thinking: tags }).events());
    expect(ended).toMatchObject({ thinking: "Good", content: "" });
  });

  it("is closed by force when its budget is spent (case 50)", () => {
    const logits: LogitsFunction = (tokens) => {
      const closed = tokens.indexOf(THINK_CLOSE);
      const row = new Float32Array(VOCAB);
      row[closed === -1 ? 116 : tokens.length - closed > 2 ? END : 97] = 9;
      return row;
    };
    const { thinking, content } = collect(
      setup(logits, { thinking: { ...tags, budgetTokens: 64 } }).events(),
    );
    expect(thinking).toBe("t".repeat(64));
    expect(content).toBe("aa");
  });
});

describe("cancellation", () => {
  const endless = script(...new Array(500).fill(120));

  it("stops between tokens; the session stays usable", () => {
    const { events, session } = setup(endless);
    const controller = new AbortController();
    let count = 0;
    let finish: FinishEvent | undefined;
    for (const event of events(controller.signal)) {
      if (event.kind === "token" && ++count === 5) controller.abort();
      if (event.kind === "finish") finish = event;
    }
    expect(finish).toMatchObject({ finishReason: "cancelled", completionTokens: 5 });
    expect(session.lengthTokens).toBe(9);
    session.step(1);
  });

  it("stops between prefill chunks", () => {
    const { events, backend } = setup(endless, { chunkTokens: 1 });
    const controller = new AbortController();
    backend.onForward = (call) => call === 1 && controller.abort();
    const { all, finish } = collect(events(controller.signal));
    expect(all.length).toBe(1);
    expect(finish).toMatchObject({ finishReason: "cancelled", completionTokens: 0 });
    expect(backend.calls.length).toBe(2);
  });
});

describe("log-probabilities", () => {
  it("come from the raw distribution, best first, ties by id", () => {
    const row = Float32Array.of(1, 3, 3, -2);
    const norm = Math.log(Math.exp(1) + 2 * Math.exp(3) + Math.exp(-2));
    const { chosen, top } = topLogprobs(row, 0, 3);
    expect(chosen.logprob).toBeCloseTo(1 - norm, 6);
    expect(top.map((entry) => entry.tokenId)).toEqual([1, 2, 0]);
    expect(top[0].logprob).toBeCloseTo(3 - norm, 6);
    expect(topLogprobs(row, 0, 10).top.length).toBe(4);
    expect(() => topLogprobs(row, 0, 129)).toThrow(/0\.\.128/);
  });

  it("do not change with temperature or bias", () => {
    const logits = hashed(VOCAB);
    const request = { maxTokens: 1, topLogprobs: 2 };
    const plain = collect(setup(logits, { ...request, sampling: { temperature: 0 } }).events()).tokens[0];
    const sampling = { temperature: 0, logitBias: { 5: 100 } };
    const biased = collect(setup(logits, { ...request, sampling }).events()).tokens[0];
    expect(biased.tokenId).toBe(5);
    expect(biased.alternatives).toEqual(plain.alternatives);
    expect(biased.logprob?.logprob).toBeLessThan(0);
  });
});
