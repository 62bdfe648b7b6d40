// Every API that the server speaks.
import type { AddRoutes } from "../app.ts";
import { anthropicRoutes } from "./anthropic-routes.ts";
import { documentRoute } from "./document-route.ts";
import { ollamaRoutes } from "./ollama-routes.ts";
import { openAiRoutes } from "./openai-routes.ts";
import { pageRoutes } from "./page-routes.ts";
import { serviceRoutes } from "./service-routes.ts";

/** For `createApp`. */
export const ALL_ROUTES: readonly AddRoutes[] = [
  openAiRoutes,
  anthropicRoutes,
  ollamaRoutes,
  serviceRoutes,
  documentRoute,
  pageRoutes,
];
