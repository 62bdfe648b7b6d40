// Decode steps as graphs: a step of the same sequences is the same work every time, only the numbers in device memory
// change. It is launched kernel by kernel at first, recorded the second time, and replayed from then on.
import { CudaError } from "./cuda-error.ts";
import type { Handle } from "./driver.ts";
import type { DeviceStream } from "./stream.ts";

/** Recorded steps kept: a server's slots come in many combinations, the last ones come again. */
const MAX_GRAPHS = 32;

interface Step {
  /** Absent until the step came a second time. */
  graph?: Handle;
}

/** The steps of one backend, by key. */
export class StepGraphs {
  readonly #stream: DeviceStream;
  /** Least recently used first. */
  readonly #steps = new Map<string, Step>();
  #replays = 0;
  #refused = false;

  constructor(stream: DeviceStream) {
    this.#stream = stream;
  }

  /** Steps that were replayed instead of launched. */
  get replays(): number {
    return this.#replays;
  }

  /**
   * Runs a step. `enqueue` queues its kernels on the stream and may do nothing else; it must queue the same ones, on the
   * same memory, for the same key. The first time it runs directly, so that all code is loaded before a recording.
   */
  run(key: string, enqueue: () => void): void {
    const step = this.#steps.get(key);
    if (step === undefined) {
      this.#keep(key, {});
      enqueue();
      return;
    }
    if (step.graph === undefined && !this.#refused) step.graph = this.#record(enqueue);
    if (step.graph === undefined) {
      enqueue();
      return;
    }
    this.#keep(key, step);
    this.#stream.driver.launchGraph(step.graph, this.#stream.handle);
    this.#replays++;
  }

  /** Forgets all steps: memory that they work on has moved or is gone. */
  clear(): void {
    const graphs = [...this.#steps.values()].flatMap(({ graph }) => graph ?? []);
    this.#steps.clear();
    for (const graph of graphs) this.#stream.driver.destroyGraph(graph);
  }

  /** Undefined when the driver will not record: the steps are then launched as before. */
  #record(enqueue: () => void): Handle | undefined {
    const { driver, handle } = this.#stream;
    try {
      driver.beginCapture(handle);
      try {
        enqueue();
      } catch (error) {
        this.#abandon();
        throw error;
      }
      return driver.endCapture(handle);
    } catch (error) {
      if (!(error instanceof CudaError) || error.fatal) throw error;
      this.#refused = true;
      return undefined;
    }
  }

  /** Ends a recording that failed; the driver reports that failure once more. */
  #abandon(): void {
    const { driver, handle } = this.#stream;
    try {
      driver.destroyGraph(driver.endCapture(handle));
    } catch (error) {
      if (!(error instanceof CudaError)) throw error;
    }
  }

  #keep(key: string, step: Step): void {
    this.#steps.delete(key);
    this.#steps.set(key, step);
    if (this.#steps.size <= MAX_GRAPHS) return;
    const [[oldest, { graph }]] = this.#steps;
    this.#steps.delete(oldest);
    if (graph === undefined) return;
    // It may still be running: the stream is empty before it goes.
    this.#stream.synchronize();
    this.#stream.driver.destroyGraph(graph);
  }
}
