// `engine.models`: the one loaded model, listed as OpenAI's API lists models.
import type { ServedModel } from "../server/answer-source.ts";
import { type ModelObject, modelNotFound, modelObject } from "../server/wire/model-object.ts";

/** A list that can also be looped over, as the SDK's pages can. */
export interface ModelList extends AsyncIterable<ModelObject> {
  object: "list";
  data: ModelObject[];
}

/** Lists what is loaded. */
export class Models {
  readonly #model: ServedModel;
  readonly #failure: (thrown: unknown) => Error;
  readonly #createdSeconds = Math.floor(Date.now() / 1000);

  constructor(model: ServedModel, failure: (thrown: unknown) => Error) {
    this.#model = model;
    this.#failure = failure;
  }

  /** The loaded model alone. */
  async list(): Promise<ModelList> {
    const data = [modelObject(this.#model, this.#createdSeconds)];
    return {
      object: "list",
      data,
      async *[Symbol.asyncIterator]() {
        yield* data;
      },
    };
  }

  /** The model of that name. Rejects with `request` for any other. */
  async retrieve(id: string): Promise<ModelObject> {
    if (id !== this.#model.id) throw this.#failure(modelNotFound(id, this.#model.id));
    return modelObject(this.#model, this.#createdSeconds);
  }
}
