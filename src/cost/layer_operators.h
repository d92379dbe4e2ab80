// The operators of one layer beside attention, from the declarations of its blocks.
//
// Pure function: any thread.
#pragma once

#include <functional>
#include <vector>

#include "compute/config/blocks.h"
#include "cost/operator_times.h"

namespace tactus::cost {

// An operator of one layer, by the step's tokens.
struct LayerOperator {
  const char* name;
  const char* kind;      // as StepPart's
  bool product;          // of matrices
  bool of_all_replicas;  // that share experts: depends on the tokens of all
  std::function<double(int64_t)> ns;
};

// What the operators depend on beside the layer.
struct LayerSetting {
  const OperatorTimes* times;  // must outlive the operators
  WeightFormat format;
  WeightFormat router;  // of the matrices that choose experts
  int64_t hidden = 0;
  double kv_bytes = 2;  // per element of K or V
  int32_t tp = 1;       // devices that share each product
  int32_t ep = 1;       // replicas that share the experts (Deployment::ep)
  double all_reduce_launch_ns = 0;
};

// `layer`: one device's share, but with all experts.
std::vector<LayerOperator> OperatorsOf(const compute::Layer& layer, const LayerSetting& setting);

}  // namespace tactus::cost
