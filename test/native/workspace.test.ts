// What a workspace grows to by `reserve`, and what that takes: nine counts by name.
import { describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";

const { addon } = loadNative();
const native = addon === null ? null : nativeKernels(addon);

const NOTHING = {
  ...{ inputValues: 0, sharedInputValues: 0, mixes: 0, rowToken: 0, slotRow: 0, expertBegin: 0, identity: 0 },
  ...{ gate: 0, down: 0 },
};

describe.skipIf(native === null)("Workspace.reserve", () => {
  const fields = Object.keys(NOTHING) as (keyof typeof NOTHING)[];

  test.each(fields)("%s grows its own vectors, once", (field) => {
    const workspace = new native!.Workspace(1);
    // int8 and six words per 32 columns; `gate` stands for `up` too.
    const bytes = field.endsWith("putValues") ? 64 + (64 / 32) * 24 : field === "gate" ? 2 * 4 * 64 : 4 * 64;
    workspace.reserve({ ...NOTHING, [field]: 64 });
    expect(workspace.bytes).toBe(bytes);
    workspace.reserve({ ...NOTHING, [field]: 32 });
    expect(workspace.bytes).toBe(bytes);
    workspace.close();
  });

  test.each(fields)("%s must be given as a whole number", (field) => {
    const workspace = new native!.Workspace(1);
    for (const value of [undefined, -1, 1.5, Number.NaN, "64", 2 ** 41]) {
      const counts = { ...NOTHING, [field]: value } as typeof NOTHING;
      expect(() => workspace.reserve(counts)).toThrow(RangeError);
      expect(() => workspace.reserve(counts)).toThrow(field);
    }
    expect(workspace.bytes).toBe(0);
    workspace.close();
  });

  test("anything but an object is refused", () => {
    const workspace = new native!.Workspace(1);
    for (const counts of [undefined, null, 64]) {
      expect(() => workspace.reserve(counts as never)).toThrow(TypeError);
    }
    workspace.close();
  });
});
