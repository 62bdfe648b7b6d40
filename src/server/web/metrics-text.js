// Prometheus' text format as numbers by name and labels. No DOM.

/** @typedef {{ labels: Record<string, string>, value: number }} Sample */

/**
 * Samples by name.
 * @param {string} text
 * @returns {Map<string, Sample[]>}
 */
export function parseMetrics(text) {
  /** @type {Map<string, Sample[]>} */
  const families = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) continue;
    const [, name, labelText = "", value] = match;
    const labels = Object.fromEntries(
      [...labelText.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, text]) => [key, text]),
    );
    const samples = families.get(name) ?? [];
    samples.push({ labels, value: Number(value) });
    families.set(name, samples);
  }
  return families;
}

/**
 * What the panel shows of the server's numbers.
 * @param {Map<string, Sample[]>} families
 */
export function serverFigures(families) {
  const all = (/** @type {string} */ name) => families.get(`ds4_${name}`) ?? [];
  const one = (/** @type {string} */ name) => all(name)[0]?.value;
  const slots = all("slot_tokens").map(({ labels, value }) => ({ state: labels.state ?? "", tokens: value }));
  const planned = new Map(all("memory_planned_bytes").map(({ labels, value }) => [labels.region, value]));
  const memory = all("memory_bytes").map(({ labels, value }) => ({
    region: labels.region ?? "",
    heldBytes: value,
    plannedBytes: planned.get(labels.region),
  }));
  const residentBytes = one("process_resident_bytes");
  if (residentBytes !== undefined) {
    memory.push({ region: "process", heldBytes: residentBytes, plannedBytes: planned.get("process") });
  }
  return {
    isReady: one("ready") === 1,
    running: one("answers_running") ?? 0,
    waiting: (one("answers_queued") ?? 0) + (one("scheduler_queue_length") ?? 0),
    slots,
    slotCtxTokens: one("slot_context_tokens"),
    memory,
    /** Tokens sampled since the start: each is either an answer's first or follows another. */
    sampledTokens: (one("time_to_first_token_seconds_count") ?? 0) + (one("inter_token_seconds_count") ?? 0),
    promptTokens: one("prompt_tokens_total") ?? 0,
    reusedTokens: one("prompt_tokens_reused_total") ?? 0,
    finished: all("answers_total").find(({ labels }) => labels.outcome === "finished")?.value ?? 0,
  };
}
