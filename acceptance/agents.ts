// How each agent is set up and run without a person: its files, its environment, its command lines. What is here is what
// docs/clients.md tells people to write.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Name of the model in every agent's settings. */
export const MODEL = "deepseek-v4-flash";
/** Context that the agents are told of, and that the server has. */
export const CTX_TOKENS = 131_072;
const MAX_OUTPUT_TOKENS = 32_768;

/** Where one run happens. */
export interface Place {
  /** The server, without `/v1`. */
  url: string;
  apiKey: string;
  /** An empty home folder. */
  home: string;
}

/** One agent with one way to reach the server. */
export interface Agent {
  name: string;
  /** Folder of its package below `acceptance/`, and the program in it. */
  packageFolder: string;
  program: string;
  /** The API that it speaks here. */
  api: string;
  env(place: Place): Record<string, string>;
  /** Files below the home folder: path to content. */
  files(place: Place): Record<string, string>;
  /** Arguments of a first question, or of one that goes on with the last session. */
  args(place: Place, question: string, isContinued: boolean): string[];
}

const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`;

const codexConfig = ({ url }: Place) => `model = "${MODEL}"
model_provider = "ds4"
model_context_window = ${CTX_TOKENS}
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.ds4]
name = "ds4"
base_url = "${url}/v1"
wire_api = "responses"
env_key = "DS4_API_KEY"
`;

const codex: Agent = {
  ...{ name: "codex", packageFolder: "node_modules/@openai/codex", program: "node_modules/.bin/codex" },
  ...{ api: "responses" },
  env: ({ apiKey }) => ({ DS4_API_KEY: apiKey }),
  files: (place) => ({ ".codex/config.toml": codexConfig(place) }),
  args: (_, question, isContinued) => [
    "exec",
    ...(isContinued ? ["resume", "--last"] : []),
    ...["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", question],
  ],
};

const claude: Agent = {
  ...{ name: "claude", packageFolder: "node_modules/@anthropic-ai/claude-code" },
  ...{ program: "node_modules/.bin/claude", api: "messages" },
  env: ({ url, apiKey }) => ({
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_AUTH_TOKEN: apiKey,
    ANTHROPIC_MODEL: MODEL,
    ANTHROPIC_SMALL_FAST_MODEL: MODEL,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_ATTRIBUTION_HEADER: "0",
    CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(CTX_TOKENS),
    CLAUDE_CODE_MAX_OUTPUT_TOKENS: String(MAX_OUTPUT_TOKENS),
  }),
  files: () => ({}),
  args: (_, question, isContinued) => [
    ...(isContinued ? ["-c"] : []),
    ...["-p", question, "--allowedTools", "Bash", "Write"],
  ],
};

function pi(name: string, api: string, path: string): Agent {
  return {
    ...{ name, packageFolder: "node_modules/@mariozechner/pi-coding-agent", program: "node_modules/.bin/pi" },
    ...{ api },
    env: () => ({ PI_OFFLINE: "1", PI_TELEMETRY: "0" }),
    files: ({ url, apiKey }) => {
      const model = {
        ...{ id: MODEL, name: "DeepSeek V4 Flash", reasoning: true, input: ["text"] },
        ...{ contextWindow: CTX_TOKENS, maxTokens: MAX_OUTPUT_TOKENS },
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
        ...(api === "openai-completions" ? { compat: { thinkingFormat: "deepseek" } } : {}),
      };
      const provider = { baseUrl: `${url}${path}`, apiKey, api, models: [model] };
      return { ".pi/agent/models.json": json({ providers: { ds4: provider } }) };
    },
    args: (_, question, isContinued) => [
      ...(isContinued ? ["-c"] : []),
      ...["-p", "--provider", "ds4", "--model", MODEL, question],
    ],
  };
}

const opencode: Agent = {
  ...{ name: "opencode", packageFolder: "opencode/node_modules/opencode-ai" },
  ...{ program: "opencode/node_modules/.bin/opencode", api: "chat completions" },
  env: () => ({ OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_AUTOUPDATE: "1" }),
  files: ({ url, apiKey }) => ({
    ".config/opencode/opencode.json": json({
      $schema: "https://opencode.ai/config.json",
      ...{ autoupdate: false, share: "disabled" },
      model: `ds4/${MODEL}`,
      provider: {
        ds4: {
          ...{ npm: "@ai-sdk/openai-compatible", name: "ds4", options: { baseURL: `${url}/v1`, apiKey } },
          models: {
            [MODEL]: {
              ...{ name: "DeepSeek V4 Flash", reasoning: true, tool_call: true },
              limit: { context: CTX_TOKENS, output: MAX_OUTPUT_TOKENS },
            },
          },
        },
      },
    }),
  }),
  args: (_, question, isContinued) => [
    ...["run", ...(isContinued ? ["-c"] : [])],
    ...["-m", `ds4/${MODEL}`, question],
  ],
};

/** All of them, in the order they are run. */
export const AGENTS: readonly Agent[] = [
  codex,
  claude,
  pi("pi", "openai-completions", "/v1"),
  pi("pi-anthropic", "anthropic-messages", ""),
  opencode,
];

/** Writes an agent's files. */
export function setUp(agent: Agent, place: Place): void {
  for (const [path, content] of Object.entries(agent.files(place))) {
    const target = join(place.home, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, content);
  }
}

/** Version of the installed package, or undefined. */
export function installedVersion({ packageFolder }: Agent): string | undefined {
  try {
    return JSON.parse(readFileSync(join(import.meta.dirname, packageFolder, "package.json"), "utf8")).version;
  } catch {
    return undefined;
  }
}
