// Half floats against the platform's own Float16Array, exhaustively; bfloat16 against its definition.
import { describe, expect, it } from "vitest";
import { bfloatToFloat, floatToBfloat, floatToHalf, halfToFloat, readHalf, writeHalf } from "./half.ts";

const halves = new Float16Array(1);
const halfBits = new Uint16Array(halves.buffer);
const floats = new Float32Array(1);
const floatBits = new Uint32Array(floats.buffer);

/** The platform's rounding of a float32 to half. */
function expectedHalf(value: number): number {
  halves[0] = value;
  return halfBits[0];
}

describe("half floats", () => {
  it("decode all 65,536 patterns as the platform does", () => {
    for (let bits = 0; bits < 65_536; bits++) {
      halfBits[0] = bits;
      if (!Object.is(halfToFloat(bits), halves[0])) expect(halfToFloat(bits), `${bits}`).toBe(halves[0]);
    }
  });

  it("encode every half, every midpoint between two and its neighbours as the platform does", () => {
    for (let bits = 0; bits < 0x7c00; bits++) {
      const midpoint = (halfToFloat(bits) + (bits === 0x7bff ? 65_536 : halfToFloat(bits + 1))) / 2;
      floats[0] = midpoint;
      const middle = floatBits[0];
      for (const pattern of [middle - 1, middle, middle + 1]) {
        floatBits[0] = pattern;
        for (const value of [floats[0], -floats[0], halfToFloat(bits), -halfToFloat(bits)]) {
          if (floatToHalf(value) !== expectedHalf(value)) {
            expect(floatToHalf(value), `${value}`).toBe(expectedHalf(value));
          }
        }
      }
    }
  });

  it("keep zeros' signs, infinities, overflow and NaN", () => {
    expect(floatToHalf(-0)).toBe(0x8000);
    expect(floatToHalf(1e-30)).toBe(0);
    expect(floatToHalf(65_519)).toBe(0x7bff);
    expect(floatToHalf(65_520)).toBe(0x7c00);
    expect(floatToHalf(Number.NEGATIVE_INFINITY)).toBe(0xfc00);
    expect(halfToFloat(floatToHalf(Number.NaN))).toBeNaN();
  });

  it("are stored little-endian, and writing tells what was stored", () => {
    const bytes = new Uint8Array(4);
    expect(writeHalf(bytes, 1, 0.1)).toBe(Math.f16round(0.1));
    expect([...bytes]).toEqual([0, 0x66, 0x2e, 0]);
    expect(readHalf(bytes, 1)).toBe(Math.f16round(0.1));
  });
});

describe("bfloat16", () => {
  it("is the upper half of a float32, rounded to nearest, ties to even", () => {
    for (let bits = 0; bits < 65_536; bits++) {
      floatBits[0] = bits << 16;
      const value = floats[0];
      if (!Object.is(bfloatToFloat(bits), value)) expect(bfloatToFloat(bits), `${bits}`).toBe(value);
      if (!Number.isNaN(value) && floatToBfloat(value) !== bits) expect(floatToBfloat(value)).toBe(bits);
    }
    const rounded = (pattern: number) => {
      floatBits[0] = pattern;
      return floatToBfloat(floats[0]);
    };
    expect(rounded(0x3f808000)).toBe(0x3f80); // tie, even stays
    expect(rounded(0x3f818000)).toBe(0x3f82); // tie, odd goes up
    expect(rounded(0x3f808001)).toBe(0x3f81);
    expect(rounded(0x3f807fff)).toBe(0x3f80);
    expect(rounded(0x7f7fffff)).toBe(0x7f80); // overflows to infinity
    expect(bfloatToFloat(rounded(0x7f800001))).toBeNaN();
  });
});
