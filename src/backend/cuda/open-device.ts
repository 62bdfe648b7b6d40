// Opens a device: context, stream and kernels, or why it cannot be used.
import { Ds4Error } from "../../core/errors.ts";
import type { CudaContext } from "./context.ts";
import { CudaError } from "./cuda-error.ts";
import type { CudaDriver, DeviceInfo } from "./driver.ts";
import { readKernelImage } from "./kernel-image.ts";
import { loadCudaDriver } from "./load-driver.ts";
import { KernelModule } from "./module.ts";
import { DeviceStream } from "./stream.ts";

/** Oldest compute capability that the kernels are compiled for, times ten. */
export const LEAST_COMPUTE_CAPABILITY = 80;

/** What can be chosen. */
export interface DeviceOptions {
  /** Default: the machine's. */
  driver?: CudaDriver;
  /** Default 0: the first that CUDA_VISIBLE_DEVICES leaves. */
  device?: number;
  /** Default: build/cuda/ds4.fatbin. */
  kernelImage?: Uint8Array;
}

/** An open device. `close` gives everything back. */
export interface OpenDevice extends CudaContext {
  readonly driver: CudaDriver;
  close(): void;
}

/** The driver of this machine. Throws `cuda` with the reason when there is none. */
export function requireDriver(): CudaDriver {
  const load = loadCudaDriver();
  if (load.driver !== null) return load.driver;
  throw new Ds4Error("cuda", `no CUDA device: ${load.reason}; install the NVIDIA driver or run with --cpu`);
}

/** Opens the device. Throws `cuda`; nothing stays open then. */
export function openDevice(options: DeviceOptions = {}): OpenDevice {
  const driver = options.driver ?? requireDriver();
  const device = chosenDevice(driver, options.device ?? 0);
  const image = options.kernelImage ?? readKernelImage();
  driver.retainContext(device.ordinal);
  let stream: DeviceStream | undefined;
  let module: KernelModule | undefined;
  const close = () => {
    try {
      module?.close();
      stream?.close();
    } finally {
      driver.releaseContext(device.ordinal);
    }
  };
  try {
    stream = new DeviceStream(driver);
    module = new KernelModule(driver, image);
    return { driver, device, stream, module, close };
  } catch (error) {
    closeQuietly(close);
    throw error;
  }
}

/** A device and its free memory. Throws `cuda` when it cannot be used. */
export function probeDevice(driver: CudaDriver, ordinal: number): { device: DeviceInfo; freeBytes: number } {
  const device = chosenDevice(driver, ordinal);
  driver.retainContext(ordinal);
  try {
    return { device, freeBytes: driver.memoryInfo().freeBytes };
  } finally {
    driver.releaseContext(ordinal);
  }
}

/** Runs `close` on the way out of another failure. */
export function closeQuietly(close: () => void): void {
  try {
    close();
  } catch (error) {
    if (!(error instanceof Ds4Error)) throw error;
  }
}

function chosenDevice(driver: CudaDriver, ordinal: number): DeviceInfo {
  const count = driver.deviceCount();
  if (ordinal < 0 || ordinal >= count) {
    throw new CudaError("cuDeviceGet", "CUDA_ERROR_INVALID_DEVICE", `device ${ordinal} of ${count}`);
  }
  const device = driver.deviceInfo(ordinal);
  if (device.computeCapability < LEAST_COMPUTE_CAPABILITY) {
    throw new Ds4Error(
      "cuda",
      `${device.name} has compute capability ${device.computeCapability / 10}, the kernels need ` +
        `${LEAST_COMPUTE_CAPABILITY / 10} or newer; run with --cpu`,
    );
  }
  return device;
}
