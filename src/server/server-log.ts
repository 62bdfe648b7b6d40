// What the server says about itself: lines without any text of people, and, only when asked for, a trace with prompts
// and answers.

/** Takes what the server has to say. Never throws. */
export interface ServerLog {
  /** One line without prompts, answers or keys. */
  line(text: string): void;
  /** Whether `trace` does anything: callers build what they trace only then. */
  readonly traces: boolean;
  /** Prompts, answers, bodies: everything. */
  trace(kind: string, record: object): void;
}

/** Says nothing. */
export const SILENT_LOG: ServerLog = { line: () => {}, traces: false, trace: () => {} };
