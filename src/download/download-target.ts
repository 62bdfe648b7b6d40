// What to download: an alias or an address becomes a list of files with what is known of them.
import { basename } from "node:path/posix";
import { UsageError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { parseHttpUrl } from "../net/http-request.ts";
import { PUBLISHED_MODELS, publishedUrl } from "./published-files.ts";

/** One file to fetch. */
export interface DownloadTarget {
  url: URL;
  /** Name on disk, without folder. */
  fileName: string;
  /** Size and hash (hexadecimal) that the file must have, where known beforehand. */
  sizeBytes?: number;
  sha256?: string;
}

/** Parts of a split file that are fetched at most. */
const MAX_PARTS = 1000;
/** The longest file name that common file systems take, less our suffix. */
const MAX_NAME_BYTES = 255 - ".partial.json".length;

/**
 * The files behind an alias or an address; the first part of a split file stands for all. Throws `usage` for an unknown
 * alias and for an address without a file name.
 */
export function resolveTargets(aliasOrUrl: string, sha256?: string): DownloadTarget[] {
  const targets = aliasOrUrl.includes("://") ? targetsOfUrl(aliasOrUrl) : targetsOfAlias(aliasOrUrl);
  if (sha256 === undefined) return targets;
  if (targets.length > 1)
    throw new UsageError(`--sha256 is for one file, ${aliasOrUrl} has ${targets.length}`);
  return [{ ...targets[0], sha256: sha256.toLowerCase() }];
}

function targetsOfAlias(alias: string): DownloadTarget[] {
  const model = PUBLISHED_MODELS.find((each) => each.alias === alias);
  if (model === undefined) {
    const known = PUBLISHED_MODELS.map((each) => each.alias).join(", ");
    throw new UsageError(`unknown model ${quotedText(alias)}: expected an address or one of ${known}`);
  }
  return model.files.map((file) => {
    const { fileName, sizeBytes, sha256 } = file;
    return { url: publishedUrl(file), fileName, sizeBytes, sha256 };
  });
}

function targetsOfUrl(text: string): DownloadTarget[] {
  const url = parseHttpUrl(text);
  // The page of a file on Hugging Face is what people copy; the file itself is one word away.
  if (url.hostname === "huggingface.co") url.pathname = url.pathname.replace("/blob/", "/resolve/");
  const fileName = fileNameOf(url);
  const split = /^(.*)-00001-of-(\d{5})\.gguf$/.exec(fileName);
  if (split === null) return [{ url, fileName }];
  const count = Number(split[2]);
  if (count < 1 || count > MAX_PARTS) throw new UsageError(`expected 1..${MAX_PARTS} parts, got ${count}`);
  return Array.from({ length: count }, (_, index) => {
    const name = `${split[1]}-${String(index + 1).padStart(5, "0")}-of-${split[2]}.gguf`;
    const part = new URL(url);
    part.pathname = url.pathname.replace(/[^/]*$/, encodeURIComponent(name));
    return { url: part, fileName: name };
  });
}

function fileNameOf(url: URL): string {
  let name: string;
  try {
    name = decodeURIComponent(basename(url.pathname));
  } catch {
    name = "";
  }
  // Decoding may bring back separators: a name must stay a name.
  const isName = name !== "" && !/^\.+$/.test(name) && !/[/\\\0-\x1f:]/.test(name);
  if (!isName || Buffer.byteLength(name) > MAX_NAME_BYTES) {
    throw new UsageError(`the address ends in no usable file name: ${quotedText(url.pathname)}`);
  }
  return name;
}
