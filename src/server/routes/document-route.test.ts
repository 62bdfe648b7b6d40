import { expect, it } from "vitest";
import { type Json, testServer } from "../../../test/fixtures/test-server.ts";
import { EXAMPLES } from "./document-examples.ts";

/** Fields with their types, without values; lists by their first entry. */
function shapeOf(value: Json): Json {
  if (value === null || typeof value !== "object") return value === null ? "null" : typeof value;
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  const names = Object.keys(value).sort();
  return Object.fromEntries(names.map((name) => [name, shapeOf(value[name])]));
}

it("answers every documented example in the documented shape", async () => {
  const { app, post } = testServer({
    scripts: [{ tokens: ["Easy", ".", "</think>", "Paris", "."], reusedTokens: 3 }],
    model: { id: "model", fileBytes: 1 },
  });
  const document: Json = await (await app.request("/openapi.json")).json();
  expect(Object.keys(document.paths).sort()).toEqual(Object.keys(EXAMPLES).sort());
  for (const [path, methods] of Object.entries<Json>(document.paths)) {
    const { get, post: posted } = methods;
    const request = posted?.requestBody.content["application/json"].example;
    const response = get ? await app.request(path.replace("{id}", "model")) : await post(path, request);
    expect(response.status, path).toBe(200);
    const documented = (get ?? posted).responses["200"].content;
    const [type] = Object.keys(documented);
    expect(response.headers.get("content-type"), path).toContain(type);
    if (type !== "application/json") continue;
    expect(shapeOf(await response.json()), path).toEqual(shapeOf(documented[type].example));
    const fields = Object.keys(documented[type].schema.properties);
    expect(fields, path).toEqual(Object.keys(documented[type].example));
  }
});
