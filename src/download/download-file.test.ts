// Downloads from a local server that drops, truncates and lies. Nothing but the right bytes may appear under the name.
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { CancelledError, UsageError } from "../core/errors.ts";
import type { Progress } from "../core/progress.ts";
import { type DownloadOptions, downloadFile } from "./download-file.ts";
import type { DownloadTarget } from "./download-target.ts";

const CONTENT = Buffer.from(
  Uint8Array.from({ length: 200_000 }, (_, index) => (index * 7919 + (index >> 8)) & 255),
);
const SHA256 = createHash("sha256").update(CONTENT).digest("hex");
const ETAG = '"v1"';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
let server: Server;
let folder: string;
let base: string;
/** One per request, the last one for all further ones. */
let handlers: Handler[];
let requests: { range?: string; ifRange?: string }[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "ds4-download-"));
  requests = [];
  server = createServer((request, response) => {
    const { range, "if-range": ifRange } = request.headers;
    requests.push({ range, ifRange: ifRange as string | undefined });
    const handler = handlers.length > 1 ? handlers.shift()! : handlers[0];
    handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

const path = () => join(folder, "model.gguf");
const target = (extra: Partial<DownloadTarget> = {}): DownloadTarget => ({
  url: new URL(`${base}/model.gguf`),
  fileName: "model.gguf",
  ...extra,
});
let pauses: number[];
async function fetchFile(extra: Partial<DownloadTarget> = {}, options: Partial<DownloadOptions> = {}) {
  pauses = [];
  const wait = async (ms: number) => void pauses.push(ms);
  return downloadFile(target(extra), { folder, wait, ...options });
}

/** A well-behaved server, ranges and all; `bytes` cuts the body off by closing the connection. */
function serve({ bytes = Number.POSITIVE_INFINITY, etag = ETAG, headers = {} } = {}): Handler {
  return (request, response) => {
    const match = /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
    const isFresh = request.headers["if-range"] === undefined || request.headers["if-range"] === etag;
    const start = match && isFresh ? Number(match[1]) : 0;
    if (start >= CONTENT.length) {
      response.writeHead(416, { "content-range": `bytes */${CONTENT.length}`, etag, ...headers }).end();
      return;
    }
    const body = CONTENT.subarray(start);
    const range = `bytes ${start}-${CONTENT.length - 1}/${CONTENT.length}`;
    const about = {
      etag,
      "content-length": body.length,
      ...(start > 0 ? { "content-range": range } : {}),
      ...headers,
    };
    response.writeHead(start > 0 ? 206 : 200, about);
    if (bytes >= body.length) return void response.end(body);
    response.write(body.subarray(0, bytes), () => destroyOnceKept(response, start + bytes));
  };
}

/** Cuts the connection when the client has kept what was sent: cutting earlier would take bytes back from it. */
function destroyOnceKept(response: ServerResponse, keptBytes: number, patienceMs = 5000): void {
  const kept = statSync(`${path()}.partial`, { throwIfNoEntry: false })?.size ?? 0;
  if (kept >= keptBytes || patienceMs <= 0) return void response.destroy();
  setTimeout(() => destroyOnceKept(response, keptBytes, patienceMs - 5), 5);
}

function expectWhole() {
  expect(readFileSync(path()).equals(CONTENT)).toBe(true);
  expect(readdirSync(folder)).toEqual(["model.gguf"]);
}

test("a file arrives whole, with its hash, and nothing else is left", async () => {
  handlers = [serve()];
  const seen: Progress[] = [];
  const result = await fetchFile({}, { onProgress: (progress) => seen.push(progress) });
  expect(result).toMatchObject({
    path: path(),
    sizeBytes: CONTENT.length,
    sha256: SHA256,
    isHashVerified: false,
  });
  expect(seen.at(-1)).toMatchObject({ done: CONTENT.length, total: CONTENT.length });
  expectWhole();
});

test("a connection that breaks again and again is taken up where it broke", async () => {
  handlers = [serve({ bytes: 50_000 }), serve({ bytes: 60_000 }), serve({ bytes: 10_000 }), serve()];
  await fetchFile();
  expect(requests.map(({ range }) => range)).toEqual([
    undefined,
    "bytes=50000-",
    "bytes=110000-",
    "bytes=120000-",
  ]);
  expect(requests.slice(1).every(({ ifRange }) => ifRange === ETAG)).toBe(true);
  expectWhole();
});

test("busy servers are asked again with growing pauses, as late as they ask; then it is given up", async () => {
  const busy: Handler = (_, response) => void response.writeHead(503).end();
  const later: Handler = (_, response) => void response.writeHead(429, { "retry-after": "7" }).end();
  handlers = [busy, busy, later, serve()];
  await fetchFile();
  expect(pauses[1]).toBeGreaterThan(pauses[0]);
  expect(pauses[2]).toBe(7000);
  expectWhole();
  rmSync(path());
  handlers = [busy];
  await expect(fetchFile()).rejects.toMatchObject({ code: "network", message: expect.stringMatching(/503/) });
  expect(pauses).toHaveLength(7);
  expect(readdirSync(folder)).toEqual([]);
});

test("a missing file is not asked for again", async () => {
  handlers = [(_, response) => void response.writeHead(404).end("Entry not found")];
  await expect(fetchFile()).rejects.toThrow(/answered 404; check the name: Entry not found/);
  expect(requests).toHaveLength(1);
});

test("an interrupted download says what stays, and a later run goes on from there", async () => {
  const controller = new AbortController();
  handlers = [
    (_, response) => {
      response.writeHead(200, { etag: ETAG, "content-length": CONTENT.length });
      response.write(CONTENT.subarray(0, 70_000));
    },
    serve(),
  ];
  const onProgress = ({ done }: Progress) => {
    if (done > 0) controller.abort();
  };
  const run = fetchFile({}, { signal: controller.signal, onProgress });
  await expect(run).rejects.toThrow(CancelledError);
  await expect(run).rejects.toThrow(
    /stopped: .* of 195\.31 KiB stay in .*model\.gguf\.partial; the same command/,
  );
  expect(existsSync(path())).toBe(false);
  const result = await fetchFile();
  expect(result.resumedBytes).toBeGreaterThan(0);
  expect(requests[1].range).toBe(`bytes=${result.resumedBytes}-`);
  expect(result.sha256).toBe(SHA256);
  expectWhole();
});

/** Leaves the first `bytes` of a download behind. */
async function leavePartial(bytes: number) {
  handlers = [serve({ bytes }), (_, response) => void response.writeHead(404).end()];
  await expect(fetchFile()).rejects.toThrow(/stay in/);
  expect(readFileSync(`${path()}.partial`).length).toBe(bytes);
  requests = [];
}

test("bytes of another version, of another address or without a record are not continued", async () => {
  await leavePartial(50_000);
  handlers = [serve({ etag: '"v2"' })];
  expect((await fetchFile()).resumedBytes).toBe(0);
  expect(requests).toEqual([{ range: "bytes=50000-", ifRange: ETAG }]);
  expectWhole();
  for (const change of [
    () => rmSync(`${path()}.partial.json`),
    () => writeFileSync(`${path()}.partial.json`, "{"),
    () => writeFileSync(`${path()}.partial.json`, JSON.stringify({ url: "http://other/", etag: ETAG })),
  ]) {
    rmSync(path());
    await leavePartial(50_000);
    change();
    handlers = [serve()];
    await fetchFile();
    expect(requests[0].range).toBeUndefined();
    expectWhole();
  }
});

test("a partial file that is whole already is finished without its bytes being sent again (416)", async () => {
  await leavePartial(50_000);
  writeFileSync(`${path()}.partial`, CONTENT);
  handlers = [serve()];
  expect((await fetchFile()).resumedBytes).toBe(CONTENT.length);
  expectWhole();
});

test.each<[string, Handler]>([
  [
    "sends another range than asked",
    (_, response) => {
      const range = `bytes 0-9999/${CONTENT.length}`;
      response.writeHead(206, { etag: ETAG, "content-range": range }).end(CONTENT.subarray(0, 10_000));
    },
  ],
  ["sends a part without its place", (_, response) => void response.writeHead(206, { etag: ETAG }).end("x")],
  ["says that there is nothing more", (_, response) => void response.writeHead(416, { etag: ETAG }).end()],
  [
    "compresses unasked",
    (_, response) => void response.writeHead(206, { etag: ETAG, "content-encoding": "gzip" }).end("x"),
  ],
  [
    "has another file behind the same range",
    (_, response) => {
      const range = `bytes 50000-59999/60000`;
      response.writeHead(206, { etag: '"v9"', "content-range": range }).end(CONTENT.subarray(0, 10_000));
    },
  ],
])("a server that %s costs a new start, not the file", async (_name, lie) => {
  await leavePartial(50_000);
  handlers = [lie, serve()];
  await fetchFile();
  expect(requests[1].range).toBeUndefined();
  expectWhole();
});

test("a server that ignores ranges sends everything again", async () => {
  await leavePartial(50_000);
  handlers = [
    (request, response) => {
      delete request.headers.range;
      serve()(request, response);
    },
  ];
  await fetchFile();
  expectWhole();
});

test("a body that ends early, or lasts longer than the file, never becomes the file", async () => {
  const short: Handler = (_, response) => {
    response.writeHead(200, { "x-linked-size": CONTENT.length }).end(CONTENT.subarray(0, 1000));
  };
  handlers = [short];
  await expect(fetchFile()).rejects.toThrow(/ended after 1000 of 200000 bytes/);
  rmSync(`${path()}.partial`);
  handlers = [serve()];
  await expect(fetchFile({ sizeBytes: 100_000 })).rejects.toThrow(
    /expected 100000 bytes, the server has 200000/,
  );
  handlers = [(_, response) => void response.writeHead(200, { "x-linked-size": 1000 }).end(CONTENT)];
  await expect(fetchFile()).rejects.toThrow(/sends more than the 1000 bytes/);
  expect(existsSync(path())).toBe(false);
});

test("the hash is checked: the given one, or the one that the file host states", async () => {
  handlers = [serve()];
  expect((await fetchFile({ sha256: SHA256 })).isHashVerified).toBe(true);
  rmSync(path());
  const wrong = "0".repeat(64);
  await expect(fetchFile({ sha256: wrong })).rejects.toThrow(
    /expected SHA-256 0+, got [0-9a-f]{64}; the bytes were thrown/,
  );
  expect(readdirSync(folder)).toEqual([]);
  handlers = [serve({ headers: { "x-linked-etag": `"${wrong}"` } })];
  await expect(fetchFile()).rejects.toThrow(/expected SHA-256 0+/);
  await expect(fetchFile({ sha256: SHA256 })).rejects.toThrow(
    /the server has 0+: the file has been replaced/,
  );
});

test("size and hash of the redirect count, as Hugging Face gives them; the next host's tag does not", async () => {
  const redirect: Handler = (_, response) => {
    const about = { "x-linked-size": CONTENT.length, "x-linked-etag": `"${SHA256}"` };
    response.writeHead(302, { location: "/cdn/file?signature=1", ...about }).end();
  };
  handlers = [redirect, serve({ bytes: 50_000, etag: '"host-a"' }), redirect, serve({ etag: '"host-a"' })];
  const result = await fetchFile();
  expect(result.isHashVerified).toBe(true);
  expect(requests[3].range).toBe("bytes=50000-");
  expectWhole();
});

test("redirects without end and to other protocols are refused", async () => {
  handlers = [(_, response) => void response.writeHead(302, { location: "/again" }).end()];
  await expect(fetchFile()).rejects.toThrow(/more than 10 redirects/);
  handlers = [(_, response) => void response.writeHead(302, { location: "file:///etc/passwd" }).end()];
  await expect(fetchFile()).rejects.toThrow(/redirect to file:/);
});

test("a full disk is noticed before the first byte", async () => {
  handlers = [serve()];
  const freeBytes = async () => 1_000_000;
  await expect(fetchFile({}, { freeBytes })).rejects.toMatchObject({
    code: "io",
    message: expect.stringMatching(/976\.56 KiB free, model\.gguf needs 195\.31 KiB/),
  });
  expect(readdirSync(folder)).toEqual([]);
});

test("a silent server counts as broken", async () => {
  handlers = [() => {}, serve()];
  await fetchFile({}, { idleTimeoutMs: 50 });
  expect(requests).toHaveLength(2);
  expectWhole();
});

test("a file that is there is kept: done when its size is right, refused otherwise, replaced with force", async () => {
  writeFileSync(path(), CONTENT);
  handlers = [serve()];
  expect(await fetchFile({ sizeBytes: CONTENT.length })).toMatchObject({ wasThere: true });
  expect(requests).toHaveLength(0);
  writeFileSync(path(), "old");
  await expect(fetchFile({ sizeBytes: CONTENT.length })).rejects.toThrow(
    /with 3 bytes instead of 200000; add --force/,
  );
  await expect(fetchFile()).rejects.toThrow(UsageError);
  expect(readFileSync(path(), "utf8")).toBe("old");
  await fetchFile({}, { force: true });
  expectWhole();
});
