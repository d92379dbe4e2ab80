// What a start chooses by the machine: compute threads, kernel set and pages, each with the reason. A server starts by
// these functions (ChooseModelNumerics), and `tactus doctor` prints what they return. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine_facts.h"
#include "compute/kernels/ops.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::compute {

// What bounds the threads of this process.
struct CpuBounds {
  int32_t cpus = 1;        // by affinity
  int32_t cores = 0;       // that these are on; fewer: some are hyperthreads of one core; 0: unknown
  double quota_cores = 0;  // of the cgroup; 0: none
};
CpuBounds ReadCpuBounds(const std::string& root = "");

struct ThreadChoice {
  int32_t threads = 1;
  std::string why;  // "one for each of 2 CPUs"
};
// How many times as fast a product is with this many threads as with one per core.
using ThreadGain = std::function<double(int32_t threads)>;
inline constexpr double kLeastGain = 1.05;
// `wanted`: --threads, 0 to choose: one for each core, and one for each hyperthread where `gain` is kLeastGain or more,
// within the quota. `gain` is called only where cores have hyperthreads that the quota leaves.
ThreadChoice ChooseThreads(int64_t wanted, const CpuBounds& bounds, const ThreadGain& gain);

struct KernelChoice {
  const Ops* ops = nullptr;
  std::string why;                    // "the fastest that this machine runs"
  std::vector<std::string> runnable;  // slowest first
  std::string fastest;                // the last of them
};
// kInvalidArgument: this machine cannot run the kernels; names --kernels, its choices and a remedy.
Result<KernelChoice> ChooseKernels(const std::string& wanted);

struct PageChoice {
  bool huge = false;   // whether the system grants the huge pages that a start requests
  std::string why;     // "the system grants huge pages on request (madvise)"
  std::string advice;  // what to change; empty: nothing
};
PageChoice ChoosePages(const PageFacts& facts);

struct MachineChoice {
  ThreadChoice threads;
  KernelChoice kernels;
  PageChoice pages;
};
// Measures the gain of hyperthreads, where there are any, once per process and kernel set (0.2 s).
Result<MachineChoice> ChooseForMachine(const EngineOptions& options, Clock& clock);

}  // namespace tactus::compute
