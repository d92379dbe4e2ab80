// Loads a described model's weights in the CPU's form: packed, or as rows.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "compute/packing/pack_weights.h"
#include "compute/packing/packed_weights.h"
#include "compute/weights/dummy_weights.h"
#include "compute/weights/model_description.h"

namespace tactus::compute {

// Rows (without `pack`): maps the weights and points MatrixViews into the mapping; dequantize_to_f32 converts
// everything to f32 (the reference mode, owned memory). Packed: matrices are packed piece by piece on `threads` threads
// into separate memory, or mapped from the cache folder; their rows are not kept. Norms and biases are converted to
// f32. Every tensor's shape and dtype is checked against the config.
struct LoadWeightsOptions {
  bool dequantize_to_f32 = false;
  std::optional<DummyWeights> dummy;  // seeded random weights of the description's config, in place of its files
  bool pack = false;                  // not with dequantize_to_f32
  PackChoice packing;
  int32_t threads = 1;
  std::string cache_folder;                     // stores packed weights between starts; empty: none
  std::function<void(const std::string&)> say;  // receives progress and the result, on the calling thread; null: no
                                                // output
};
// `clock`: for the times that `say` reports and the packing threads' waits.
Result<CpuWeights> LoadWeights(const ModelDescription& description, const LoadWeightsOptions& options, Clock& clock);

// Memory that the weights will take, as LoadWeights counts it in `bytes`, from headers alone. Without `pack` an
// estimate: the files' size, 4 bytes per parameter under dequantize_to_f32, 2 for dummies.
Result<int64_t> PlanWeightBytes(const ModelDescription& description, const LoadWeightsOptions& options);

}  // namespace tactus::compute
