// Both pages on a phone and on a desktop, light and dark: names, contrast, width, and that all of it works there.
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chromiumPath, openBrowser, openWindow } from "../fixtures/browser.ts";
import { auditPage } from "../fixtures/page-audit.ts";
import type { Script } from "../fixtures/scripted-source.ts";
import { callTokens, type Json, testHttpServer } from "../fixtures/test-server.ts";

const wide = "a_very_long_name_without_any_place_to_break_it_".repeat(4);
const TEXT = `# Title\n\nSome **bold** and \`${wide}\`.\n\n| River | Length | Mouth | Countries |\n|---|--:|---|---|
| Volga | 3,530 km | Caspian Sea | Russia |\n\n\`\`\`js\nconst x = "${wide}";\n\`\`\`\n\n> quoted\n\n1. one\n2. two [link](https://example.com/${wide})\n\n${wide}`;
const SCRIPTS: Script[] = [
  { tokens: [`Thinking of ${wide}`, "</think>", TEXT] },
  { tokens: ["</think>", ...callTokens("get_weather", "city", "Paris")] },
  { tokens: ["x"], failAt: 0 },
];
const TOOLS = JSON.stringify([{ type: "function", function: { name: "get_weather" } }]);

const gauge = (name: string, value: number, labels = "") => ({ name, help: name, labels, value });
const readGauges = async () => [
  gauge("memory_bytes", 2e9, 'region="weights"'),
  gauge("memory_planned_bytes", 3e9, 'region="weights"'),
  gauge("process_resident_bytes", 4e9),
  gauge("memory_planned_bytes", 3.5e9, 'region="process"'),
  gauge("slot_tokens", 100, 'slot="0",state="decode"'),
  gauge("slot_tokens", 0, 'slot="1",state="empty"'),
  gauge("slot_context_tokens", 4096),
];

let browser: Browser;

describe.skipIf(chromiumPath === undefined)("the pages", () => {
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser.close());

  for (const colorScheme of ["light", "dark"] as const) {
    for (const device of ["phone", "desktop"] as const) {
      it(`are readable and usable on a ${device}, ${colorScheme}`, async () => {
        const isPhone = device === "phone";
        const size = isPhone ? { widthPx: 360, heightPx: 740 } : { widthPx: 1280, heightPx: 800 };
        const { page, complaints, close } = await openWindow(browser, { ...size, isPhone, colorScheme });
        const server = await testHttpServer({ scripts: [...SCRIPTS], model: { readGauges } });
        await page.goto(server.url);
        await page.locator(".server-state").getByText("nano").waitFor();
        expect(await auditPage(page)).toEqual([]);
        if (isPhone) await page.getByRole("button", { name: "Settings and server" }).click();
        await page.locator("#server-panel").getByText("1 · answering").waitFor();
        expect(await page.locator("#server-panel").textContent()).toMatch(
          /Weights1\.86 \/ 2\.79 GiBWhole process3\.73 \/ 3\.26 GiB/,
        );
        expect(await page.locator(".meter-bar[data-level=over]").count()).toBe(1);
        await page.getByText("Tools", { exact: true }).click();
        await page.getByLabel(/Definitions/).fill(TOOLS);
        expect(await auditPage(page)).toEqual([]);
        if (isPhone) await page.keyboard.press("Escape");
        const input = page.getByRole("textbox", { name: "Message" });
        const answers = page.getByRole("article", { name: "Answer" });
        for (const question of [`Is ${wide} a word?`, "Weather?", "Fail, please"]) {
          const count = await answers.count();
          await input.fill(question);
          await page.getByRole("button", { name: "Send", exact: true }).click();
          await answers.nth(count).and(page.locator("[aria-busy=false]")).waitFor();
        }
        await page.getByRole("alert").waitFor();
        await page.locator("details.thinking:not([hidden]) summary").click();
        expect(await auditPage(page)).toEqual([]);
        if (isPhone) await page.getByRole("button", { name: "Conversations" }).click();
        await page.getByRole("button", { name: "Rename conversation" }).waitFor();
        expect(await auditPage(page)).toEqual([]);
        await page.goto(`${server.url}/docs`);
        await page.getByRole("heading", { name: "/v1/chat/completions" }).waitFor();
        const folds = page.locator("#post-v1-chat-completions details");
        await folds.evaluateAll((all: Json[]) => all.map((fold) => Object.assign(fold, { open: true }).open));
        expect(await auditPage(page)).toEqual([]);
        await close();
        server.http.destroy();
        expect(complaints).toEqual([]);
      });
    }
  }

  it("keep the reader's choice of dark or light", async () => {
    const { page, complaints, close } = await openWindow(browser, { colorScheme: "light" });
    const server = await testHttpServer();
    await page.goto(server.url);
    const ground = () =>
      page.locator("body").evaluate((body) => (globalThis as Json).getComputedStyle(body).backgroundColor);
    const light = await ground();
    await page.getByRole("button", { name: "Dark or light" }).click();
    const dark = await ground();
    expect(dark).not.toBe(light);
    await page.goto(`${server.url}/docs`);
    expect(await ground()).toBe(dark);
    await page.getByRole("button", { name: "Dark or light" }).click();
    expect(await ground()).toBe(light);
    await close();
    server.http.destroy();
    expect(complaints).toEqual([]);
  });

  it("document every endpoint with a command that can be pasted", async () => {
    const { page, complaints, close } = await openWindow(browser);
    const server = await testHttpServer({ apiKeys: ["sesame"] });
    await page.goto(`${server.url}/docs`);
    await page.getByLabel("API key").fill("sesame");
    await page.getByRole("button", { name: "Use key" }).click();
    const endpoint = page.locator("#post-v1-chat-completions");
    const command = (await endpoint.locator("pre").first().textContent()) ?? "";
    expect(command.split("\n").slice(0, 3)).toEqual([
      `curl ${server.url}/v1/chat/completions \\`,
      '  -H "authorization: Bearer $DS4_API_KEY" \\',
      "  -H 'content-type: application/json' \\",
    ]);
    const body = /-d '(.*)'$/s.exec(command)?.[1] ?? "";
    const answer = await server.post("/v1/chat/completions", body, { authorization: "Bearer sesame" });
    expect(answer.status).toBe(200);
    const document = (await (
      await fetch(`${server.url}/openapi.json`, { headers: { "x-api-key": "sesame" } })
    ).json()) as { paths: Record<string, object> };
    const shown = await page.locator(".endpoint h3 a").allTextContents();
    expect(shown.sort()).toEqual(Object.keys(document.paths).sort());
    await endpoint.locator("summary", { hasText: "messages" }).first().click();
    await endpoint
      .getByText('One of "system", "developer", "user", "assistant", "tool", "function".')
      .waitFor();
    await close();
    server.http.destroy();
    expect(complaints).toEqual([]);
  });
});
