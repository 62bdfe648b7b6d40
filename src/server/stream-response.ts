// Frames to a streamed response: headers at once, something at least every few seconds, nothing read ahead of a slow
// client, and the work ended when the client is gone.
import { KEEP_ALIVE_MS, MAX_STALL_MS, WRITE_GAP_MS } from "./limits.ts";

/** How a stream behaves. */
export interface StreamOptions {
  contentType: string;
  keepAlive: string;
  /** Silence after which `keepAlive` is sent. Default `KEEP_ALIVE_MS`. */
  keepAliveMs?: number;
  /** Ends the work; called when the client leaves or reads nothing for too long. */
  abort(): void;
}

const TICK = Symbol("tick");

/** The response. `frames` must not throw: failures are frames of their own. */
export function streamResponse(frames: AsyncGenerator<string, void>, options: StreamOptions): Response {
  const encoder = new TextEncoder();
  const source = withKeepAlive(frames, options.keepAlive, options.keepAliveMs ?? KEEP_ALIVE_MS);
  const writes = joinFrames(source);
  let stall: NodeJS.Timeout | undefined;
  const end = () => {
    clearTimeout(stall);
    options.abort();
    void writes.return().catch(() => {});
    void source.return().catch(() => {});
  };
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(stall);
        const { value, done } = await writes.next();
        if (done) {
          controller.close();
          return;
        }
        controller.enqueue(encoder.encode(value));
        stall = setTimeout(() => {
          end();
          controller.error(new Error("the client reads nothing"));
        }, MAX_STALL_MS);
        stall.unref();
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
  const headers = {
    "content-type": options.contentType,
    "cache-control": "no-cache, no-transform",
    // Proxies would otherwise collect what should arrive at once.
    "x-accel-buffering": "no",
  };
  return new Response(body, { headers });
}

/**
 * What is written at once: a frame that comes `WRITE_GAP_MS` after the last write goes out by itself and at once; those
 * that come faster go out together when that time is over. A write costs more than all else that is done for a token.
 */
async function* joinFrames(frames: AsyncGenerator<string, void>): AsyncGenerator<string, void> {
  let lastMs = Number.NEGATIVE_INFINITY;
  let next = frames.next();
  for (;;) {
    const first = await next;
    if (first.done) return;
    let text = first.value;
    next = frames.next();
    for (;;) {
      const waitMs = lastMs + WRITE_GAP_MS - performance.now();
      if (waitMs <= 0) break;
      const more = await within(next, waitMs);
      if (more === TICK || more.done) break;
      text += more.value;
      next = frames.next();
    }
    lastMs = performance.now();
    yield text;
  }
}

async function* withKeepAlive(
  frames: AsyncGenerator<string, void>,
  keepAlive: string,
  intervalMs: number,
): AsyncGenerator<string, void> {
  let next = frames.next();
  try {
    for (;;) {
      const result = await within(next, intervalMs);
      if (result === TICK) {
        yield keepAlive;
        continue;
      }
      if (result.done) return;
      yield result.value;
      next = frames.next();
    }
  } finally {
    void frames.return().catch(() => {});
  }
}

async function within<T>(promise: Promise<T>, ms: number): Promise<T | typeof TICK> {
  let timer: NodeJS.Timeout | undefined;
  const tick = new Promise<typeof TICK>((resolve) => {
    timer = setTimeout(resolve, ms, TICK);
  });
  try {
    return await Promise.race([promise, tick]);
  } finally {
    clearTimeout(timer);
  }
}
