import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { hostMachine } from "../../test/fixtures/host-machine.ts";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { MemoryError } from "../core/errors.ts";
import { GIB, MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { bindModel } from "../model/weights.ts";
import { regionBytes } from "../plan/memory-plan.ts";
import { reserveBytes } from "../plan/overhead-regions.ts";
import { planRun } from "./preflight.ts";
import { chooseRoom, type RoomFlags } from "./serve-room.ts";

const flags: RoomFlags = { kvType: "f16", ctx: 4096, threads: 2, maxQueue: 4 };
const reserve = reserveBytes(64 * GIB);

/** What a server with two slots needs, and one with one. */
const needs = [2, 1].map((slots) => {
  const model = { name: "tiny", model: bindModel(tinyModel()) };
  const demand = { backend: "reference", ctxTokens: 4096, threads: 2, slots, requests: 6 } as const;
  return regionBytes(planRun(model, demand, hostMachine(64 * GIB)).plan);
});
const [twoSlots, oneSlot] = needs;

function choose(availableBytes: number, changed: Partial<RoomFlags> = {}, file: GgufFile = tinyModel()) {
  const err = new PassThrough({ encoding: "utf8" });
  const terminal = { out: new PassThrough(), err, quiet: false };
  const room = chooseRoom(file, { ...flags, ...changed }, "reference", terminal, hostMachine(availableBytes));
  return { ...room, said: err.read() as string | null };
}

it("takes two slots and a quarter of what is free beside the reserve for checkpoints", () => {
  const free = (bytes: number) => choose(twoSlots + reserve + bytes);
  expect(free(400 * MIB)).toMatchObject({ slots: 2, checkpointBytes: 100 * MIB, said: null });
  expect(free(50 * GIB).checkpointBytes).toBe(2 * GIB);
  expect(free(-1).checkpointBytes).toBe(0);
  expect(choose(64 * GIB, { checkpointMb: 3 }).checkpointBytes).toBe(3 * MIB);
});

it("reports the plan of the room it took", () => {
  const { planned } = choose(twoSlots + reserve + 400 * MIB);
  expect(planned.kvCheckpoints).toBe(100 * MIB);
  expect(planned.process).toBe(twoSlots + 100 * MIB);
  expect(choose(oneSlot).planned.process).toBe(oneSlot);
});

it("takes one slot where two do not fit, and says so, unless two were asked for", () => {
  expect(choose(twoSlots - 1)).toMatchObject({ slots: 1, checkpointBytes: 0 });
  expect(choose(twoSlots - 1).said).toMatch(/^memory is short: one slot and no checkpoints/);
  expect(() => choose(twoSlots - 1, { slots: 2 })).toThrow(
    /does not fit .* in 2 slots(.|\n)*--force loads it/,
  );
  expect(choose(twoSlots - 1, { slots: 2, force: true })).toMatchObject({ slots: 2, said: null });
  expect(() => choose(oneSlot - 1)).toThrow(MemoryError);
});

it("binds the file once and reads no weight, whatever it takes", () => {
  let lookups = 0;
  const tiny = tinyModel();
  const untouchable = () => {
    throw new Error("a weight was read");
  };
  const tensor = (name: string) => {
    lookups++;
    return tiny.tensor(name);
  };
  const file: GgufFile = { ...tiny, tensor, readTensor: untouchable, readTensorInto: untouchable };
  bindModel(file);
  const ofOneBinding = lookups;
  choose(twoSlots - 1, {}, file);
  expect(lookups).toBe(2 * ofOneBinding);
});
