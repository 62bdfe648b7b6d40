// The pages for people: chat at `/`, the reference at `/docs`, their files under `/web/`.
import { join } from "node:path";
import type { Context } from "hono";
import type { RouteTools } from "../app.ts";
import { PAGE_HEADERS, readWebFiles, type WebFile } from "../web-files.ts";

const FOLDER = join(import.meta.dirname, "..", "web");

/** Adds `/`, `/docs` and `/web/{file}`. */
export function pageRoutes({ app }: RouteTools): void {
  let files: ReadonlyMap<string, WebFile> | undefined;
  const send = (c: Context, name: string) => {
    files ??= readWebFiles(FOLDER);
    const file = files.get(name);
    if (file === undefined) return c.notFound();
    // Asked again at every load, so that a page never mixes files of two versions.
    const headers = { ...PAGE_HEADERS, etag: file.etag, "cache-control": "no-cache" };
    if (hasTag(c.req.header("if-none-match"), file.etag)) return c.body(null, 304, headers);
    return c.body(file.body, 200, { ...headers, "content-type": file.contentType });
  };
  app.get("/", (c) => send(c, "index.html"));
  app.get("/docs", (c) => send(c, "docs.html"));
  app.get("/web/:name", (c) => send(c, c.req.param("name")));
}

function hasTag(header: string | undefined, etag: string): boolean {
  const tags = (header ?? "").split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  return tags.includes(etag) || tags.includes("*");
}
