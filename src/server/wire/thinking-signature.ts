// The signature of a thinking block. Clients must send thinking back with its signature, so where the thinking's text is
// not shown, the signature carries it.
import { createHash } from "node:crypto";

const CARRIER = "ds4.text.";

/** A signature for thinking that is shown. */
export function signatureOf(thinking: string): string {
  return `ds4.sha256.${createHash("sha256").update(thinking, "utf8").digest("base64url")}`;
}

/** A signature that holds thinking which is not shown. */
export function carrierOf(thinking: string): string {
  return CARRIER + Buffer.from(thinking, "utf8").toString("base64url");
}

/** The thinking that a signature holds, or nothing: a signature of another server is no error. */
export function thinkingOfSignature(signature: string | null | undefined): string {
  if (!signature?.startsWith(CARRIER)) return "";
  return Buffer.from(signature.slice(CARRIER.length), "base64url").toString("utf8");
}
