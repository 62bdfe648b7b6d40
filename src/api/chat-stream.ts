// A streamed answer in the caller's hands: chunks to loop over, and ways to end the work.
import type { ChatCompletionChunk } from "../server/wire/openai-chat-types.ts";

/** Chunks of one answer, to be read once. Leaving the loop ends the work; so do `controller` and the request's signal. */
export class ChatCompletionStream implements AsyncIterableIterator<ChatCompletionChunk, void> {
  /** Aborting it ends the answer: the loop then throws `cancelled`. */
  readonly controller: AbortController;
  readonly #chunks: AsyncGenerator<ChatCompletionChunk, void>;
  readonly #onLeft: () => void;

  constructor(
    chunks: AsyncGenerator<ChatCompletionChunk, void>,
    controller: AbortController,
    onLeft: () => void,
  ) {
    this.#chunks = chunks;
    this.controller = controller;
    this.#onLeft = onLeft;
  }

  /** The next chunk. Throws a `Ds4Error`: `cancelled` after an abort, `backend-fault`, `session`. */
  next(): Promise<IteratorResult<ChatCompletionChunk, void>> {
    return this.#chunks.next();
  }

  /** Ends the work; also before the first chunk was read. */
  async return(): Promise<IteratorResult<ChatCompletionChunk, void>> {
    this.controller.abort();
    const result = await this.#chunks.return();
    this.#onLeft();
    return result;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
