// The files of the web page: read once into memory, each with a tag of its content.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";

/** One file as it is sent. */
export interface WebFile {
  body: Uint8Array<ArrayBuffer>;
  contentType: string;
  /** Strong, of the content: browsers ask with it and get 304 while it holds. */
  etag: string;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

/**
 * What pages of this server may do: load its own files, talk to it, nothing else. Scripts cannot turn text into markup
 * either (trusted types without any policy), so a model's answer stays text whatever it says.
 */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** Paths that browsers open before anyone could give a key: the pages and their files, the same for everyone. */
export function isPagePath(path: string): boolean {
  return path === "/" || path === "/docs" || path.startsWith("/web/");
}

/** Reads every file of `folder` whose type is known, by name. */
export function readWebFiles(folder: string): ReadonlyMap<string, WebFile> {
  const names = readdirSync(folder).filter((name) => extname(name) in TYPES);
  return new Map(
    names.map((name) => {
      const body = new Uint8Array(readFileSync(join(folder, name)));
      const hash = createHash("sha256").update(body).digest("base64url").slice(0, 22);
      return [name, { body, contentType: TYPES[extname(name)], etag: `"${hash}"` }];
    }),
  );
}
