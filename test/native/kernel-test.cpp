// Tests the kernel set in use (DS4_CPU_ISA chooses it) against plain double-precision computations.
// Exit code 0: all passed; 1: some failed; 77: this processor or build has no such level.
#include "kernel-test.h"

#include <exception>

#include "cpu/matmul.h"

int main() {
  ds4::Report report;
  try {
    std::printf("level %s\n", ds4::kernelLevelName());
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 77;
  }
  ds4::testProducts(report);
  ds4::testOps(report);
  std::printf("%d passed", report.passed);
  if (report.failed > 0) std::printf(", %d failed", report.failed);
  std::printf("\n");
  return report.failed == 0 ? 0 : 1;
}
