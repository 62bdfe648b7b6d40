// A request's body to JSON, within limits, with messages that say where it is wrong.
import { parseJson } from "../template/json-python.ts";
import { parseSpelledJson } from "../template/number-spelling.ts";
import { ApiError } from "./api-error.ts";
import { MAX_BODY_BYTES, MAX_JSON_DEPTH } from "./limits.ts";

/** Reads and parses. Throws `ApiError`: `too-large`, `invalid-request` with the position, `cancelled` for a cut body. */
export async function readJsonBody(request: Request): Promise<unknown> {
  const encoding = request.headers.get("content-encoding");
  if (encoding !== null && encoding !== "identity") {
    throw new ApiError(
      "invalid-request",
      `content-encoding ${encoding} is not supported: send the body as it is`,
    );
  }
  const text = decodeUtf8(await readBytes(request));
  if (text.trim() === "") throw new ApiError("invalid-request", "the body is empty: expected a JSON object");
  checkDepth(text);
  try {
    return parseSpelledJson(text);
  } catch (error) {
    throw new ApiError("invalid-request", `the body is not valid JSON: ${whereWrong(text, error as Error)}`);
  }
}

async function readBytes(request: Request): Promise<Uint8Array> {
  const declared = Number(request.headers.get("content-length") ?? 0);
  if (declared > MAX_BODY_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  if (request.body === null) return new Uint8Array();
  try {
    for await (const chunk of request.body) {
      bytes += chunk.length;
      if (bytes > MAX_BODY_BYTES) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError("cancelled", "the client left before its request was whole", {}, { cause: error });
  }
  return Buffer.concat(chunks);
}

function tooLarge(): ApiError {
  return new ApiError("too-large", `the body is too large: at most ${MAX_BODY_BYTES} bytes are accepted`);
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ApiError("invalid-request", "the body is not valid UTF-8");
  }
}

/** Deep nesting exhausts the stack of whatever walks it, so it is counted before anything is parsed. */
function checkDepth(text: string): void {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (inString) {
      if (code === 0x5c) at++;
      else if (code === 0x22) inString = false;
    } else if (code === 0x22) inString = true;
    else if (code === 0x7b || code === 0x5b) {
      if (++depth > MAX_JSON_DEPTH) {
        throw new ApiError(
          "invalid-request",
          `the body is nested deeper than ${MAX_JSON_DEPTH} levels at position ${at}`,
        );
      }
    } else if (code === 0x7d || code === 0x5d) depth--;
  }
}

// V8 leaves the position out of some messages and quotes the body in others; the other parser always has it.
function whereWrong(text: string, error: Error): string {
  if (/at position \d+/.test(error.message)) return error.message;
  try {
    parseJson(text);
  } catch (other) {
    return (other as Error).message;
  }
  return error.message;
}
