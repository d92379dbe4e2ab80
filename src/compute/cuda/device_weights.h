// A model's weights on the device: matrices in a form that products use, norms and biases in f32. Immutable after
// loading.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/weights.h"

namespace tactus::compute::cuda {

// As LayerWeights: what a layer's blocks declare, by role.
struct DeviceLayer : LayerMatrices<DeviceMatrix> {
  std::vector<DeviceLayer> experts;

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
  std::string format;                                 // for display: "bf16", "bf16 from q4_K and q6_K"
  int64_t bytes = 0;
  std::vector<DeviceMemory> memory;
};

// Bytes that LoadDeviceWeights will take, from the declarations alone.
int64_t PlanDeviceWeightBytes(const ModelConfig& config, Real type);

// Reads every tensor of `opened` (MatrixUse::kRows), rounds matrices to `type` (those that decide the routing of tokens
// stay f32: IsRouting) and copies them to the device. `progress(bytes read)` is called now and then.
Result<DeviceWeights> LoadDeviceWeights(const ModelConfig& config, OpenedWeights& opened, Real type, int32_t threads,
                                        Clock& clock, const std::function<void(int64_t)>& progress);

}  // namespace tactus::compute::cuda
