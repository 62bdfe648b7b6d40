// The reference, made from the server's own /openapi.json.
import { apiKey, request, ServerError } from "./api.js";
import { byId, el, icon } from "./dom.js";
import { codeNode } from "./markdown.js";
import { inlineNodes } from "./markdown-inline.js";
import { schemaFields, typeText } from "./schema-view.js";

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{ method: string, path: string, id: string, group: string, operation: Json }} Endpoint
 */

byId("toggle-theme").append(icon("theme"));
await show();

async function show() {
  const about = byId("about");
  try {
    const document = await (await request("/openapi.json")).json();
    draw(document);
  } catch (error) {
    about.textContent = error instanceof Error ? error.message : String(error);
    const isLocked = error instanceof ServerError && error.status === 401;
    byId("endpoints").replaceChildren(isLocked ? keyForm() : retryButton());
  }
}

function retryButton() {
  return el("button", { type: "button", class: "button", on: { click: show } }, icon("retry"), "Try again");
}

function keyForm() {
  const input = el("input", { type: "password", autocomplete: "off" });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    apiKey.set(input.value.trim());
    show();
  };
  return el(
    "form",
    { class: "key-form", on: { submit } },
    el("label", {}, "API key", input),
    el("button", { type: "submit", class: "button" }, "Use key"),
  );
}

/** @param {Json} document */
function draw(document) {
  byId("about").textContent =
    `ds4-server ${document.info.version}, OpenAPI ${document.openapi}. Fields that are not listed are ignored; wrong types are refused with 400 and a message that names the field.`;
  const endpoints = endpointsOf(document);
  const groups = Map.groupBy(endpoints, ({ group }) => group);
  byId("endpoints").replaceChildren(
    ...[...groups].map(([group, members]) =>
      el(
        "section",
        { "aria-label": group },
        el("h2", { class: "group" }, group),
        ...members.map(endpointView),
      ),
    ),
  );
  byId("contents").replaceChildren(
    ...[...groups].map(([group, members]) =>
      el(
        "li",
        {},
        el("span", { class: "contents-group" }, group),
        el(
          "ul",
          {},
          ...members.map(({ id, method, path }) =>
            el("li", {}, el("a", { href: `#${id}` }, methodBadge(method), path)),
          ),
        ),
      ),
    ),
  );
  const target = location.hash === "" ? null : window.document.getElementById(location.hash.slice(1));
  target?.scrollIntoView();
}

/**
 * @param {Json} document
 * @returns {Endpoint[]}
 */
function endpointsOf({ paths }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(/** @type {Json} */ (methods)).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      id: `${method}${path.replace(/[^\w]+/g, "-")}`,
      group: operation.tags?.[0] ?? "Endpoints",
      operation,
    })),
  );
}

/** @param {string} method */
function methodBadge(method) {
  return el("span", { class: `method method-${method.toLowerCase()}` }, method);
}

/** @param {Endpoint} endpoint */
function endpointView(endpoint) {
  const { method, path, id, operation } = endpoint;
  const content = operation.requestBody?.content?.["application/json"];
  const answer = operation.responses?.["200"]?.content ?? {};
  return el(
    "article",
    { class: "endpoint", id },
    el("h3", {}, methodBadge(method), el("a", { href: `#${id}` }, path)),
    el("p", {}, ...inlineNodes(operation.summary ?? "")),
    operation.description && el("p", { class: "hint" }, operation.description),
    operation.parameters?.length > 0 && el("h4", {}, "Parameters"),
    operation.parameters?.length > 0 && parameterList(operation.parameters),
    el("h4", {}, "Example"),
    codeNode("sh", curl(endpoint, content?.example)),
    content?.schema && el("h4", {}, "Request"),
    content?.schema && schemaFields(content.schema),
    el("h4", {}, "Responses"),
    responseTable(operation.responses ?? {}),
    ...Object.entries(answer).flatMap(([type, { schema, example }]) => [
      schema?.properties &&
        el(
          "details",
          { class: "answer-fields" },
          el("summary", {}, "Fields of the answer"),
          schemaFields(schema),
        ),
      example !== undefined &&
        codeNode(`200, ${type}`, typeof example === "string" ? example : JSON.stringify(example, null, 2)),
    ]),
  );
}

/** @param {Json[]} parameters */
function parameterList(parameters) {
  return el(
    "ul",
    { class: "schema" },
    ...parameters.map(({ name, in: place, required, schema, description }) =>
      el(
        "li",
        {},
        el(
          "div",
          { class: "field" },
          el("code", {}, name),
          el("span", { class: "type" }, `${typeText(schema ?? {})}, in the ${place}`),
          required && el("span", { class: "required" }, "required"),
        ),
        description && el("p", { class: "hint" }, description),
      ),
    ),
  );
}

/** @param {Json} responses */
function responseTable(responses) {
  const rows = Object.entries(responses).map(([status, { description }]) =>
    el("tr", {}, el("th", { scope: "row" }, status), el("td", {}, ...inlineNodes(description))),
  );
  return el(
    "div",
    { class: "table", tabIndex: 0, role: "region", "aria-label": "Responses" },
    el("table", {}, el("tbody", {}, ...rows)),
  );
}

/**
 * A command for a shell, with this server's address.
 * @param {Endpoint} endpoint
 * @param {unknown} example
 */
function curl({ method, path, operation }, example) {
  const place = operation.parameters?.reduce(
    (/** @type {string} */ text, /** @type {Json} */ { name, example: value }) =>
      text.replace(`{${name}}`, String(value ?? name.toUpperCase())),
    path,
  );
  const lines = [`curl ${location.origin}${place ?? path}`];
  const isOpen = path.startsWith("/health");
  if (apiKey.get() !== "" && !isOpen) lines.push('-H "authorization: Bearer $DS4_API_KEY"');
  if (method === "POST") {
    lines.push("-H 'content-type: application/json'");
    if (example !== undefined)
      lines.push(`-d '${JSON.stringify(example, null, 2).replaceAll("'", String.raw`'\''`)}'`);
  }
  return lines.join(" \\\n  ");
}
