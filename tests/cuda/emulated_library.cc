// Part of the library that programs load in tests: what the emulator found is written to standard error at the end of
// the process, where tests/e2e/cuda_test.py looks for it.
#include <cstdio>

#include "cuda/emulator/emulator.h"

namespace {

struct Report {
  ~Report() {
    for (const std::string& finding : tactus::compute::cuda::emulator::TakeFindings()) {
      std::fprintf(stderr, "emulated device: %s\n", finding.c_str());
    }
  }
};
const Report report;

}  // namespace
