// Frames to a streamed response: headers at once, something at least every few seconds, nothing read ahead of a slow
// client, and the work ended when the client is gone.
import { KEEP_ALIVE_MS, MAX_STALL_MS } from "./limits.ts";

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
  let stall: NodeJS.Timeout | undefined;
  const end = () => {
    clearTimeout(stall);
    options.abort();
    void source.return().catch(() => {});
  };
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(stall);
        const { value, done } = await source.next();
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
