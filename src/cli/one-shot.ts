// `ds4 -p TEXT`: one answer. stdout carries the answer alone (or one JSON document), stderr everything else.
import type { FinishEvent } from "../session/generate.ts";
import { AnswerPrinter } from "./answer-printer.ts";
import { EXIT } from "./exit-codes.ts";
import { interruptible, type RunContext } from "./run-context.ts";
import { thinkingOf } from "./run-options.ts";
import { summaryJson, summaryLine } from "./summary.ts";
import { note } from "./terminal.ts";

/** Answers the prompt; returns the exit code. */
export async function runOneShot(context: RunContext, text: string): Promise<number> {
  const { flags, terminal, bar } = context;
  const thinking = thinkingOf(flags);
  const tokens = context.promptTokens(text, thinking);
  const engine = await context.openEngine();
  try {
    return await interruptible(async (signal) => {
      // With --json the text is collected, not shown; thinking and content both end in the document.
      const silent = {
        ...terminal,
        quiet: true,
        out: { write: () => true } as unknown as typeof terminal.out,
      };
      const printer = new AnswerPrinter(flags.json ? silent : terminal, false);
      let finish: FinishEvent | undefined;
      const request = context.request(tokens, thinking);
      for await (const event of engine.generate(request, { signal, onProgress: bar.listener })) {
        bar.clear();
        printer.take(event);
        if (event.kind === "finish") finish = event;
      }
      printer.finish();
      const stats = await engine.stats();
      if (flags.json) {
        const { finishReason, stopString } = finish!;
        const answer = {
          content: printer.text.content,
          thinking: printer.text.thinking,
          finishReason,
          stopString,
          seed: String(context.sampling.seed),
          model: context.model.path,
          backend: engine.info.backendName,
          ...summaryJson(finish!, stats, engine.info),
        };
        terminal.out.write(`${JSON.stringify(answer, null, 2)}\n`);
      } else {
        if (finish!.finishReason === "length")
          note(terminal, "ds4: cut at the token limit or the end of the context");
        note(terminal, `ds4: ${summaryLine(finish!, stats, engine.info)}`);
      }
      return finish!.finishReason === "cancelled" ? EXIT.interrupted : EXIT.ok;
    });
  } finally {
    await engine.close();
  }
}
