// Downloads one file: goes on where an earlier run stopped, tries again with growing pauses, believes nothing that the
// server says without checking it, and lets the file appear under its name only when it is whole.
import { existsSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { CancelledError, Ds4Error, UsageError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { formatBytes } from "../core/units.ts";
import {
  connectionError,
  type HttpAnswer,
  NetworkError,
  refusalError,
  sendRequest,
} from "../net/http-request.ts";
import { checkDiskSpace } from "./disk-space.ts";
import type { DownloadTarget } from "./download-target.ts";
import { PartialFile, type RemoteIdentity } from "./partial-file.ts";
import { identityOf, isSameFile, placeBody } from "./remote-answer.ts";
import { pause, pauseAfter } from "./retry-pause.ts";

/** Options of `downloadFile`. */
export interface DownloadOptions {
  folder: string;
  /** Replace a file that is there. */
  force?: boolean;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
  /** Told of each failure that is tried again. */
  onRetry?: (line: string) => void;
  /** Pauses; replaced in tests. */
  wait?: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** Free bytes on the file system of a folder; replaced in tests. */
  freeBytes?: (folder: string) => Promise<number>;
  /** Silence that counts as a broken connection (60 s). */
  idleTimeoutMs?: number;
}

/** What was done. */
export interface DownloadResult {
  path: string;
  sizeBytes: number;
  /** Undefined when the file was there already and was not read. */
  sha256: string | undefined;
  /** Whether the hash was compared with one that was known. */
  isHashVerified: boolean;
  /** Bytes that an earlier run had left. */
  resumedBytes: number;
  wasThere: boolean;
}

/** Failures in a row without a byte of progress. */
const MAX_FAILURES = 8;
const IDLE_TIMEOUT_MS = 60_000;
const PROGRESS_INTERVAL_MS = 100;
/**
 * Downloads `target` into the folder. Throws `usage` when another file of that name is there, `io` when the disk has no
 * room or refuses, `network` when the server keeps failing or sends something else than promised, `cancelled`. Unless
 * the content was wrong, what has arrived stays for a later run.
 */
export async function downloadFile(
  target: DownloadTarget,
  options: DownloadOptions,
): Promise<DownloadResult> {
  const path = join(options.folder, target.fileName);
  const there = await existing(path, target, options.force === true);
  if (there !== undefined) return there;
  try {
    await mkdir(dirname(path), { recursive: true });
  } catch (error) {
    throw new Ds4Error("io", `cannot make ${dirname(path)}: ${(error as Error).message}`, { cause: error });
  }
  const partial = await PartialFile.open(path);
  const download = new Download(target, partial, options);
  try {
    return await download.run();
  } catch (error) {
    throw withWhatIsLeft(error, partial);
  } finally {
    await partial.close();
  }
}

async function existing(
  path: string,
  target: DownloadTarget,
  force: boolean,
): Promise<DownloadResult | undefined> {
  if (force || !existsSync(path)) return undefined;
  const { size } = await stat(path);
  if (size === target.sizeBytes) {
    return {
      path,
      sizeBytes: size,
      sha256: undefined,
      isHashVerified: false,
      resumedBytes: 0,
      wasThere: true,
    };
  }
  const expected = target.sizeBytes === undefined ? "" : ` with ${size} bytes instead of ${target.sizeBytes}`;
  throw new UsageError(`${path} exists${expected}; add --force to replace it`);
}

/** One download over as many requests as it takes. */
class Download {
  readonly #target: DownloadTarget;
  readonly #partial: PartialFile;
  readonly #options: DownloadOptions;
  /** What an earlier run had left and this one could use. */
  #resumedBytes = 0;
  /** Most bytes that were ever there: progress is what goes beyond. */
  #furthestBytes: number;
  #mayUseRanges = true;
  #isComplete = false;
  #lastProgressMs = 0;

  constructor(target: DownloadTarget, partial: PartialFile, options: DownloadOptions) {
    this.#target = target;
    this.#partial = partial;
    this.#options = options;
    this.#furthestBytes = partial.sizeBytes;
  }

  async run(): Promise<DownloadResult> {
    const { signal, wait = pause } = this.#options;
    await this.#prepareResume();
    for (let failures = 0; !this.#isComplete; ) {
      if (signal?.aborted) throw new CancelledError();
      try {
        await this.#attempt();
      } catch (error) {
        if (!(error instanceof NetworkError) || !error.isTransient) throw error;
        failures = this.#hasProgressed() ? 1 : failures + 1;
        if (failures >= MAX_FAILURES) throw error;
        const pauseMs = pauseAfter(failures, error.retryAfterSeconds);
        this.#options.onRetry?.(`${error.message}; trying again in ${Math.ceil(pauseMs / 1000)} s`);
        await wait(pauseMs, signal);
      }
    }
    return this.#finish();
  }

  #hasProgressed(): boolean {
    const hasProgressed = this.#partial.sizeBytes > this.#furthestBytes;
    this.#furthestBytes = Math.max(this.#furthestBytes, this.#partial.sizeBytes);
    return hasProgressed;
  }

  // Bytes of an unknown origin are useless: only a strong tag or a hash can tell that they belong to the file.
  async #prepareResume(): Promise<void> {
    const { sizeBytes, identity } = this.#partial;
    if (sizeBytes === 0) return;
    const { url, sha256 } = this.#target;
    const isOurs = identity?.url === url.href && (sha256 === undefined || identity.sha256 === sha256);
    const canCheck = identity?.etag !== undefined || identity?.sha256 !== undefined;
    const isTooLong = sizeBytes > (identity?.sizeBytes ?? Number.POSITIVE_INFINITY);
    if (!isOurs || !canCheck || isTooLong) return this.#partial.restart();
    await this.#partial.hashExisting(
      (done) => this.#report("check", done, sizeBytes, 0),
      this.#options.signal,
    );
    this.#resumedBytes = sizeBytes;
  }

  async #attempt(): Promise<void> {
    const { signal, idleTimeoutMs = IDLE_TIMEOUT_MS } = this.#options;
    const { url } = this.#target;
    const fromBytes = this.#mayUseRanges ? this.#partial.sizeBytes : 0;
    const answer = await sendRequest({ url, headers: this.#headers(fromBytes), signal, idleTimeoutMs });
    try {
      if (![200, 206, 416].includes(answer.status)) throw await refusalError(url, answer);
      await this.#take(answer, fromBytes);
    } catch (error) {
      throw connectionError(url, error, signal);
    } finally {
      answer.body.destroy();
    }
  }

  #headers(fromBytes: number): Record<string, string> {
    const headers: Record<string, string> = { "accept-encoding": "identity", "user-agent": "ds4-ts" };
    if (fromBytes === 0) return headers;
    const { etag } = this.#partial.identity ?? {};
    headers.range = `bytes=${fromBytes}-`;
    if (etag !== undefined) headers["if-range"] = etag;
    return headers;
  }

  async #take(answer: HttpAnswer, fromBytes: number): Promise<void> {
    const found = identityOf(this.#target, answer);
    const known = this.#partial.identity;
    const place = placeBody(answer, fromBytes);
    if (place.kind === "unusable") {
      this.#mayUseRanges = false;
      await this.#startAgain();
      throw new NetworkError(`${this.#target.url.host}: ${place.why}`, { isTransient: true });
    }
    const goesOn = place.kind === "complete" || place.startBytes > 0;
    if (goesOn && (known === undefined || !isSameFile(known, found))) {
      await this.#startAgain();
      throw new NetworkError(`${this.#target.fileName} has changed on the server`, { isTransient: true });
    }
    if (place.kind === "complete") {
      this.#isComplete = true;
      return;
    }
    if (place.startBytes === 0 && this.#partial.sizeBytes > 0) await this.#startAgain();
    // What was known stays known: not every host that serves a part repeats size and hash.
    const identity: RemoteIdentity = goesOn ? { ...known, ...definedOnly(found), url: found.url } : found;
    if (identity.sizeBytes !== undefined) {
      const missingBytes = identity.sizeBytes - this.#partial.sizeBytes;
      const { folder, freeBytes } = this.#options;
      await checkDiskSpace(folder, this.#target.fileName, missingBytes, freeBytes);
    }
    await this.#partial.setIdentity(identity);
    await this.#receive(answer, identity.sizeBytes);
  }

  async #startAgain(): Promise<void> {
    this.#resumedBytes = 0;
    await this.#partial.restart();
  }

  async #receive(answer: HttpAnswer, totalBytes: number | undefined): Promise<void> {
    const { url, fileName } = this.#target;
    for await (const bytes of answer.body as AsyncIterable<Buffer>) {
      if (totalBytes !== undefined && this.#partial.sizeBytes + bytes.length > totalBytes) {
        await this.#startAgain();
        throw new NetworkError(`${url.host} sends more than the ${totalBytes} bytes of ${fileName}`, {
          isTransient: false,
        });
      }
      await this.#partial.append(bytes);
      const { sizeBytes } = this.#partial;
      this.#report("download", sizeBytes, totalBytes ?? sizeBytes + 1, this.#resumedBytes);
    }
    const { sizeBytes } = this.#partial;
    if (totalBytes !== undefined && sizeBytes < totalBytes) {
      const message = `${url.host} ended after ${sizeBytes} of ${totalBytes} bytes`;
      throw new NetworkError(message, { isTransient: true });
    }
    this.#isComplete = true;
  }

  async #finish(): Promise<DownloadResult> {
    const { sizeBytes, finalPath, identity } = this.#partial;
    const sha256 = this.#partial.digest();
    const expected = this.#target.sha256 ?? identity?.sha256;
    if (expected !== undefined && expected !== sha256) {
      await this.#partial.restart();
      throw new NetworkError(
        `${this.#target.fileName}: expected SHA-256 ${expected}, got ${sha256}; the bytes were thrown away, run again`,
        { isTransient: false },
      );
    }
    await this.#partial.finish();
    const isHashVerified = expected !== undefined;
    return {
      path: finalPath,
      sizeBytes,
      sha256,
      isHashVerified,
      resumedBytes: this.#resumedBytes,
      wasThere: false,
    };
  }

  #report(label: string, done: number, total: number, doneBefore: number): void {
    const now = performance.now();
    if (done < total && now - this.#lastProgressMs < PROGRESS_INTERVAL_MS) return;
    this.#lastProgressMs = now;
    this.#options.onProgress?.({ label, done, total, unit: "bytes", doneBefore });
  }
}

function definedOnly(identity: RemoteIdentity): Partial<RemoteIdentity> {
  return Object.fromEntries(Object.entries(identity).filter(([, value]) => value !== undefined));
}

function withWhatIsLeft(error: unknown, partial: PartialFile): unknown {
  const { sizeBytes, path, identity } = partial;
  if (sizeBytes === 0 || !(error instanceof Ds4Error)) return error;
  const of = identity?.sizeBytes === undefined ? "" : ` of ${formatBytes(identity.sizeBytes)}`;
  const left = `${formatBytes(sizeBytes)}${of} stay in ${path}; the same command goes on from there`;
  if (error instanceof CancelledError) return new CancelledError(`stopped: ${left}`);
  return new Ds4Error(error.code, `${error.message}\n${left}`, { cause: error });
}
