// Every API that the server speaks.
import type { AddRoutes } from "../app.ts";
import { anthropicRoutes } from "./anthropic-routes.ts";
import { openAiRoutes } from "./openai-routes.ts";

/** For `createApp`. */
export const ALL_ROUTES: readonly AddRoutes[] = [openAiRoutes, anthropicRoutes];
