// What a wire is: one API's request into a job, and the answer's events into that API's shapes.
import type { AnswerEvent, CollectedAnswer } from "../answer-events.ts";
import type { ApiError } from "../api-error.ts";
import type { ConversationRequest } from "../conversation-request.ts";

/** What a job knows when its answer starts. */
export interface AnswerStart {
  promptTokens: number;
  /** The model's name in answers. */
  modelId: string;
  /** When the request came, seconds since 1970. */
  createdSeconds: number;
}

/** One request of one API. */
export interface WireJob {
  request: ConversationRequest;
  isStream: boolean;
  /** The stream's pieces; ends after the last event. Errors of `events` are passed on: `failure` frames follow. */
  frames(events: AsyncIterable<AnswerEvent>, start: AnswerStart): AsyncGenerator<string, void>;
  /** The stream's last pieces when it breaks off. */
  failure(error: ApiError): string;
  /** The body of an answer that is not streamed. */
  answer(answer: CollectedAnswer, start: AnswerStart): object;
  /** Sent when nothing else has been for a while. */
  keepAlive: string;
  contentType: string;
}

/** The content types of streams. */
export const EVENT_STREAM = "text/event-stream; charset=utf-8";
/** One JSON object a line. */
export const JSON_LINES = "application/x-ndjson";

/** A server-sent event with a name. */
export function namedEvent(name: string, data: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A server-sent event without a name. */
export function dataEvent(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

/** A comment: readers skip it. */
export const COMMENT = ": keep-alive\n\n";
