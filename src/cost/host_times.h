// What the host adds to a step, by whose host code is priced: data/cost/host.json where it was measured, else one
// figure (docs/cost_model.md, "CPU overhead").
//
// Thread rule: the file is parsed once, on first use, and never changes.
#pragma once

#include <string>

#include "base/units.h"
#include "cost/registry.h"

namespace tactus::cost {

// A time by the step's sequences.
struct HostLine {
  double base_ns = 0, sequence_ns = 0;

  double At(int64_t sequences) const { return base_ns + sequence_ns * static_cast<double>(sequences); }
};

struct HostTimes {
  HostLine step;     // once a step: planning it, taking in its results, the round to the workers
  HostLine stage;    // at every stage: each has a process of its own, which prepares its inputs
  HostLine sampler;  // at the last stage
  // What launching from the host costs, where no captured graph does it: of each all-reduce in a node, beside its time;
  // of a layer's kernels, behind which the device waits where they are shorter.
  double all_reduce_ns = 0, layer_ns = 0;

  // Of a step of a model that `stages` share.
  double StageNs(int32_t at, int32_t stages, int64_t sequences) const {
    return stage.At(sequences) + (at == 0 ? step.At(sequences) : 0) + (at == stages - 1 ? sampler.At(sequences) : 0);
  }
};

// `stated_ns`: the host's time per step, instead of the backend's; below 0: none is stated. kInvalidArgument: a backend
// that is not known.
Result<HostTimes> FindHostTimes(const std::string& backend, DurationNs stated_ns, const DeviceSpec& device, int32_t tp,
                                int32_t pp);

// "50 us of host time per step"; of a host that was measured its parts.
std::string Describe(const HostTimes& host, int32_t stages);

}  // namespace tactus::cost
