// Host time per step of each backend: from data/cost/host.json where measured, else one figure
// (docs/concepts/cost_model.md, "CPU overhead").
//
// Thread rule: the file is parsed once, on first use, and never changes.
#pragma once

#include <string>

#include "base/units.h"
#include "cost/registry.h"

namespace tactus::cost {

// A time by the step's number of sequences.
struct HostLine {
  double base_ns = 0, sequence_ns = 0;

  double At(int64_t sequences) const { return base_ns + sequence_ns * static_cast<double>(sequences); }
};

struct HostTimes {
  HostLine step;     // once per step: planning, processing results, the round trip to the workers
  HostLine stage;    // per stage: each has a separate process, which prepares its inputs
  HostLine sampler;  // at the last stage
  // Launch costs from the host, without a captured graph: per all-reduce within a node, beside its time; per layer, for
  // which the device waits where the layer's kernels are shorter.
  double all_reduce_ns = 0, layer_ns = 0;

  // Host time of a step at stage `at` of `stages`.
  double StageNs(int32_t at, int32_t stages, int64_t sequences) const {
    return stage.At(sequences) + (at == 0 ? step.At(sequences) : 0) + (at == stages - 1 ? sampler.At(sequences) : 0);
  }
};

// `stated_ns`: the host's time per step, instead of the backend's; below 0: not stated. kInvalidArgument: an unknown
// backend.
Result<HostTimes> FindHostTimes(const std::string& backend, DurationNs stated_ns, const DeviceSpec& device, int32_t tp,
                                int32_t pp);

// "50 us of host time per step"; for a measured host its parts.
std::string Describe(const HostTimes& host, int32_t stages);

}  // namespace tactus::cost
