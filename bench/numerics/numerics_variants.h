// The arithmetics that numerics_table compares: choices of the engine's options, and emulations of int8 activations in
// some operators only, through the f32 kernels.
#pragma once

#include <string>
#include <vector>

#include "exec/numerics.h"
#include "exec/step_runner.h"

namespace tactus::bench {

// Which linear operators see int8 activations; the others see f32.
struct Int8Operators {
  bool q = false, kv = false, wo = false, gate_up = false, down = false, lm_head = false;
};

struct NumericsVariant {
  std::string name;
  NumericsOptions options;
  bool emulate = false;  // `operators` in int8, blocks as the packed operators have them; options must leave rows
  Int8Operators operators;
};

// The first is the f32 reference.
std::vector<NumericsVariant> MakeVariants(bool integer_weights);
// Which operators int8 activations hurt: the reference, all in f32, each one in int8 alone, all, and all but some.
std::vector<NumericsVariant> MakeOperatorVariants();

struct LoadedVariant {
  ModelWeights weights;
  Numerics numerics;
  const kernels::Ops* ops = nullptr;
};
// One emulating variant at a time: it is process-wide.
Result<LoadedVariant> LoadVariant(const ModelDescription& description, const NumericsVariant& variant);

}  // namespace tactus::bench
