// A stream of work on the device, in order.
import type { DeviceBuffer } from "./device-memory.ts";
import type { CudaDriver, Handle } from "./driver.ts";

/** Kinds of values that are read back. */
type Values = Float32Array | Int32Array | Uint8Array | Uint16Array | Float16Array;

/** One stream. Copies to and from V8's memory are finished when the call returns, unless said otherwise. */
export class DeviceStream {
  readonly driver: CudaDriver;
  readonly handle: Handle;
  #closed = false;

  constructor(driver: CudaDriver) {
    this.driver = driver;
    this.handle = driver.createStream();
  }

  /** Copies `values` to the start of `target`. */
  write(target: DeviceBuffer, values: ArrayBufferView): void {
    this.enqueueWrite(target, values);
    this.synchronize();
  }

  /** The same without waiting: `values` must stay as they are until the stream is synchronized. */
  enqueueWrite(target: DeviceBuffer, values: ArrayBufferView): void {
    if (values.byteLength === 0) return;
    checkRoom(target, values.byteLength);
    this.driver.copyToDevice(target.address, values, values.byteLength, this.handle);
  }

  /** Waits for all work so far and fills `values` from the start of `source`. */
  read<Into extends Values>(source: DeviceBuffer, values: Into): Into {
    this.enqueueRead(source, values);
    this.synchronize();
    return values;
  }

  /** The same without waiting: `values` are there once the stream is synchronized. */
  enqueueRead(source: DeviceBuffer, values: Values): void {
    if (values.byteLength === 0) return;
    checkRoom(source, values.byteLength);
    this.driver.copyToHost(values, source.address, values.byteLength, this.handle);
  }

  /** Copies `bytes` (all of `source` by default) to the start of `target`. */
  copy(target: DeviceBuffer, source: DeviceBuffer, bytes: number = source.bytes): void {
    if (bytes === 0) return;
    checkRoom(target, bytes);
    checkRoom(source, bytes);
    this.driver.copyOnDevice(target.address, source.address, bytes, this.handle);
  }

  /** Zeros a buffer. */
  clear(target: DeviceBuffer): void {
    if (target.bytes > 0) this.driver.fillBytes(target.address, 0, target.bytes, this.handle);
  }

  /** Waits for all work so far. Failures of kernels appear here at the latest. */
  synchronize(): void {
    this.driver.synchronize(this.handle);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.driver.destroyStream(this.handle);
  }
}

function checkRoom(buffer: DeviceBuffer, bytes: number): void {
  if (bytes > buffer.bytes) {
    throw new RangeError(`a copy of ${bytes} bytes does not fit in a device buffer of ${buffer.bytes}`);
  }
}
