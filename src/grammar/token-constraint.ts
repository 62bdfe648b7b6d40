// Which tokens may come next in an answer: masks of a grammar, kept between answers of the same constraint, and the
// place of one answer in it.
import { Ds4Error } from "../core/errors.ts";
import { Automaton, DEAD } from "./automaton.ts";
import { type AnswerConstraint, constraintGrammar, constraintKey } from "./constraint.ts";
import { FIRST_MARK } from "./grammar.ts";
import { type TokenMask, TokenTrie, type Vocabulary } from "./token-trie.ts";

/** Grammars kept for the next requests. */
const KEPT_GRAMMARS = 8;
/** Masks kept of each, 16 KB apiece for 129,280 tokens. */
const KEPT_MASKS = 256;

/** One answer's place in its constraint. */
export interface TokenConstraint {
  /**
   * The tokens that may come next; read only. In thinking all but those that would end the answer. Throws
   * `GrammarError` for a grammar that is too ambiguous to follow.
   */
  mask(isThinking: boolean): TokenMask;
  /** Moves past a token of the content. Throws `session` if it was not allowed. */
  accept(tokenId: number): void;
}

/** Makes constraints for one vocabulary. */
export class ConstraintFactory {
  readonly #vocabulary: Vocabulary;
  readonly #grammars = new Map<string, GrammarMasks>();
  readonly #notEnding: TokenMask;
  #trie: TokenTrie | undefined;

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#notEnding = new Uint32Array(Math.ceil(vocabulary.vocabSize / 32)).fill(0xffffffff);
    for (const id of vocabulary.stopIds) this.#notEnding[id >> 5] &= ~(1 << (id & 31));
  }

  /** The constraint before the first token of content. Throws `GrammarError`. */
  open(constraint: AnswerConstraint): TokenConstraint {
    const key = constraintKey(constraint);
    let masks = this.#grammars.get(key);
    if (masks === undefined) {
      this.#trie ??= new TokenTrie(this.#vocabulary);
      masks = new GrammarMasks(new Automaton(constraintGrammar(constraint)), this.#trie, this.#vocabulary);
    }
    this.#grammars.delete(key);
    this.#grammars.set(key, masks);
    const oldest = this.#grammars.keys().next().value;
    if (this.#grammars.size > KEPT_GRAMMARS && oldest !== undefined) this.#grammars.delete(oldest);
    return new AnswerPlace(masks, this.#notEnding);
  }
}

/** A grammar's automaton and its masks by position. */
class GrammarMasks {
  readonly automaton: Automaton;
  readonly #trie: TokenTrie;
  readonly #vocabulary: Vocabulary;
  readonly #markIds: number[];
  readonly #masks = new Map<number, TokenMask>();
  /** Masks of ordinary tokens by the position that stands for all like it. */
  readonly #walks = new Map<number, TokenMask>();

  constructor(automaton: Automaton, trie: TokenTrie, vocabulary: Vocabulary) {
    this.automaton = automaton;
    this.#trie = trie;
    this.#vocabulary = vocabulary;
    this.#markIds = automaton.grammar.marks.map((mark) => {
      const id = vocabulary.specialId(mark);
      if (id !== undefined) return id;
      throw new Ds4Error("request", `the vocabulary has no token ${mark}: the model makes no tool calls`);
    });
  }

  mask(position: number): TokenMask {
    const known = this.#masks.get(position);
    if (known !== undefined) return known;
    const { automaton } = this;
    const mask = this.#trie.mask(automaton, position, this.#walks);
    const allow = (id: number) => {
      mask[id >> 5] |= 1 << (id & 31);
    };
    this.#markIds.forEach((id, index) => {
      if (automaton.step(position, FIRST_MARK + index) !== DEAD) allow(id);
    });
    if (automaton.accepts(position)) allow(this.#vocabulary.eosId);
    for (const kept of [this.#masks, this.#walks]) {
      const oldest = kept.keys().next().value;
      if (kept.size >= KEPT_MASKS && oldest !== undefined) kept.delete(oldest);
    }
    this.#masks.set(position, mask);
    return mask;
  }

  step(position: number, tokenId: number): number {
    const mark = this.#markIds.indexOf(tokenId);
    if (mark !== -1) return this.automaton.step(position, FIRST_MARK + mark);
    return this.automaton.run(this.#vocabulary.bytesView(tokenId), position);
  }

  clear(): void {
    this.automaton.clear();
    this.#masks.clear();
    this.#walks.clear();
  }
}

class AnswerPlace implements TokenConstraint {
  readonly #masks: GrammarMasks;
  readonly #notEnding: TokenMask;
  readonly #tokens: number[] = [];
  #position: number;
  #generation: number;

  constructor(masks: GrammarMasks, notEnding: TokenMask) {
    this.#masks = masks;
    this.#notEnding = notEnding;
    this.#position = masks.automaton.start;
    this.#generation = masks.automaton.generation;
  }

  mask(isThinking: boolean): TokenMask {
    if (isThinking) return this.#notEnding;
    const { automaton } = this.#masks;
    if (automaton.isFull) this.#masks.clear();
    this.#catchUp();
    return this.#masks.mask(this.#position);
  }

  accept(tokenId: number): void {
    this.#catchUp();
    const next = this.#masks.step(this.#position, tokenId);
    if (next === DEAD)
      throw new Ds4Error("session", `token ${tokenId} is not allowed here by the constraint`);
    this.#position = next;
    this.#tokens.push(tokenId);
  }

  /** Positions are lost when the automaton starts afresh: this answer's is found again from its tokens. */
  #catchUp(): void {
    const { automaton } = this.#masks;
    if (this.#generation === automaton.generation) return;
    this.#generation = automaton.generation;
    this.#position = automaton.start;
    for (const id of this.#tokens) this.#position = this.#masks.step(this.#position, id);
  }
}
