// What the KV states of all backends do alike: count tokens, close once, go through the sections of a snapshot.
import { Ds4Error } from "../core/errors.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import type { KvState } from "./backend.ts";
import {
  checkKvSnapshot,
  type KvSection,
  type KvSnapshot,
  kvSectionShapes,
  kvShapeKey,
} from "./kv-snapshot.ts";

/** A state of `capacityTokens` tokens; where its values lie is its backend's business. */
export abstract class KvStateBase implements KvState {
  readonly capacityTokens: number;
  abstract readonly bytes: number;
  protected readonly spec: ModelSpec;
  #lengthTokens = 0;
  #closed = false;

  constructor(spec: ModelSpec, capacityTokens: number) {
    this.spec = spec;
    this.capacityTokens = capacityTokens;
  }

  get lengthTokens(): number {
    return this.#lengthTokens;
  }

  /** Makes the rows of the last pass part of the state. For the forward pass only. */
  advance(tokens: number): void {
    this.#lengthTokens += tokens;
  }

  snapshot(): KvSnapshot {
    this.#checkOpen();
    const lengthTokens = this.#lengthTokens;
    const sections = kvSectionShapes(this.spec, lengthTokens).map(({ name, shape }) => {
      const data = new Float32Array(shape[0] * shape[1]);
      this.copySection(name, data, false, lengthTokens);
      return { name, shape, data };
    });
    return { lengthTokens, shapeKey: kvShapeKey(this.spec), sections };
  }

  restore(snapshot: KvSnapshot): void {
    this.#checkOpen();
    checkKvSnapshot(this.spec, this.capacityTokens, snapshot);
    // Only what was checked: of two sections of one name the last.
    const sections = new Map(snapshot.sections.map((section) => [section.name, section]));
    const shapes = kvSectionShapes(this.spec, snapshot.lengthTokens);
    this.copyIn(
      shapes.map(({ name }) => sections.get(name)!),
      snapshot.lengthTokens,
    );
    this.#lengthTokens = snapshot.lengthTokens;
  }

  reset(): void {
    this.#lengthTokens = 0;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.release();
  }

  /** Replaces the values by those of a state of `lengthTokens` tokens. */
  protected copyIn(sections: readonly KvSection[], lengthTokens: number): void {
    for (const { name, data } of sections) this.copySection(name, data, true, lengthTokens);
  }

  /** Moves one section of a state of `lengthTokens` tokens out to `data`, or in from it. */
  protected abstract copySection(
    name: string,
    data: Float32Array,
    inward: boolean,
    lengthTokens: number,
  ): void;

  /** Called once, when the state is closed. */
  protected abstract release(): void;

  #checkOpen(): void {
    if (this.#closed) throw new Ds4Error("session", "this KV state is closed; create a new one");
  }
}
