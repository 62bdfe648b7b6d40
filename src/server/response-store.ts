// Conversations behind `previous_response_id`: in memory only, bounded, the oldest forgotten first.
import type { Message } from "../template/conversation.ts";
import { ApiError } from "./api-error.ts";
import { MAX_STORED_RESPONSES, MAX_STORED_UNITS } from "./limits.ts";

interface StoredResponse {
  messages: readonly Message[];
  units: number;
}

/** Remembers what was said up to a response. */
export class ResponseStore {
  readonly #stored = new Map<string, StoredResponse>();
  readonly #maxResponses: number;
  readonly #maxUnits: number;
  #units = 0;

  constructor(maxResponses = MAX_STORED_RESPONSES, maxUnits = MAX_STORED_UNITS) {
    this.#maxResponses = maxResponses;
    this.#maxUnits = maxUnits;
  }

  /** Keeps the conversation that ends with response `id`. One that is larger than the whole store is not kept. */
  put(id: string, messages: readonly Message[]): void {
    const units = JSON.stringify(messages).length;
    if (units > this.#maxUnits) return;
    this.#stored.set(id, { messages, units });
    this.#units += units;
    for (const [oldest, { units: freed }] of this.#stored) {
      if (this.#units <= this.#maxUnits && this.#stored.size <= this.#maxResponses) return;
      this.#stored.delete(oldest);
      this.#units -= freed;
    }
  }

  /** The conversation. Throws `invalid-request` when it was never stored or is forgotten. */
  get(id: string): readonly Message[] {
    const found = this.#stored.get(id);
    if (found !== undefined) return found.messages;
    throw new ApiError(
      "invalid-request",
      `Previous response with id '${id.slice(0, 100)}' not found: it was not stored, or has been forgotten. ` +
        "Send the whole conversation as input.",
      { param: "previous_response_id", code: "previous_response_not_found" },
    );
  }
}
