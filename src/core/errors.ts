// Every error a caller may want to tell apart. A message says what was expected, what came, where, and what
// to do; `code` is stable and machine-readable. Libraries throw these and never print or exit.

/** Stable machine-readable error codes. */
export type ErrorCode =
  | "gguf" // a file that is not valid GGUF
  | "safetensors" // a checkpoint that is not valid safetensors
  | "io" // the operating system refused a read or write
  | "network" // a server cannot be reached, breaks off or answers wrongly
  | "unsupported-model" // a valid file that this engine cannot run
  | "unsupported-type" // a tensor type outside the supported set
  | "tokenizer" // tokenizer tables or ids that do not hold together
  | "template" // a conversation that cannot be rendered
  | "convert" // a checkpoint or recipe that cannot be converted
  | "memory" // it does not fit
  | "context-full" // the KV state has no room for the tokens
  | "cuda" // no usable CUDA device, or a call of the CUDA driver failed
  | "native" // the native addon is missing, broken or was misused
  | "session" // a session was used against its contract
  | "cancelled" // the caller cancelled
  | "queue-full" // too many requests wait
  | "backend-fault" // a forward pass failed
  | "device-lost" // the device answers nothing any more: only a new process helps
  | "usage" // a wrong flag, argument or environment variable
  | "request"; // a wrong API request

/** Base class: an error with a stable `code`. */
export class Ds4Error extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** The bytes are not a GGUF file this reader accepts. `offsetBytes` is where reading stopped, if known. */
export class GgufError extends Ds4Error {
  readonly offsetBytes: number | undefined;

  constructor(message: string, offsetBytes?: number, options?: ErrorOptions) {
    super("gguf", offsetBytes === undefined ? message : `${message} (file offset ${offsetBytes})`, options);
    this.offsetBytes = offsetBytes;
  }
}

/** A valid file whose model cannot be run; the message names the key or tensor. */
export class UnsupportedModelError extends Ds4Error {
  constructor(message: string, options?: ErrorOptions) {
    super("unsupported-model", message, options);
  }
}

/** The user asked for something the command cannot do: wrong flag, argument or environment variable. */
export class UsageError extends Ds4Error {
  constructor(message: string, options?: ErrorOptions) {
    super("usage", message, options);
  }
}

/** A request that cannot be answered as it is; `param` is the path of the field at fault, `messages[1].content`. */
export class RequestError extends Ds4Error {
  readonly param: string | undefined;

  constructor(message: string, param?: string, options?: ErrorOptions) {
    super("request", message, options);
    this.param = param;
  }
}

/** Something does not fit; carries the numbers. */
export class MemoryError extends Ds4Error {
  readonly neededBytes: number;
  readonly availableBytes: number;

  constructor(message: string, neededBytes: number, availableBytes: number) {
    super("memory", message);
    this.neededBytes = neededBytes;
    this.availableBytes = availableBytes;
  }
}

/** The work was stopped by the caller. */
export class CancelledError extends Ds4Error {
  constructor(message = "cancelled by the caller") {
    super("cancelled", message);
  }
}

/** For our own bugs only: an invariant that no input can break. Never use it to check input. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`internal error, please report it: ${message}`);
}
