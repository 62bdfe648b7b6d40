// Who may use the server: API keys, and which browser pages.
import { createHash, timingSafeEqual } from "node:crypto";
import { ApiError } from "./api-error.ts";

/** Checks keys in constant time; keeps only their hashes. */
export class KeyCheck {
  readonly #hashes: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.#hashes = keys.map(hashOf);
  }

  get isOpen(): boolean {
    return this.#hashes.length === 0;
  }

  /** Throws `unauthorized` unless `Authorization: Bearer KEY` or `x-api-key: KEY` holds a known key. */
  check(headers: Headers): void {
    if (this.isOpen) return;
    const bearer = /^bearer +(\S+) *$/i.exec(headers.get("authorization") ?? "")?.[1];
    const given = [bearer, headers.get("x-api-key") ?? undefined].filter((key) => key !== undefined);
    let isKnown = false;
    for (const key of given) {
      const hash = hashOf(key);
      // Every key is compared, so that the time does not tell which one was close.
      for (const known of this.#hashes) isKnown = timingSafeEqual(hash, known) || isKnown;
    }
    if (isKnown) return;
    const what = given.length === 0 ? "no API key was sent" : "the API key is wrong";
    throw new ApiError("unauthorized", `${what}: send it as "Authorization: Bearer KEY" or "x-api-key: KEY"`);
  }
}

function hashOf(key: string): Buffer {
  return createHash("sha256").update(key, "utf8").digest();
}

/** Which browser pages may use the server: origins, or `*` for any. */
export class OriginCheck {
  readonly #origins: ReadonlySet<string>;
  readonly #isOpen: boolean;

  /** `isKeyed`: requests need an API key, which a foreign page does not have. */
  constructor(origins: readonly string[], isKeyed: boolean) {
    this.#origins = new Set(origins);
    this.#isOpen = isKeyed;
  }

  /** The value of Access-Control-Allow-Origin for a request, if it is to be sent. */
  allowed(origin: string | null): string | undefined {
    if (origin === null) return undefined;
    return this.#origins.has(origin) || this.#origins.has("*") ? origin : undefined;
  }

  /**
   * Throws `forbidden` for a request that a foreign page makes without CORS, as forms can. Without an API key, pages
   * that the server itself might have sent count as its own only under an address or localhost: a host name can be
   * pointed here by anyone.
   */
  check(headers: Headers): void {
    const origin = headers.get("origin");
    if (origin === null || this.#isOpen || this.allowed(origin) !== undefined) return;
    const host = headers.get("host") ?? "";
    const isSame = origin === `http://${host}` || origin === `https://${host}`;
    if (isSame && /^(localhost|[\d.]+|\[[\da-f:]+\])(:\d+)?$/i.test(host)) return;
    throw new ApiError(
      "forbidden",
      `pages of ${origin} may not use this server; allow them with --cors ${origin}`,
    );
  }
}
