import { createReferenceBackend } from "../../src/backend/reference/reference-backend.ts";
import { describeBackendContract } from "./backend-contract.ts";

// Sums run in one fixed order whatever the batch: feeding the same tokens differently must change no bit.
describeBackendContract("reference", (file) => createReferenceBackend(file), {
  self: 0,
  reference: 0,
  snapshot: 0,
});
