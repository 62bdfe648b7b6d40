// What is wrong with a schema: where it stands and which keyword is to blame.
import { Ds4Error } from "../core/errors.ts";

/** A constraint that cannot be enforced or is not valid (code `request`). */
export class GrammarError extends Ds4Error {
  /** Path of the place within the schema, `properties.age`; empty for its root. */
  readonly path: string;
  /** What is wrong, without the path. */
  readonly reason: string;

  constructor(path: string, reason: string) {
    super("request", path === "" ? reason : `${path}: ${reason}`);
    this.path = path;
    this.reason = reason;
  }
}
