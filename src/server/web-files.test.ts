import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { testServer } from "../../test/fixtures/test-server.ts";
import { readWebFiles } from "./web-files.ts";

const FOLDER = join(import.meta.dirname, "web");
const { app } = testServer({ apiKeys: ["k"] });

describe("the pages", () => {
  it("are sent without a key, with a policy that allows nothing from elsewhere", async () => {
    for (const path of ["/", "/docs", "/web/app.js", "/web/style.css", "/web/icon.svg"]) {
      const response = await app.request(path);
      expect(response.status, path).toBe(200);
      const policy = response.headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("script-src 'self'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      expect(response.headers.get("x-content-type-options")).toBe("nosniff");
      expect(response.headers.get("referrer-policy")).toBe("no-referrer");
    }
    expect((await app.request("/")).headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect((await app.request("/web/app.js")).headers.get("content-type")).toMatch(/^text\/javascript/);
  });

  it("cost a browser that has them 304 and no bytes", async () => {
    const etag = (await app.request("/")).headers.get("etag") ?? "";
    expect(etag).toMatch(/^"[\w-]{22}"$/);
    const again = await app.request("/", { headers: { "if-none-match": `"other", W/${etag}` } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    expect(again.headers.get("etag")).toBe(etag);
    expect((await app.request("/", { headers: { "if-none-match": '"other"' } })).status).toBe(200);
    const head = await app.request("/", { method: "HEAD" });
    expect([head.status, await head.text(), head.headers.get("etag")]).toEqual([200, "", etag]);
  });

  it("hold nothing but their own files", async () => {
    for (const path of [
      "/web/nothing.js",
      "/web/..%2fapp.ts",
      "/web/%2e%2e%2fapp.ts",
      "/web/sub/app.js",
      "/docs/x",
    ]) {
      expect((await app.request(path)).status, path).toBeGreaterThanOrEqual(400);
    }
    expect((await app.request("/openapi.json")).status).toBe(401);
  });

  it("name only files that exist, and none of another server", () => {
    const files = readWebFiles(FOLDER);
    for (const [name, { body }] of files) {
      const text = new TextDecoder().decode(body);
      for (const [, asset] of text.matchAll(/(?:src|href)="\/web\/([^"]+)"|from "\.\/([^"]+)"/g)) {
        if (asset !== undefined) expect(files.has(asset), `${name} names ${asset}`).toBe(true);
      }
      for (const [, imported] of text.matchAll(/(?:from|import) "\.\/([^"]+)"/g)) {
        expect(files.has(imported), `${name} imports ${imported}`).toBe(true);
      }
      if (name.endsWith(".html")) expect(text).not.toMatch(/(?:src|href)="(?:https?:)?\/\//);
      if (name.endsWith(".css")) expect(text).not.toMatch(/url\(|@import/);
      expect(text).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(/);
    }
  });
});
