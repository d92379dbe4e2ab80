// Length distributions by name: quantile tables of public traces (named_workloads.def, made by tools/workload_fit.py).
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"

namespace tactus::sim {

struct NamedWorkload {
  const char* name;
  const char* help;
  std::span<const int32_t> prompt, output;  // tokens at the knots, ascending
  double correlation;                       // of the normal variables behind the two
};
std::span<const NamedWorkload> NamedWorkloads();

struct Lengths {
  int64_t prompt = 0, output = 0;
};
// Both through a Gaussian copula: four numbers of `rng`.
Lengths DrawLengths(const NamedWorkload& workload, Rng& rng);

}  // namespace tactus::sim
