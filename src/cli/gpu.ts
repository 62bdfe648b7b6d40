// The GPU of this machine, for the memory plan and for choosing a backend.
import { existsSync } from "node:fs";
import type { CudaDriver, DeviceInfo } from "../backend/cuda/driver.ts";
import { KERNEL_IMAGE_PATH } from "../backend/cuda/kernel-image.ts";
import { loadCudaDriver } from "../backend/cuda/load-driver.ts";
import { probeDevice } from "../backend/cuda/open-device.ts";
import { Ds4Error } from "../core/errors.ts";
import { type Machine, withGpu } from "../machine/machine.ts";

/** A usable GPU and its free memory, or why there is none. */
export type GpuProbe =
  | { gpu: { driver: CudaDriver; device: DeviceInfo; freeBytes: number }; reason: null }
  | { gpu: null; reason: string };

/** Looks at the first GPU. Never throws. */
export function probeGpu(): GpuProbe {
  const { driver, reason } = loadCudaDriver();
  if (driver === null) return { gpu: null, reason };
  if (!existsSync(KERNEL_IMAGE_PATH)) {
    return {
      gpu: null,
      reason: `the CUDA kernels are not built (${KERNEL_IMAGE_PATH}); run: npm run build:cuda`,
    };
  }
  try {
    return { gpu: { driver, ...probeDevice(driver, 0) }, reason: null };
  } catch (error) {
    if (!(error instanceof Ds4Error)) throw error;
    return { gpu: null, reason: error.message };
  }
}

/** The machine with its GPU's memory. Throws `cuda` with the reason when there is no usable GPU. */
export function machineWithGpu(machine: Machine, probe: GpuProbe = probeGpu()): Machine {
  if (probe.gpu === null) {
    throw new Ds4Error("cuda", `no CUDA device can be used: ${probe.reason}; or run with --cpu`);
  }
  const { device, freeBytes } = probe.gpu;
  return withGpu(machine, { ...device, freeBytes });
}
