// What the functions that launch kernels are given.
import type { DeviceInfo } from "./driver.ts";
import type { KernelModule } from "./module.ts";
import type { DeviceStream } from "./stream.ts";

/** Where kernels run: code, stream and the device's figures. */
export interface CudaContext {
  readonly module: KernelModule;
  readonly stream: DeviceStream;
  readonly device: DeviceInfo;
}
