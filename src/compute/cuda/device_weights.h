// A model's weights on the device: matrices in the forms of device_forms.h, norms and biases in f32. Immutable after
// loading.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compute/cuda/device_forms.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/weights.h"

namespace tactus::compute::cuda {

// Matrices of one input, their rows and their biases one after another.
struct FusedProduct {
  DeviceMatrix matrix;          // rows 0: each matrix is by itself
  const float* bias = nullptr;  // null: none
};

// As LayerWeights: what a layer's blocks declare, by role. Matrices of a fused product are in it alone.
struct DeviceLayer : LayerMatrices<DeviceMatrix> {
  std::vector<DeviceLayer> experts;
  std::array<FusedProduct, kFusions> fused;  // by Fusion

  // Null: each matrix is by itself.
  const FusedProduct* FusedOf(Fusion fusion) const {
    const FusedProduct& product = fused[static_cast<size_t>(fusion)];
    return product.matrix.rows > 0 ? &product : nullptr;
  }

  const float*& vector(Role role) { return vectors_[static_cast<size_t>(role) - kMatrixRoles]; }
  const float* vector(Role role) const {
    return role == Role::kNone ? nullptr : vectors_[static_cast<size_t>(role) - kMatrixRoles];
  }
  // The experts' matrices and biases of a role as arrays in device memory: DeviceMatrix [experts], f32 [experts, rows].
  const DeviceMatrix* stacked(Role role) const { return stacks_[static_cast<size_t>(role)]; }
  void set_stacked(Role role, const DeviceMatrix* at) { stacks_[static_cast<size_t>(role)] = at; }

 private:
  std::array<const float*, kVectorRoles> vectors_{};
  std::array<const DeviceMatrix*, kMatrixRoles> stacks_{};
};

struct DeviceWeights {
  DeviceMatrix embedding, positions, lm_head;
  DeviceLayer outside;
  std::vector<DeviceLayer> layers;
  std::map<std::pair<int64_t, Role>, float> scalars;  // vectors of one value, by layer and role
  std::string format;                                 // DeviceWeightPlan::format
  int64_t bytes = 0;                                  // as planned
  std::vector<DeviceMemory> memory;
};

struct DeviceLoadOptions {
  DeviceWeightChoice choice;
  bool dummy = false;  // random weights, which int4 rounds to the nearest
  int32_t threads = 1;
  // Called now and then, if not null: with the bytes read, and with the part of int4's rounding that is done, 0 to 1.
  std::function<void(int64_t)> progress;
  std::function<void(double)> rounded;
};

// Reads every tensor of `opened` (MatrixUse::kRows), brings matrices into their forms and copies them to the device.
// Under int4 by least squares the packed weights are in the host's memory while they are loaded.
Result<DeviceWeights> LoadDeviceWeights(const ModelConfig& config, OpenedWeights& opened,
                                        const DeviceLoadOptions& options, Clock& clock);

}  // namespace tactus::compute::cuda
