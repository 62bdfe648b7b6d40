// The application on a port: Node's HTTP server with limits against slow, large and ambiguous requests.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";
import { UsageError } from "../core/errors.ts";
import {
  HEADERS_TIMEOUT_MS,
  IDLE_CONNECTION_MS,
  MAX_CONNECTIONS,
  MAX_HEADER_BYTES,
  REQUEST_TIMEOUT_MS,
  TIMEOUT_CHECK_MS,
} from "./limits.ts";

/** Where to listen; tests shorten the times. */
export interface ListenOptions {
  host: string;
  /** 0 takes a free port. */
  port: number;
  headersTimeoutMs?: number;
  requestTimeoutMs?: number;
  timeoutCheckMs?: number;
}

/** A listening server. */
export interface HttpServer {
  /** `http://127.0.0.1:8000`. */
  url: string;
  port: number;
  /** Takes no new connections and closes idle ones; resolves when the last has ended. */
  stop(): Promise<void>;
  /** Closes every connection and takes no new ones. */
  destroy(): void;
}

/** Listens. Throws `usage` when the address cannot be taken. */
export async function listen(app: Hono, options: ListenOptions): Promise<HttpServer> {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS,
      requestTimeout: options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: options.timeoutCheckMs ?? TIMEOUT_CHECK_MS,
      keepAliveTimeout: IDLE_CONNECTION_MS,
      // Bare line feeds, two lengths and the like are refused: proxies may read them differently.
      insecureHTTPParser: false,
      requireHostHeader: true,
      noDelay: true,
    },
    getRequestListener(app.fetch, { overrideGlobalObjects: false }),
  );
  server.maxConnections = MAX_CONNECTIONS;
  // An answer may take hours; what it may not do is stall, which the stream watches itself.
  server.timeout = 0;
  await bind(server, options);
  const { port } = server.address() as AddressInfo;
  const host = options.host.includes(":") ? `[${options.host}]` : options.host;
  return {
    url: `http://${host}:${port}`,
    port,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
    destroy: () => {
      server.close(); // or the port would keep a process alive whose model could not be loaded
      server.closeAllConnections();
    },
  };
}

function bind(server: Server, { host, port }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const reasons: Readonly<Record<string, string>> = {
        EADDRINUSE: "the port is in use by another program; choose another with --port",
        EACCES: "no permission to use this port; choose one above 1023 with --port",
        EADDRNOTAVAIL: "this machine does not have this address; choose another with --host",
        ENOTFOUND: "no such host name; choose another with --host",
      };
      reject(
        new UsageError(`cannot listen on ${host}:${port}: ${reasons[error.code ?? ""] ?? error.message}`),
      );
    });
    server.listen({ host, port }, resolve);
  });
}
