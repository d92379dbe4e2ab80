// Part of the library that programs load in tests. What the emulator found is written to standard error at the end of
// the process, where tests/e2e/cuda_test.py looks for it. TACTUS_EMULATED_STEPS=N: the device fails in the step after
// N.
#include <cstdio>
#include <cstdlib>

#include "cuda/emulator/emulator.h"

namespace {

namespace emulator = tactus::compute::cuda::emulator;

struct Test {
  Test() {
    const char* const steps = std::getenv("TACTUS_EMULATED_STEPS");
    if (steps == nullptr) return;
    const auto error = tactus::Internal("launch of CountSampled: an injected error");
    emulator::FailLaunchAfter(std::atoll(steps), error, "CountSampled");  // each step has one
  }
  ~Test() {
    for (const std::string& finding : emulator::TakeFindings()) {
      std::fprintf(stderr, "emulated device: %s\n", finding.c_str());
    }
  }
};
const Test test;

}  // namespace
