// Checks a body against a schema and says, in one sentence, what is wrong where.
import type { z } from "zod";
import { ApiError } from "../api-error.ts";

type Issue = z.core.$ZodIssue;

/** The checked body. Throws `ApiError` with the path and the reason of the first fault. */
export function parseBody<S extends z.ZodType>(schema: S, body: unknown): z.output<S> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const { path, reason } = describe(result.error.issues[0], []);
  const param = pathText(path);
  const message = param === "" ? `the body: ${reason}` : `${param}: ${reason}`;
  throw new ApiError("invalid-request", message, param === "" ? {} : { param });
}

/** `messages[1].content`. */
export function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((key, index) =>
      typeof key === "number" ? `[${key}]` : index === 0 ? String(key) : `.${String(key)}`,
    )
    .join("");
}

function describe(issue: Issue, outer: readonly PropertyKey[]): { path: PropertyKey[]; reason: string } {
  const path = [...outer, ...issue.path];
  if (issue.code !== "invalid_union") return { path, reason: reasonOf(issue) };
  // The alternative that got furthest is the one that was meant; none did if all failed at the top.
  const deepest = issue.errors
    .map((issues) => issues[0])
    .filter((inner) => inner !== undefined)
    .sort((a, b) => depth(b) - depth(a));
  if (deepest.length > 0 && depth(deepest[0]) > 0) return describe(deepest[0], path);
  const reasons = deepest.map((inner) => reasonOf(inner));
  return { path, reason: reasons.length > 0 ? [...new Set(reasons)].join("; or ") : issue.message };
}

function depth(issue: Issue): number {
  return issue.path.length;
}

function reasonOf(issue: Issue): string {
  const message = issue.message.replace(/^Invalid (input|option): /, "");
  return message.replace(/, received /, ", got ");
}
