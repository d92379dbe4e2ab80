// Rounds a model's matrices to int4 by least squares against the model's own activations (kernels/fit/).
//
// The model writes the calibration text itself: 4,096 tokens, sampled with each matrix rounded to the nearest. Then a
// forward pass in f32 reads them. Each matrix is rounded once its input is known, and the pass continues with the
// rounded matrix, so that later matrices compensate the errors of earlier ones.
//
// The result depends on the model alone: the weights are the same on every start, for any number of threads and kernel
// set, on every machine of an architecture. Operators whose bits depend on the kernel set run on the set `scalar`,
// products of f32 in kernels/fit/.
#pragma once

#include <functional>

#include "compute/packing/pack_weights.h"

namespace tactus::compute {

// Packs again those matrices of `plan` that have int4's form, into `memory` [plan.bytes], which PackAll has filled.
// `weights`: as PlanPacking left them. `progress(fraction done, 0 to 1)` is called now and then on the calling thread.
// kResourceExhausted: not enough memory, with the size needed. kDataLoss: logits that are not finite.
Status PackCalibrated(const PackPlan& plan, const ModelConfig& config, const TensorNames& names, WeightSource& source,
                      const ModelWeights& weights, ThreadPool& pool, std::byte* memory,
                      const std::function<void(double)>& progress);

}  // namespace tactus::compute
