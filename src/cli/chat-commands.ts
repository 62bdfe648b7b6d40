// The slash commands of the chat. Each is one row of the table, which also makes the help.
import { writeFileSync } from "node:fs";
import { UsageError } from "../core/errors.ts";
import { formatBytes } from "../core/units.ts";
import type { Chat } from "./chat-state.ts";
import { readTextFile } from "./run-context.ts";

/** What the chat does after a command: go on, leave, or answer a prompt. */
export type CommandOutcome = "done" | "quit" | { prompt: string };

interface ChatCommand {
  usage: string;
  help: string;
  run(chat: Chat, argument: string): CommandOutcome | Promise<CommandOutcome>;
}

const COMMANDS: Readonly<Record<string, ChatCommand>> = {
  "/help": { usage: "/help", help: "list the commands", run: printHelp },
  "/think": { usage: "/think", help: "think before answering", run: (chat) => setThinking(chat, "on") },
  "/think-max": {
    usage: "/think-max",
    help: "think with the largest effort",
    run: (chat) => setThinking(chat, "max"),
  },
  "/nothink": { usage: "/nothink", help: "answer at once", run: (chat) => setThinking(chat, "off") },
  "/ctx": { usage: "/ctx N", help: "use a context of N tokens; the chat is evaluated again", run: setCtx },
  "/read": { usage: "/read FILE", help: "send the text of a file as your turn", run: readPrompt },
  "/save": { usage: "/save FILE", help: "write the chat as JSON", run: saveChat },
  "/status": { usage: "/status", help: "model, context, memory", run: printStatus },
  "/quit": { usage: "/quit", help: "leave (also /exit, Ctrl+D)", run: () => "quit" },
  "/exit": { usage: "/exit", help: "leave", run: () => "quit" },
};

/** Runs `line`, which starts with a slash. Throws `usage` on an unknown command or a bad argument. */
export async function runChatCommand(chat: Chat, line: string): Promise<CommandOutcome> {
  const [, name, argument] = /^(\S+)\s*(.*)$/s.exec(line.trim())!;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command === undefined) {
    throw new UsageError(`unknown command ${name}; there are ${Object.keys(COMMANDS).join(" ")}`);
  }
  const takesArgument = command.usage.includes(" ");
  if (takesArgument !== (argument !== "")) throw new UsageError(`expected ${command.usage}`);
  return command.run(chat, argument);
}

const say = (chat: Chat, line: string) => void chat.context.terminal.err.write(`${line}\n`);

function printHelp(chat: Chat): CommandOutcome {
  for (const { usage, help } of Object.values(COMMANDS)) say(chat, `  ${usage.padEnd(12)} ${help}`);
  return "done";
}

function setThinking(chat: Chat, thinking: Chat["thinking"]): CommandOutcome {
  chat.thinking = thinking;
  say(chat, `thinking: ${thinking}`);
  return "done";
}

async function setCtx(chat: Chat, argument: string): Promise<CommandOutcome> {
  const ctxTokens = Number(argument);
  if (!/^\d{1,9}$/.test(argument) || ctxTokens < 1)
    throw new UsageError("expected /ctx N with a number of tokens");
  chat.context.checkCtx(ctxTokens, "/ctx");
  chat.context.checkMemory(ctxTokens);
  await chat.engine.resize(ctxTokens);
  say(chat, `context: ${ctxTokens} tokens`);
  return "done";
}

function readPrompt(_chat: Chat, path: string): CommandOutcome {
  const prompt = readTextFile(path, "/read");
  if (prompt.trim() === "") throw new UsageError(`/read ${path}: the file is empty`);
  return { prompt };
}

function saveChat(chat: Chat, path: string): CommandOutcome {
  const document = { model: chat.context.model.path, messages: chat.messages };
  try {
    writeFileSync(path, `${JSON.stringify(document, null, 2)}\n`);
  } catch (error) {
    throw new UsageError(`/save ${path}: ${(error as Error).message}`);
  }
  say(chat, `saved ${chat.messages.length} messages to ${path}`);
  return "done";
}

async function printStatus(chat: Chat): Promise<CommandOutcome> {
  const stats = await chat.engine.stats();
  const { info } = chat.engine;
  say(chat, `model     ${info.spec.name} (${chat.context.model.path})`);
  say(chat, `backend   ${info.backendDescription}`);
  say(chat, `context   ${stats.sessionTokens} of ${stats.ctxTokens} tokens`);
  say(chat, `thinking  ${chat.thinking}`);
  const { weightBytes, kvBytes, scratchBytes } = stats;
  const [weights, kv, scratch] = [weightBytes, kvBytes, scratchBytes].map(formatBytes);
  say(chat, `memory    weights ${weights}, KV ${kv}, scratch ${scratch}`);
  return "done";
}
