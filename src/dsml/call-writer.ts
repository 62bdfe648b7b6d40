// One call being read: writes its arguments as JSON text, fragment by fragment.
import { isPlainString, type StringFlag, valueToJson } from "./coercion.ts";
import type { ParseEvent, SampledText } from "./events.ts";
import type { ToolSchema } from "./tool-table.ts";

/** Turns the parameters of one call into events. A call of an unknown tool is followed in silence. */
export class CallWriter {
  /** Undefined for a call that was not announced. */
  readonly index: number | undefined;
  readonly #tool: ToolSchema | undefined;
  readonly #emit: (event: ParseEvent) => void;
  readonly #parameters = new Set<string>();
  readonly #notes: string[] = [];
  #json = "";
  #parameter = "";
  #flag: StringFlag;
  #streams = false;
  #held = "";

  /** Announces the call if the tool is known. */
  constructor(tool: ToolSchema | undefined, index: number, emit: (event: ParseEvent) => void) {
    this.#tool = tool;
    this.#emit = emit;
    this.index = tool === undefined ? undefined : index;
    if (tool !== undefined) emit({ type: "toolCallStart", index, name: tool.name });
  }

  /** Whether the parameter was already given. */
  has(parameter: string): boolean {
    return this.#parameters.has(parameter);
  }

  /** Required parameters not given so far. */
  get missing(): string[] {
    return (this.#tool?.required ?? []).filter((name) => !this.#parameters.has(name));
  }

  /** Whether leaving out the closing tag left no doubt: something was given, and nothing required is missing. */
  get looksWhole(): boolean {
    return this.#parameters.size > 0 && this.missing.length === 0;
  }

  /** Adds a note for logs. */
  note(text: string): void {
    this.#notes.push(text);
  }

  /** Begins a parameter; `flag` is what its tag says of strings. */
  openParameter(name: string, flag: StringFlag): void {
    this.#parameter = name;
    this.#flag = flag;
    this.#streams = isPlainString(flag, this.#tool?.typesOf(name));
    const key = `${this.#parameters.size === 0 ? "{" : ","}${JSON.stringify(name)}:`;
    this.#parameters.add(name);
    this.#held = "";
    this.#write(this.#streams ? `${key}"` : key);
  }

  /** Takes well-formed text: a surrogate pair is never split between two calls. */
  text(text: string): void {
    if (this.#streams) this.#write(JSON.stringify(text).slice(1, -1));
    else this.#held += text;
  }

  /** Ends the parameter. */
  closeParameter(): void {
    if (this.#streams) {
      this.#write('"');
      return;
    }
    const { json, note } = valueToJson(this.#held, this.#flag, this.#tool?.typesOf(this.#parameter));
    if (note !== undefined) this.note(`parameter ${this.#parameter}: ${note}`);
    this.#write(json);
  }

  /** Ends the call: it may now be executed, unless its tool is unknown. */
  end(sampled: SampledText): void {
    if (this.#tool === undefined || this.index === undefined) {
      this.#emit({ type: "malformedCall", index: undefined, reason: "unknown-tool", ...sampled });
      return;
    }
    this.#write(this.#parameters.size === 0 ? "{}" : "}");
    const { missing } = this;
    if (missing.length > 0) this.note(`required but missing: ${missing.join(", ")}`);
    this.#emit({
      type: "toolCallEnd",
      index: this.index,
      name: this.#tool.name,
      argumentsJson: this.#json,
      ...sampled,
      notes: this.#notes,
    });
  }

  #write(delta: string): void {
    this.#json += delta;
    if (this.index !== undefined && delta !== "")
      this.#emit({ type: "toolCallArguments", index: this.index, delta });
  }
}
