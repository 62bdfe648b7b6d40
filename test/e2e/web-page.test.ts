// The chat page in a real Chromium over scripted answers: what a person does, with the keyboard and with the mouse.
import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type BrowserWindow, chromiumPath, openBrowser, openWindow } from "../fixtures/browser.ts";
import type { Script } from "../fixtures/scripted-source.ts";
import { callTokens, type Json, testHttpServer } from "../fixtures/test-server.ts";

type Server = Awaited<ReturnType<typeof testHttpServer>>;

const THINK = ["Let", " me", " see", ".", "</think>"];
const answer = (text: string, more: Partial<Script> = {}): Script => ({
  tokens: [...THINK, ...text.split(/(?<=\s)/)],
  ...more,
});

let browser: Browser;
let server: Server;
let view: BrowserWindow;
let page: Page;

/** Opens the page over a server with these scripts. */
async function start(scripts: Script[], options: Parameters<typeof testHttpServer>[0] = {}): Promise<void> {
  server = await testHttpServer({ scripts, ...options });
  await page.goto(server.url);
}

async function ask(text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
}

const lastAnswer = () => page.getByRole("article", { name: "Answer" }).last();
const finished = () => lastAnswer().locator(".facts").waitFor();

describe.skipIf(chromiumPath === undefined)("the chat page", () => {
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser.close());
  beforeEach(async () => {
    view = await openWindow(browser);
    page = view.page;
  });
  afterEach(async () => {
    await view.close();
    server.http.destroy();
    expect(view.complaints).toEqual([]);
  });

  it("streams an answer with its thinking folded, and shows tokens, cache and speed", async () => {
    await start([answer("Paris is **big**.", { tokenMs: 300, reusedTokens: 3 })]);
    await ask("What is the capital of France?");
    const thinking = lastAnswer().locator("details.thinking");
    await thinking.getByText("Thinking…").waitFor();
    expect(await thinking.getAttribute("open")).toBeNull();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await lastAnswer().getByText("Paris").waitFor();
    expect(await lastAnswer().getAttribute("aria-busy")).toBe("true");
    await finished();
    expect(await lastAnswer().locator("strong").textContent()).toBe("big");
    expect(await lastAnswer().locator(".facts").textContent()).toMatch(
      /^Prompt\d+Cached3 \(\d+ %\)Prefill[\d.,]+ t\/sAnswer8Decode[\d.,]+ t\/s$/,
    );
    await thinking.getByText(/^Thought for [\d.]+ s, 5 tokens$/).click();
    expect(await thinking.locator(".thinking-text").textContent()).toBe("Let me see.");
    expect(await page.getByRole("status").first().textContent()).not.toBe("");
    expect(await page.locator("#live").textContent()).toBe("Answer: Paris is **big**.");
  });

  it("sends the settings, and keeps them, what was typed and the conversations over a reload", async () => {
    await start([answer("Fine.")]);
    await page.getByLabel("System prompt").fill("Be brief.");
    await page.getByLabel("Temperature").fill("0.5");
    await page.getByLabel("Most tokens").fill("50");
    await page.getByLabel("Seed").fill("7");
    await page.getByLabel("Thinking").selectOption("Off");
    await ask("How are you?");
    await finished();
    expect(server.source.requests[0]).toMatchObject({
      maxTokens: 50,
      sampling: { temperature: 0.5, seed: 7n },
    });
    expect(server.prompts()[0]).toMatch(/Be brief\..*How are you\?.*<\/think>$/s);
    await page.getByRole("textbox", { name: "Message" }).fill("not sent yet");
    await page.reload();
    await lastAnswer().getByText("Fine.").waitFor();
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("not sent yet");
    expect(await page.getByLabel("Temperature").inputValue()).toBe("0.5");
    await ask("And now?");
    await expect.poll(() => server.prompts()[1]).toMatch(/How are you\?.*Fine\..*And now\?/s);
  });

  it("stops with Esc or the button, keeps what came, and answers again", async () => {
    await start([{ tokens: ["</think>", "word "], tokenMs: 20, isEndless: true }]);
    await ask("Count.");
    await lastAnswer().getByText("word word").waitFor();
    await page.keyboard.press("Escape");
    await lastAnswer().getByText("You stopped this answer.").waitFor();
    await expect.poll(() => server.source.cancelled).toBe(1);
    expect(await lastAnswer().textContent()).toContain("word word");
    await lastAnswer().getByRole("button", { name: "Answer again" }).click();
    await page.getByRole("button", { name: "Stop" }).click();
    await lastAnswer().getByText("You stopped this answer.").waitFor();
    await expect.poll(() => server.source.cancelled).toBe(2);
    expect(await page.getByRole("article", { name: "Answer" }).count()).toBe(1);
    expect(server.source.running).toBe(0);
  });

  it("renames, exports, deletes and brings back conversations", async () => {
    await start([answer("One.")]);
    await ask("First question");
    await finished();
    await page.getByRole("button", { name: "New conversation" }).click();
    await ask("Second question");
    await finished();
    const list = page.getByRole("complementary", { name: "Conversations" });
    await list.getByRole("button", { name: "First question" }).click();
    await list.getByRole("button", { name: "Rename" }).click();
    await page.keyboard.type("Old matters");
    await page.keyboard.press("Enter");
    await list.getByRole("button", { name: "Old matters" }).waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      list.getByRole("button", { name: "Export conversation" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("Old-matters.md");
    const text = readFileSync(await download.path(), "utf8");
    expect(text).toBe(
      "# Old matters\n\n## Question\n\nFirst question\n\n## Answer\n\n> Let me see.\n\nOne.\n",
    );
    await list.getByRole("button", { name: "Delete" }).click();
    await page.getByText("The conversation was deleted.").waitFor();
    expect(await list.getByRole("button", { name: "Old matters" }).count()).toBe(0);
    await page.getByRole("button", { name: "Undo" }).click();
    await list.getByRole("button", { name: "Old matters" }).waitFor();
    await page.reload();
    await lastAnswer().getByText("One.").waitFor();
    expect(await page.locator(".bubble").textContent()).toBe("First question");
  });

  it("shows a tool call, and sends the result that is typed for it", async () => {
    await start([
      { tokens: [...THINK, ...callTokens("get_weather", "city", "Paris")], tokenMs: 5 },
      answer("Sunny."),
    ]);
    await page.getByText("Tools", { exact: true }).click();
    const tool = { type: "function", function: { name: "get_weather", parameters: { type: "object" } } };
    await page.getByLabel(/Definitions/).fill(JSON.stringify([tool]));
    await ask("Weather?");
    const call = page.getByRole("region", { name: "Tool call get_weather" });
    await call.getByText('"city": "Paris"').waitFor();
    await call.getByLabel("Result").fill("22 degrees");
    await page.reload();
    expect(await call.getByLabel("Result").inputValue()).toBe("22 degrees");
    await page.getByRole("button", { name: "Send results" }).click();
    await lastAnswer().getByText("Sunny.").waitFor();
    expect(server.prompts()[1]).toMatch(/get_weather.*22 degrees/s);
  });

  it("says in words what failed, and tries again without losing anything", async () => {
    await start([{ tokens: ["a"], failAt: 0, failure: new Error("boom") }, answer("Now it works.")]);
    await ask("Precious words");
    await lastAnswer()
      .getByRole("alert")
      .getByText(/The answer failed\. The server says: internal error/)
      .waitFor();
    await page.reload();
    expect(await page.locator(".bubble").textContent()).toBe("Precious words");
    await page.getByRole("button", { name: "Try again" }).click();
    await lastAnswer().getByText("Now it works.").waitFor();
    await page.getByLabel("Top p").fill("7");
    await ask("More precious words");
    await lastAnswer()
      .getByText(/The server says: .*top_p/)
      .waitFor();
    await page.getByLabel("Top p").fill("");
    server.http.destroy();
    await server.http.stop();
    await page.getByRole("button", { name: "Try again" }).click();
    await lastAnswer().getByText("The server cannot be reached. Is it still running?").waitFor();
    await page.locator(".server-state").getByText("cannot be reached").waitFor();
    expect(await page.locator(".bubble").last().textContent()).toBe("More precious words");
  });

  it("asks for the key once, and keeps it for the tab only", async () => {
    await start([answer("Hello.")], { apiKeys: ["sesame"] });
    const dialog = page.getByRole("dialog", { name: "API key" });
    await dialog.getByLabel("Key").fill("wrong");
    await page.keyboard.press("Enter");
    await dialog.getByText("did not accept").waitFor();
    await dialog.getByLabel("Key").fill("sesame");
    await page.keyboard.press("Enter");
    await page.locator(".server-state").getByText("nano").waitFor();
    await ask("Hi");
    await lastAnswer().getByText("Hello.").waitFor();
    await page.reload();
    await page.locator(".server-state").getByText("nano").waitFor();
    expect(await dialog.isVisible()).toBe(false);
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }));
    expect(kept).not.toContain("sesame");
  });

  it("can be used with the keyboard alone, and shows where the focus is", async () => {
    await start([answer("Fine.")]);
    await page.locator(".server-state").getByText("nano").waitFor();
    // The page starts in the message box.
    await page.keyboard.type("One line");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("and another");
    await page.keyboard.press("Control+Enter");
    await finished();
    expect(await page.locator(".bubble").textContent()).toBe("One line\nand another");
    const seen: string[] = [];
    while (seen.at(-1) !== "Skip to the message box" && seen.length < 40) {
      await page.keyboard.press("Shift+Tab");
      const focused = page.locator(":focus");
      const { name, outline } = await focused.evaluate((element) => ({
        name: element.getAttribute("aria-label") ?? element.textContent?.trim() ?? "",
        outline: (globalThis as Json).getComputedStyle(element).outlineStyle,
      }));
      seen.push(name);
      expect(outline, name).not.toBe("none");
    }
    expect(seen).toEqual(
      expect.arrayContaining([
        "Answer again",
        "Copy answer",
        "Copy message",
        "New conversation",
        "Conversations",
      ]),
    );
    await page.keyboard.press("Enter");
    await page.keyboard.type("back in the box");
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("back in the box");
  });

  it("never turns a model's text into markup, scripts or unsafe links", async () => {
    const hostile = [
      '<img src=x onerror="alert(1)"> <script>alert(2)</script>',
      "[click](javascript:alert(3)) [data](data:text/html,x) [ok](https://example.com/a)",
      "```html\n<b>code</b>\n```",
      "| a | b |\n|---|---|\n| <i>x</i> | `<u>` |",
    ].join("\n\n");
    await start([{ tokens: ["</think>", hostile.slice(0, 30), hostile.slice(30)] }]);
    await ask("Be hostile");
    await finished();
    const answered = lastAnswer();
    expect(await answered.locator("img, script, b, i, u, iframe, object").count()).toBe(0);
    const links = await answered
      .locator("a")
      .evaluateAll((all) => all.map((link) => link.getAttribute("href")));
    expect(links).toEqual(["https://example.com/a"]);
    expect(await answered.textContent()).toContain('<img src=x onerror="alert(1)">');
    expect(await answered.textContent()).toContain("[click](javascript:alert(3))");
    expect(await answered.locator("pre code").textContent()).toBe("<b>code</b>");
    expect(await answered.locator("td").allInnerTexts()).toEqual(["<i>x</i>", "<u>"]);
  });
});
