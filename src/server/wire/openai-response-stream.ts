// A response as OpenAI's events, numbered.
import type { AnswerEvent, CollectedAnswer } from "../answer-events.ts";
import type { ApiError } from "../api-error.ts";
import { newId } from "../conversation-request.ts";
import { type OutputItem, outputText, type ResponseShapes } from "./openai-response-shapes.ts";
import { type AnswerStart, namedEvent } from "./wire.ts";

interface OpenItem {
  kind: "reasoning" | "message" | "call";
  id: string;
  text: string;
  callId: string;
  name: string;
}

/** The events of one response, numbered. */
export class ResponseStream {
  readonly #shapes: ResponseShapes;
  readonly #start: AnswerStart;
  readonly #remember: (answer: CollectedAnswer) => void;
  readonly #output: OutputItem[] = [];
  #sequence = 0;
  #open: OpenItem | undefined;
  #said: Pick<CollectedAnswer, "reasoning" | "content" | "calls"> = { reasoning: "", content: "", calls: [] };

  constructor(shapes: ResponseShapes, start: AnswerStart, remember: (answer: CollectedAnswer) => void) {
    this.#shapes = shapes;
    this.#start = start;
    this.#remember = remember;
  }

  async *frames(events: AsyncIterable<AnswerEvent>): AsyncGenerator<string, void> {
    const begun = { response: this.#shapes.response(this.#start, "in_progress", []) };
    yield this.#event("created", begun) + this.#event("in_progress", begun);
    for await (const event of events) {
      const frame = this.#step(event);
      if (frame !== "") yield frame;
    }
  }

  /** The last event of a response that breaks off. */
  failed(error: ApiError): string {
    const code = error.details.code ?? (error.kind === "busy" ? "rate_limit_exceeded" : "server_error");
    const extra = { error: { code, message: error.message } };
    return this.#event("failed", {
      response: this.#shapes.response(this.#start, "failed", this.#output, extra),
    });
  }

  #step(event: AnswerEvent): string {
    switch (event.kind) {
      case "prompt":
        return "";
      case "reasoning":
        return this.#switchTo("reasoning") + this.#delta(event.text);
      case "content":
        return this.#switchTo("message") + this.#delta(event.text);
      case "tool-start":
        return this.#close("completed") + this.#begin("call", event.id, event.name);
      case "tool-arguments":
        return this.#delta(event.delta);
      case "tool-end":
        return this.#close("completed");
      case "finish": {
        const { finish, usage, stopString } = event;
        const isCut = finish === "length";
        // Clients run a call when its item is done, so one that was cut never is.
        if (this.#open?.kind === "call") this.#open = undefined;
        const closed = this.#close(isCut ? "incomplete" : "completed");
        this.#remember({ ...this.#said, logprobs: [], finish, stopString, usage });
        const response = this.#shapes.finished(this.#start, finish, usage, this.#output);
        return closed + this.#event(isCut ? "incomplete" : "completed", { response });
      }
    }
  }

  #event(name: string, fields: object): string {
    const type = `response.${name}`;
    return namedEvent(type, { type, sequence_number: this.#sequence++, ...fields });
  }

  #switchTo(kind: "reasoning" | "message"): string {
    if (this.#open?.kind === kind) return "";
    return this.#close("completed") + this.#begin(kind);
  }

  #begin(kind: "reasoning" | "message" | "call", callId = "", name = ""): string {
    const prefix = { reasoning: "rs_", message: "msg_", call: "fc_" }[kind];
    this.#open = { kind, id: newId(prefix), text: "", callId, name };
    const place = this.#place();
    const added = this.#event("output_item.added", {
      output_index: place.output_index,
      item: this.#item("in_progress"),
    });
    if (kind === "call") return added;
    if (kind === "message")
      return added + this.#event("content_part.added", { ...place, part: outputText("") });
    if (this.#shapes.showsSummary) {
      return (
        added +
        this.#event("reasoning_summary_part.added", { ...place, part: { type: "summary_text", text: "" } })
      );
    }
    return (
      added + this.#event("content_part.added", { ...place, part: { type: "reasoning_text", text: "" } })
    );
  }

  #delta(delta: string): string {
    this.#open!.text += delta;
    const extra = this.#open!.kind === "message" ? { logprobs: [] } : {};
    return this.#event(`${this.#textEvent()}.delta`, { ...this.#place(), delta, ...extra });
  }

  #close(status: "completed" | "incomplete"): string {
    const open = this.#open;
    if (open === undefined) return "";
    const { kind, text } = open;
    const place = this.#place();
    const name = this.#textEvent();
    let frame = "";
    if (kind === "call") frame += this.#event(`${name}.done`, { ...place, name: open.name, arguments: text });
    else
      frame += this.#event(`${name}.done`, {
        ...place,
        text,
        ...(kind === "message" ? { logprobs: [] } : {}),
      });
    if (kind === "message") frame += this.#event("content_part.done", { ...place, part: outputText(text) });
    if (kind === "reasoning") {
      const [event, type] = this.#shapes.showsSummary
        ? ["reasoning_summary_part.done", "summary_text"]
        : ["content_part.done", "reasoning_text"];
      frame += this.#event(event, { ...place, part: { type, text } });
    }
    const item = this.#item(status);
    frame += this.#event("output_item.done", { output_index: place.output_index, item });
    this.#output.push(item);
    this.#note(open);
    this.#open = undefined;
    return frame;
  }

  #note({ kind, text, callId, name }: OpenItem): void {
    if (kind === "reasoning") this.#said.reasoning += text;
    else if (kind === "message") this.#said.content += text;
    else this.#said.calls.push({ id: callId, name, argumentsJson: text });
  }

  #textEvent(): string {
    if (this.#open!.kind === "call") return "function_call_arguments";
    if (this.#open!.kind === "message") return "output_text";
    return this.#shapes.showsSummary ? "reasoning_summary_text" : "reasoning_text";
  }

  /** Where the open item's part is. */
  #place() {
    const { kind, id } = this.#open!;
    const place = { item_id: id, output_index: this.#output.length };
    if (kind === "call") return place;
    return kind === "reasoning" && this.#shapes.showsSummary
      ? { ...place, summary_index: 0 }
      : { ...place, content_index: 0 };
  }

  /** The open item as it is now; its text is not in it before it is done. */
  #item(status: string): OutputItem {
    const { kind, id, text, callId, name } = this.#open!;
    if (kind === "reasoning") return this.#shapes.reasoning(id, text, status);
    if (kind === "call") return this.#shapes.call(id, callId, name, text, status);
    return this.#shapes.message(id, status === "in_progress" ? undefined : text, status);
  }
}
