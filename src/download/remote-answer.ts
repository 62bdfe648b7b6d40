// Reads an answer to a request for a file: what the file is, and where the bytes that follow belong.
import type { IncomingHttpHeaders } from "node:http";
import { type HttpAnswer, NetworkError } from "../net/http-request.ts";
import type { DownloadTarget } from "./download-target.ts";
import type { RemoteIdentity } from "./partial-file.ts";

/** What follows an answer's headers. */
export type AnswerKind =
  /** The body starts at this offset of the file. */
  | { kind: "bytes"; startBytes: number }
  /** Nothing more: the file ends where the request began. */
  | { kind: "complete" }
  /** The server contradicts itself or what is known: start again without ranges. */
  | { kind: "unusable"; why: string };

/**
 * What the server says of the file. Hugging Face answers with a redirect whose headers carry the file's own size and
 * SHA-256. Throws `network` when it contradicts what the target must be.
 */
export function identityOf(target: DownloadTarget, answer: HttpAnswer): RemoteIdentity {
  const all = [...answer.redirects, answer.headers];
  const linkedSize = firstNumber(all, "x-linked-size");
  const sizeBytes = linkedSize ?? wholeSize(answer);
  const linkedHash = all.map((headers) => unquoted(headers["x-linked-etag"])).find(isSha256);
  checkAgainst(target, sizeBytes, linkedHash);
  const { etag } = answer.headers;
  return {
    url: target.url.href,
    etag: etag !== undefined && /^"[^"]+"$/.test(etag) ? etag : undefined,
    sizeBytes: target.sizeBytes ?? sizeBytes,
    sha256: target.sha256 ?? linkedHash,
  };
}

/** Whether `found` can be a continuation of what `known` was the beginning of. */
export function isSameFile(known: RemoteIdentity, found: RemoteIdentity): boolean {
  const differs = (a: unknown, b: unknown) => a !== undefined && b !== undefined && a !== b;
  if (known.url !== found.url || differs(known.sizeBytes, found.sizeBytes)) return false;
  // The hash is of the content; an entity tag may change with the host that happens to serve it.
  if (known.sha256 !== undefined && found.sha256 !== undefined) return known.sha256 === found.sha256;
  return known.etag !== undefined && known.etag === found.etag;
}

/** Places the body of a 200, 206 or 416 answer to a request for the bytes from `fromBytes` on. */
export function placeBody(answer: HttpAnswer, fromBytes: number): AnswerKind {
  const { "content-encoding": encoding = "identity", "content-range": range } = answer.headers;
  if (answer.status === 416) {
    const total = /^bytes \*\/(\d+)$/.exec(range ?? "")?.[1];
    if (Number(total) === fromBytes && fromBytes > 0) return { kind: "complete" };
    return { kind: "unusable", why: `no bytes from ${fromBytes} on` };
  }
  if (encoding !== "identity") return { kind: "unusable", why: `content encoding ${encoding}` };
  if (answer.status === 200) return { kind: "bytes", startBytes: 0 };
  const start = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(range ?? "")?.[1];
  if (start !== undefined && Number(start) === fromBytes) return { kind: "bytes", startBytes: fromBytes };
  return {
    kind: "unusable",
    why: `asked for bytes from ${fromBytes} on, got ${range ?? "a range without its place"}`,
  };
}

function checkAgainst(
  target: DownloadTarget,
  sizeBytes: number | undefined,
  sha256: string | undefined,
): void {
  const replaced = "the file has been replaced since; name its address to download it as it is now";
  if (target.sizeBytes !== undefined && sizeBytes !== undefined && target.sizeBytes !== sizeBytes) {
    throw new NetworkError(
      `${target.fileName}: expected ${target.sizeBytes} bytes, the server has ${sizeBytes}: ${replaced}`,
      { isTransient: false },
    );
  }
  if (target.sha256 !== undefined && sha256 !== undefined && target.sha256 !== sha256) {
    throw new NetworkError(
      `${target.fileName}: expected SHA-256 ${target.sha256}, the server has ${sha256}: ${replaced}`,
      { isTransient: false },
    );
  }
}

function wholeSize({ status, headers }: HttpAnswer): number | undefined {
  const range = /^bytes (?:\d+-\d+|\*)\/(\d+)$/.exec(headers["content-range"] ?? "")?.[1];
  if (range !== undefined) return Number(range);
  return status === 200 ? firstNumber([headers], "content-length") : undefined;
}

function firstNumber(all: readonly IncomingHttpHeaders[], name: string): number | undefined {
  return all
    .map((headers) => headers[name])
    .filter((value) => typeof value === "string" && /^\d{1,15}$/.test(value))
    .map(Number)[0];
}

function unquoted(value: string | string[] | undefined): string | undefined {
  return typeof value === "string" ? value.replace(/^"(.*)"$/, "$1").toLowerCase() : undefined;
}

function isSha256(text: string | undefined): text is string {
  return text !== undefined && /^[0-9a-f]{64}$/.test(text);
}
