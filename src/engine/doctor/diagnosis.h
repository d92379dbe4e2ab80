// What `tactus doctor` knows about this machine and a model on it, and the rules that find what costs speed. Pure
// functions of measured values, so that tests inject them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/machine_facts.h"
#include "compute/ceilings/ceilings.h"
#include "compute/exec/machine_choice.h"
#include "engine/doctor/model_speed.h"

namespace tactus::engine {

// CPUs that other processes use at most on an idle machine: beyond it compute threads pause (team_size.h).
inline constexpr double kOtherCpus = 0.3;

// What other processes and other machines took.
struct Neighbours {
  DurationNs quiet_ns = 0, loaded_ns = 0;  // the time in which this process waited, and that in which it computed
  double other_cpus = 0;                   // that other processes used in the quiet time
  double stolen_share = 0;                 // of the CPUs' time, taken by the hypervisor, in both
  double switches_per_s = 0;               // involuntary ones of this process, in the loaded time
  double throttled_share = 0;              // of the loaded time, by the cgroup's quota
  int64_t swapped_pages = 0;               // in both times, on the machine
};

// Differences of counters: `begin` to `middle` is the quiet time, `middle` to `end` the loaded one.
Neighbours NeighboursOf(const MachineCounters& begin, const MachineCounters& middle, const MachineCounters& end,
                        DurationNs quiet_ns, DurationNs loaded_ns, int32_t cpus);

struct Diagnosis {
  MachineFacts machine;
  compute::MachineChoice choice;       // of a start with the same options
  compute::ThreadChoice best_threads;  // of a start without --threads
  int64_t available_bytes = -1;        // that this process may still allocate; -1: unknown
  compute::Ceilings one, all;          // of one thread, and of the chosen ones
  Neighbours neighbours;
  std::optional<ModelSpeed> model;
};

// The least time of a step, by what the machine reached in the same run.
struct StepFloor {
  double memory_ms = 0;      // reading weights and KV once; 0: unknown
  double arithmetic_ms = 0;  // the products, at their ceiling
  bool cached = false;       // weights and KV fit the last-level cache, so that reading may take less
  double floor_ms() const { return memory_ms > arithmetic_ms ? memory_ms : arithmetic_ms; }
};
StepFloor FloorOf(const StepSpeed& step, const compute::Ceilings& all, int64_t cache_bytes);

// Something that costs speed.
struct Finding {
  std::string what;    // "huge pages"
  std::string value;   // "off on this machine (never)"
  std::string limit;   // what is expected: "on request (madvise)"
  std::string advice;  // what to change
};
std::vector<Finding> FindingsOf(const Diagnosis& diagnosis);

// For people: a line per fact, tables of rates and steps, the findings.
std::string DiagnosisText(const Diagnosis& diagnosis);
// For bug reports (docs/reference/doctor.md). Holds no names of machines, users, files or models. Unknown values are
// null.
Json DiagnosisJson(const Diagnosis& diagnosis);

}  // namespace tactus::engine
