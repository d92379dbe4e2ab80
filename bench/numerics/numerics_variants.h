// The arithmetics that numerics_table compares: choices of the engine's options, and emulations of int8 activations in
// single operators, through the f32 kernels.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/exec/numerics.h"
#include "compute/exec/step_runner.h"

namespace tactus::bench {

// Which linear operators have int8 activations; the others have f32.
struct Int8Operators {
  bool q = false, kv = false, wo = false, gate_up = false, down = false, lm_head = false;
};

struct NumericsVariant {
  std::string name;
  compute::NumericsOptions options;
  bool emulate = false;  // `operators` in int8, blocks like the packed operators'; options must keep rows
  Int8Operators operators;
};

// The first is the f32 reference.
std::vector<NumericsVariant> MakeVariants(bool integer_weights);
// Every rounding of activations, with bf16 KV, for weights with this quantisation at load; none: as stored. The first
// is the reference, whose rounding of activations has no visible effect.
std::vector<NumericsVariant> MakeActivationVariants(bool integer_weights, std::string_view quantization);
// Which operators int8 activations affect: the reference (all in f32), each one in int8 alone, all, and all but some.
std::vector<NumericsVariant> MakeOperatorVariants();

struct LoadedVariant {
  compute::CpuWeights weights;
  compute::Numerics numerics;
  const compute::Ops* ops = nullptr;
};
// One emulating variant at a time: the emulation is process-wide.
Result<LoadedVariant> LoadVariant(const compute::ModelDescription& description, const NumericsVariant& variant);

// 8-bit multiplications relative to 8 bits everywhere, without and with the output matrix; none if a matrix is
// multiplied by floats.
struct Arithmetic {
  double prompt = 0, decode = 0;
};
std::optional<Arithmetic> ArithmeticOf(const compute::CpuWeights& weights);

}  // namespace tactus::bench
