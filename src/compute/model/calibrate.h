// Rounding a model's matrices to int4 by least squares against the model's own activations (kernels/fit/).
//
// The model writes the calibration itself: 4,096 tokens, sampled with each matrix rounded to the nearest. Then a
// forward pass in f32 reads them. Each matrix is rounded when its input is known, and the pass goes on with the rounded
// one, so that later matrices make up for the errors of earlier ones.
//
// Nothing but the model decides: the weights are the same on every start, for any number of threads and kernel set, on
// every machine of an architecture. What of a kernel set has bits of its own is left to the set `scalar`, and products
// of f32 to kernels/fit/.
#pragma once

#include <functional>

#include "compute/weights/pack_weights.h"

namespace tactus::compute {

// Packs those matrices of `plan` that have int4's form once more into `memory` [plan.bytes], which PackAll has filled.
// `weights`: as PlanPacking left them. `progress(part done, 0 to 1)` is called now and then on the calling thread.
// kResourceExhausted: no memory, and how much it takes. kDataLoss: logits that are not finite.
Status PackCalibrated(const PackPlan& plan, const ModelConfig& config, const TensorNames& names, WeightSource& source,
                      const ModelWeights& weights, ThreadPool& pool, std::byte* memory,
                      const std::function<void(double)>& progress);

}  // namespace tactus::compute
