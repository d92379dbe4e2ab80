// The arithmetics that numerics_table compares: choices of the engine's options, and emulations of int8 activations in
// some operators only, through the f32 kernels.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/exec/numerics.h"
#include "compute/exec/step_runner.h"

namespace tactus::bench {

// Which linear operators see int8 activations; the others see f32.
struct Int8Operators {
  bool q = false, kv = false, wo = false, gate_up = false, down = false, lm_head = false;
};

struct NumericsVariant {
  std::string name;
  compute::NumericsOptions options;
  bool emulate = false;  // `operators` in int8, blocks as the packed operators have them; options must leave rows
  Int8Operators operators;
};

// The first is the f32 reference.
std::vector<NumericsVariant> MakeVariants(bool integer_weights);
// Every rounding of activations, with bf16 KV, of weights quantised at load so; none: as they are stored. The first is
// what the others are measured against, whose activations cost nothing that could be seen.
std::vector<NumericsVariant> MakeActivationVariants(bool integer_weights, std::string_view quantization);
// Which operators int8 activations hurt: the reference, all in f32, each one in int8 alone, all, and all but some.
std::vector<NumericsVariant> MakeOperatorVariants();

struct LoadedVariant {
  compute::ModelWeights weights;
  compute::Numerics numerics;
  const compute::Ops* ops = nullptr;
};
// One emulating variant at a time: it is process-wide.
Result<LoadedVariant> LoadVariant(const compute::ModelDescription& description, const NumericsVariant& variant);

// Multiplications of 8 bits over those that 8 bits everywhere would take, without and with the output matrix; none
// where a matrix meets floats.
struct Arithmetic {
  double prompt = 0, decode = 0;
};
std::optional<Arithmetic> ArithmeticOf(const compute::ModelWeights& weights);

}  // namespace tactus::bench
