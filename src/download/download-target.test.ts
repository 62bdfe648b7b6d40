import { expect, test } from "vitest";
import { UsageError } from "../core/errors.ts";
import { resolveTargets } from "./download-target.ts";
import { PUBLISHED_MODELS } from "./published-files.ts";

test("every alias names files of a published repository; no two share an alias", () => {
  expect(new Set(PUBLISHED_MODELS.map(({ alias }) => alias)).size).toBe(PUBLISHED_MODELS.length);
  for (const { alias, files } of PUBLISHED_MODELS) {
    for (const [index, target] of resolveTargets(alias).entries()) {
      expect(target.url.href).toMatch(
        /^https:\/\/huggingface\.co\/antirez\/[\w.-]+\/resolve\/main\/[\w.-]+\.gguf$/,
      );
      expect(target.url.href.endsWith(`/${target.fileName}`)).toBe(true);
      expect(files[index].sha256 ?? "0".repeat(64)).toMatch(/^[0-9a-f]{64}$/);
    }
  }
  expect(resolveTargets("ds4f-vision-q2")).toHaveLength(2);
});

test("an unknown alias lists the known ones", () => {
  expect(() => resolveTargets("ds4f-q3")).toThrow(/unknown model "ds4f-q3".* ds4f-q2, ds4f-q2-q4/);
});

test("the page of a file stands for the file, the first part for all parts", () => {
  const [page] = resolveTargets("https://huggingface.co/a/b/blob/main/dir/m.gguf?x=1");
  expect(page.url.href).toBe("https://huggingface.co/a/b/resolve/main/dir/m.gguf?x=1");
  expect(page.fileName).toBe("m.gguf");
  const parts = resolveTargets("http://host/dir/m-00001-of-00003.gguf?t=1");
  expect(parts.map((part) => part.url.href)).toEqual([
    "http://host/dir/m-00001-of-00003.gguf?t=1",
    "http://host/dir/m-00002-of-00003.gguf?t=1",
    "http://host/dir/m-00003-of-00003.gguf?t=1",
  ]);
  expect(parts[2].fileName).toBe("m-00003-of-00003.gguf");
  expect(resolveTargets("http://host/m-00002-of-00003.gguf")).toHaveLength(1);
});

test("a hash is for one file", () => {
  const hash = "AB".repeat(32);
  expect(resolveTargets("http://host/m.gguf", hash)[0].sha256).toBe("ab".repeat(32));
  expect(() => resolveTargets("http://host/m-00001-of-00003.gguf", hash)).toThrow(/for one file.* has 3/);
});

test.each([
  "ftp://host/m.gguf",
  "file:///etc/passwd",
  "http://user:secret@host/m.gguf",
  "https://host/",
  "https://host/%2e%2e",
  "https://host/..%2f..%2fetc%2fpasswd",
  "https://host/a%00b",
  "https://host/%zz",
  `https://host/${"a".repeat(300)}`,
  "https://host/m-00001-of-99999.gguf",
  "http://",
])("refuses %s", (address) => {
  expect(() => resolveTargets(address)).toThrow(UsageError);
});
