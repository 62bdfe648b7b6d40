// POST /v1/responses. Reasoning goes out as a summary where the client asked for one, else as reasoning text;
// `encrypted_content` carries it where the client asked for that.
import type { Message } from "../../template/conversation.ts";
import type { CollectedAnswer } from "../answer-events.ts";
import type { ResponseStore } from "../response-store.ts";
import { ResponseShapes } from "./openai-response-shapes.ts";
import { ResponseStream } from "./openai-response-stream.ts";
import { parseResponsesBody, responsesRequest } from "./openai-responses-request.ts";
import { COMMENT, EVENT_STREAM, type WireJob } from "./wire.ts";

/** A checked responses request. Throws `ApiError`. */
export function responsesJob(body: unknown, store: ResponseStore): WireJob {
  const parsed = parseResponsesBody(body);
  const { previous_response_id: previousId } = parsed;
  const { request, messages } = responsesRequest(parsed, previousId ? store.get(previousId) : []);
  const response = new ResponseShapes(parsed);
  const remember = (answer: CollectedAnswer) => {
    if (parsed.store !== false) store.put(response.id, [...messages, assistantOf(answer)]);
  };
  let stream: ResponseStream | undefined;
  return {
    request,
    isStream: parsed.stream === true,
    frames: (events, start) => {
      stream = new ResponseStream(response, start, remember);
      return stream.frames(events);
    },
    failure: (error) => stream?.failed(error) ?? "",
    answer: (answer, start) => {
      remember(answer);
      return response.whole(answer, start);
    },
    keepAlive: COMMENT,
    contentType: EVENT_STREAM,
  };
}

function assistantOf({ content, reasoning, calls }: CollectedAnswer): Message {
  const toolCalls = calls.map(({ id, name, argumentsJson }) => ({ id, name, arguments: argumentsJson }));
  return { role: "assistant", content, reasoning, toolCalls };
}
