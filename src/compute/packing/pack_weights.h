// Packs a model's matrices for the fast operators (compute/kernels/packed/packed.h) from a source that returns rows
// piece by piece: the two forms of a matrix are never in memory together. One tied matrix serves embedding and output.
//
// PlanPacking and BindPacked: the loading thread. PackAll uses all of its pool.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compute/kernels/thread_pool.h"
#include "compute/packing/packed_weights.h"
#include "compute/weights/weight_builder.h"

namespace tactus::compute {

// The packed form of the matrices, and the tokens it is for. By default each matrix keeps its file's format.
struct PackChoice {
  Quantization quantization = Quantization::kNone;
  // kInt4: rounded by least squares against the model's activations (calibrate.h), not each weight separately.
  bool calibrate = false;
  bool round_to_bf16 = false;  // every matrix, quantised ones too
  // Rounding of the tokens that integer weights are multiplied with; kNone: any. With kInt8 and kMixed the output
  // matrix has kInt16, but kMixedFine under kMixed where quantising to int4 costs far more. With kMixed w_down has
  // kMixedFine: its tokens have more large values and cause nearly half of the error. With kInt8 wk and wv have kInt16
  // where grouped queries make them at most a twelfth of a layer (docs/concepts/numerics.md).
  Rounding rounding = Rounding::kInt16;
};

struct PackedSlot {
  std::string name;  // TensorRequest::id
  ModelTensor tensor;
  MatrixView source;
  PackedMatrix form;   // without data
  int64_t offset = 0;  // bytes from the start of the packed memory, a multiple of 64
};

struct PackPlan {
  std::vector<PackedSlot> slots;  // in the order of MatrixPlaces
  int64_t bytes = 0;              // of the packed memory
  int64_t source_bytes = 0;       // of the rows read for it
  bool calibrate = false;         // PackCalibrated rounds int4's matrices once more
};

// The form of --quantization int4, which no file has.
bool IsInt4(const PackedMatrix& form);

// kInvalidArgument: a matrix has no packed form for this choice.
Result<PackPlan> PlanPacking(const ModelConfig& config, const TensorNames& names, const PackChoice& choice,
                             ModelWeights* weights);

// Fills `memory` [plan.bytes], 64-byte aligned. `progress(bytes of rows done)` is called now and then on the calling
// thread. kResourceExhausted: no memory for scratch.
Status PackAll(const PackPlan& plan, WeightSource& source, ThreadPool& pool, std::byte* memory,
               const std::function<void(int64_t)>& progress);

// Points `weights` at its packed matrices in `memory`, drops the rows' data from it, counts the bytes. Owns nothing.
void BindPacked(const PackPlan& plan, const ModelConfig& config, const PackChoice& choice, const std::byte* memory,
                CpuWeights* weights);

// "q4_1", "bf16 from f32 and f16": the packed form of weights that FormatText describes as `source_format`.
std::string PackedFormatText(const PackChoice& choice, const std::string& source_format);

}  // namespace tactus::compute
