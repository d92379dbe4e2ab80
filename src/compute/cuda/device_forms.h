// The forms that a model's matrices have on the device: what device_weights.h loads, and the bytes that it takes.
//
// Integer codes are those that the CPU packs (PackChoice, kernels/packed/packed.h), so each format and quantiser exists
// once. Scales and offsets are rounded to the activations' type; codes are not changed. Pure functions: any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "compute/cuda/types.h"
#include "compute/packing/pack_weights.h"
#include "compute/weights/open_weights.h"

namespace tactus::compute::cuda {

struct DeviceWeightChoice {
  Real type = Real::kBF16;  // of activations; kF32: all matrices are f32, the reference
  PackChoice packing;       // its quantization, calibrate and round_to_bf16
  bool fuse = true;         // see Fusion; changes no bit of a product by the kernels
};

// Products of one input that are one product: the rows of their matrices follow one another.
enum class Fusion : uint8_t { kQkv, kGateUp, kSharedGateUp };
inline constexpr size_t kFusions = 3;
struct FusedRoles {
  std::array<Role, 3> matrices;
  std::array<Role, 3> biases;  // kNone: none
};
const FusedRoles& RolesOf(Fusion fusion);

// A matrix on the device: one of the model's, or several whose rows follow one another.
struct DeviceSlot {
  DeviceMatrix form;  // without addresses
  bool offsets = false;
  int64_t bytes = 0;
  std::vector<size_t> parts;     // of DeviceWeightPlan::packing.slots
  std::optional<Fusion> fusion;  // of several parts
};

struct DeviceWeightPlan {
  PackPlan packing;
  std::vector<DeviceSlot> slots;
  int64_t bytes = 0;         // of all weights: matrices, vectors, and the experts' tables
  int64_t fp8_products = 0;  // matrices of TakesFp8Tokens, without those of routed experts
  std::string format;        // for display: "bf16", "int8 by 32 (14), bf16 (1) from q8_0 (15)"
};

// The form of a packed matrix for activations of `type`: kInt8 or kInt4 for integer codes, kReal for floats and for
// matrices whose columns are no multiple of 8 and of their groups. `scale_columns`: that share a scale, where they are
// several of the packed form's blocks; else 0. *offsets: whether values have offsets.
DeviceMatrix FormOf(const PackedMatrix& packed, int64_t scale_columns, Real type, bool* offsets);

// Codes of a packed row in the layout that Repack reads (kernels/quantized.h), scales and offsets rounded to form.real.
// scratch: [cols up to a multiple of kTokenBlock]. `offsets` null: `form` has none.
void WriteRow(const PackedMatrix& packed, int64_t row, const DeviceMatrix& form, uint8_t* scratch, std::byte* codes,
              std::byte* scales, std::byte* offsets);

// `opened` has MatrixUse::kRows. Embeddings and other looked-up tables have `type`, a tied output matrix with them;
// matrices that decide routing are f32; codes in e4m3 with a scale for a row or for all stay e4m3.
Result<DeviceWeightPlan> PlanDeviceWeights(const ModelConfig& config, OpenedWeights& opened,
                                           const DeviceWeightChoice& choice);

// The bytes of that plan, from headers alone.
Result<int64_t> PlanDeviceWeightBytes(const ModelDescription& description, const DeviceWeightChoice& choice,
                                      const std::optional<DummyWeights>& dummy = std::nullopt);

}  // namespace tactus::compute::cuda
