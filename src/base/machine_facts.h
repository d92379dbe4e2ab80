// Properties of the machine that decide how fast a model is computed, read from /proc and /sys: for `tactus doctor`.
// They hold nothing that identifies the machine or its user. `root` replaces "/" in tests. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu_limits.h"

namespace tactus {

struct PageFacts {
  std::string huge;        // transparent huge pages: always | madvise | never; empty: unknown
  std::string defrag;      // when memory is compacted for them: always | defer | defer+madvise | madvise | never
  bool forbidden = false;  // for this process alone (prctl PR_SET_THP_DISABLE)
};
PageFacts ReadPageFacts(const std::string& root = "");

struct NumaNode {
  int32_t id = 0;
  int32_t cpus = 0;          // of those that this process may use
  int64_t memory_bytes = 0;  // 0: unknown
};

struct MachineFacts {
  std::string processor;              // "AMD EPYC 9655 96-Core Processor"
  std::string kernel;                 // release of the operating system's kernel
  bool virtual_machine = false;       // as the processor's flags say
  int32_t online_cpus = 0;            // 0: unknown
  std::vector<int32_t> cpus;          // allowed; empty: unknown
  int32_t cores = 0;                  // that these are on; 0: unknown
  double quota_cores = 0;             // 0: none
  std::string governor;               // of the allowed CPUs; "performance, powersave" where they differ; empty: unknown
  int32_t now_mhz = 0, most_mhz = 0;  // of the fastest allowed CPU; 0: unknown
  PageFacts pages;
  std::vector<NumaNode> nodes;  // with CPUs or memory; empty: unknown
  int64_t cache_bytes = 0;      // of one last-level cache; 0: unknown
  int64_t memory_bytes = 0;     // of the machine; 0: unknown
  int64_t swap_bytes = 0, swap_used_bytes = 0;
};
MachineFacts ReadMachineFacts(const std::string& root = "");
// Its field `processor` alone.
std::string ProcessorName(const std::string& root = "");

// Counts that grow while the machine runs. Their differences over a time are what the neighbours of a process took.
struct MachineCounters {
  DurationNs busy_ns = 0;            // of the allowed CPUs, by all processes
  DurationNs stolen_ns = 0;          // that a hypervisor gave to others
  DurationNs own_ns = 0;             // CPU time of this process
  int64_t involuntary_switches = 0;  // of this process's threads, also of ended ones
  DurationNs throttled_ns = 0;       // by the cgroup's quota
  int64_t throttled_times = 0;
  int64_t swapped_pages = 0;  // in and out, of the machine
};
MachineCounters ReadMachineCounters(const std::vector<int32_t>& cpus, const std::string& root = "");

// Memory of this process in bytes: all that is resident, and what of it lies in huge pages; -1: unknown.
struct ResidentMemory {
  int64_t bytes = -1, huge_bytes = -1;
};
ResidentMemory ReadResidentMemory(const std::string& root = "");

}  // namespace tactus
