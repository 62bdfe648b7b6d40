import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { InlineKvDisk } from "../../test/fixtures/inline-kv-disk.ts";
import { SchedulerHarness } from "../../test/fixtures/scheduler-harness.ts";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import { Random } from "../core/random.ts";
import { openKvDisk } from "./kv-disk.ts";
import { HITS_OFFSET } from "./kv-disk-format.ts";
import { TAIL_TOKENS } from "./prefix-reuse.ts";

const VOCAB = 50;
const FINGERPRINT = "a".repeat(64);
let folder = "";
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "ds4-kv-"));
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

const random = new Random(9);
const text = (count: number) => Array.from({ length: count }, () => random.nextUint32() % VOCAB);
const settings = { kvDiskMinTokens: 20, checkpointTokens: 64, slots: 1 };
const modelFolder = (fingerprint = FINGERPRINT) => join(folder, fingerprint.slice(0, 16));
const files = () => fs.readdirSync(modelFolder());

function open(disk: InlineKvDisk, extra = {}) {
  return new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 64), { ...settings, ...extra }, disk);
}

function snapshotOf(tokens: readonly number[]): KvSnapshot {
  const data = Float32Array.from(tokens);
  return {
    lengthTokens: data.length,
    shapeKey: "fake",
    sections: [{ name: "tokens", shape: [data.length], data }],
  };
}

/** Saves one state and returns its file and bytes. */
function saved(tokens: number[]): { path: string; bytes: Buffer } {
  new InlineKvDisk(folder).save(Int32Array.from(tokens), snapshotOf(tokens), "cold");
  const path = join(modelFolder(), files()[0]);
  return { path, bytes: fs.readFileSync(path) };
}

describe("saved states", () => {
  it("are found after a restart, whatever ran before (case 114)", async () => {
    const first = open(new InlineKvDisk(folder));
    await first.run(text(200));
    let prompt = text(100);
    for (let turn = 0; turn < 5; turn++) {
      const answer = await first.run(prompt);
      prompt = [...prompt, ...answer.tokens, ...text(20)];
    }
    await first.scheduler.close();
    const second = open(new InlineKvDisk(folder));
    const next = await second.run(prompt);
    expect(next.finish).toMatchObject({ reusedFrom: "disk" });
    expect(next.finish!.reusedTokens).toBeGreaterThanOrEqual(0.8 * prompt.length);
    const alone = new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 64), settings);
    expect(next.tokens).toEqual((await alone.run(prompt)).tokens);
  });

  it("are written when cold, evicted and at shutdown, once per prefix", async () => {
    const disk = new InlineKvDisk(folder);
    const harness = open(disk, { checkpointTokens: 40 });
    const prompt = text(100);
    const answer = await harness.run(prompt, { maxTokens: 50 });
    expect(disk.saved).toEqual(["cold"]);
    expect(disk.longestPrefix(Int32Array.from(prompt))?.tokens.length).toBe(100 - TAIL_TOKENS);
    await harness.run(text(30));
    expect(disk.saved).toEqual(["cold", "evicted", "cold"]);
    const grown = await harness.run([...prompt, ...answer.tokens, ...text(90)]);
    expect(grown.finish).toMatchObject({ reusedFrom: "disk", reusedTokens: 149 });
    expect(disk.saved.slice(3)).toEqual(["continued"]);
    await harness.run([...prompt, ...answer.tokens, ...text(5)], { maxTokens: 40 });
    await harness.scheduler.close();
    expect(disk.saved.at(-1)).toBe("shutdown");
    expect(new Set(files()).size).toBe(disk.count);
  });

  it("of another model are never read", async () => {
    const tokens = text(60);
    saved(tokens);
    const other = new InlineKvDisk(folder, 1e9, "b".repeat(64));
    expect(other.count).toBe(0);
    fs.renameSync(modelFolder(), join(folder, "held"));
    fs.mkdirSync(modelFolder("b".repeat(64)), { recursive: true });
    fs.cpSync(join(folder, "held"), modelFolder("b".repeat(64)), { recursive: true });
    const moved = new InlineKvDisk(folder, 1e9, "b".repeat(64));
    expect(moved.count).toBe(0);
    expect(moved.logs).toEqual([expect.stringContaining("another model")]);
    expect(fs.readdirSync(modelFolder("b".repeat(64)))).toEqual([]);
  });
});

describe("damage (case 113)", () => {
  it("cut at every byte: the file is refused once and removed", () => {
    const tokens = text(24);
    const { path, bytes } = saved(tokens);
    for (let length = 0; length < bytes.length; length++) {
      fs.writeFileSync(path, bytes.subarray(0, length));
      const disk = new InlineKvDisk(folder);
      expect(disk.count, `${length} bytes`).toBe(0);
      expect(disk.logs).toHaveLength(1);
      expect(files()).toEqual([]);
    }
  });

  it("a flipped bit anywhere: never a wrong state", () => {
    const tokens = text(24);
    const { path, bytes } = saved(tokens);
    const whole = snapshotOf(tokens);
    for (let at = 0; at < bytes.length; at++) {
      const flipped = Buffer.from(bytes);
      flipped[at] ^= 1 << (at % 8);
      fs.writeFileSync(path, flipped);
      const disk = new InlineKvDisk(folder);
      const entry = disk.longestPrefix(Int32Array.from(tokens));
      const snapshot = entry && disk.store.load(entry.key);
      if (at >= HITS_OFFSET && at < HITS_OFFSET + 4) expect(snapshot).toEqual(whole);
      else {
        expect(snapshot, `byte ${at}`).toBeUndefined();
        expect(files()).toEqual([]);
      }
    }
  });

  it("damaged while it is indexed: the request is served cold, and the file replaced (case 112)", async () => {
    const prompt = text(120);
    const first = await open(new InlineKvDisk(folder)).run(prompt);
    const disk = new InlineKvDisk(folder);
    const path = join(modelFolder(), files()[0]);
    const bytes = fs.readFileSync(path);
    bytes[bytes.length - 3] ^= 4;
    fs.writeFileSync(path, bytes);
    const again = await open(disk).run(prompt);
    expect(again.tokens).toEqual(first.tokens);
    expect(again.finish).toMatchObject({ reusedTokens: 0, reusedFrom: "none" });
    expect(disk.rejectedCount).toBe(1);
    expect((await open(disk).run(prompt)).finish).toMatchObject({ reusedFrom: "disk" });
  });

  it("a state that the backend fails on is dropped within the request (case 112)", async () => {
    const prompt = text(120);
    const first = await open(new InlineKvDisk(folder)).run(prompt);
    const disk = new InlineKvDisk(folder);
    const backend = new FakeBackend(VOCAB, hashed(VOCAB), 64);
    let faults = 0;
    backend.onForward = () => {
      if (faults++ === 0) throw new Error("a kernel chokes on it");
    };
    const again = await new SchedulerHarness(backend, settings, disk).run(prompt);
    expect(again.tokens).toEqual(first.tokens);
    expect(disk.rejectedCount).toBe(1);
  });

  it("a write that was cut off leaves nothing that is read", () => {
    const { path, bytes } = saved(text(24));
    fs.rmSync(path);
    fs.writeFileSync(path.replace(".ds4kv", "-77.ds4kv-part"), bytes.subarray(0, 100));
    const disk = new InlineKvDisk(folder);
    expect(disk.count).toBe(0);
    expect(files()).toEqual([]);
  });
});

describe("limits", () => {
  it("the folder stays within its limit and the least valuable go first", () => {
    const size = saved(text(100)).bytes.length;
    fs.rmSync(modelFolder(), { recursive: true });
    const disk = new InlineKvDisk(folder, 3 * size);
    const texts = [1, 2, 3, 4].map(() => text(100));
    for (const tokens of texts.slice(0, 3)) disk.save(Int32Array.from(tokens), snapshotOf(tokens), "cold");
    disk.store.load([...disk.store.entries.keys()][0]);
    disk.save(Int32Array.from(texts[3]), snapshotOf(texts[3]), "cold");
    expect(disk.bytes).toBeLessThanOrEqual(3 * size);
    const held = texts.map((tokens) => disk.longestPrefix(Int32Array.from(tokens)) !== undefined);
    expect(held).toEqual([true, false, true, true]);
    expect(files()).toHaveLength(3);
    const reopened = new InlineKvDisk(folder, 3 * size);
    expect([...reopened.store.entries.values()].map(({ hits }) => hits).sort()).toEqual([0, 0, 1]);
  });

  it("a folder that cannot be written costs one warning, and every request is served", async () => {
    const blocked = join(folder, "file");
    fs.writeFileSync(blocked, "");
    const disk = new InlineKvDisk(join(blocked, "cache"));
    const harness = open(disk);
    for (let i = 0; i < 4; i++) expect((await harness.run(text(80))).tokens).toHaveLength(10);
    await harness.scheduler.close();
    expect(disk.logs).toEqual([expect.stringMatching(/serving without it/)]);
    expect(disk.count).toBe(0);
  });
});

describe("the thread", () => {
  it("saves beside the steps, and a new one finds it", async () => {
    const logs: string[] = [];
    const options = {
      folder,
      fingerprint: FINGERPRINT,
      limitBytes: 1e9,
      log: (line: string) => void logs.push(line),
    };
    const prompt = text(120);
    const backend = () => new FakeBackend(VOCAB, hashed(VOCAB), 64);
    const first = new SchedulerHarness(backend(), settings, await openKvDisk(options));
    const answer = await first.run(prompt);
    await first.scheduler.close();
    const disk = await openKvDisk(options);
    expect(disk.count).toBeGreaterThan(0);
    const again = new SchedulerHarness(backend(), settings, disk);
    const second = await again.run(prompt);
    expect(second.finish).toMatchObject({ reusedFrom: "disk", reusedTokens: 120 - TAIL_TOKENS });
    expect(second.tokens).toEqual(answer.tokens);
    await again.scheduler.close();
    expect(logs).toEqual([]);
  });
});
