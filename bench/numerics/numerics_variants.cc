#include "numerics_variants.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tactus::bench {
namespace {

const compute::Ops* g_base = nullptr;
std::set<const void*> g_int8;  // matrices whose input is rounded

float LargestOf(const float* x, int64_t begin, int64_t end) {
  float largest = 0.0f;
  for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Rounds a row to int8 with a scale per `block` columns (compute/kernels/packed/packed.h); the result is f32.
void RoundToInt8(const float* x, int64_t n, int64_t block, float* out) {
  for (int64_t b = 0; b < n; b += block) {
    const int64_t end = std::min(b + block, n);
    const float scale = LargestOf(x, b, end) * compute::kNarrowReach;
    const float inverse = scale >= compute::kTokenZero ? 1.0f / scale : 0.0f;
    for (int64_t i = b; i < end; ++i) out[i] = std::nearbyint(x[i] * inverse) * scale;
  }
}

// Integer products over such blocks, up to f32 sums: the same numbers through the f32 kernel.
void LinearInt8(compute::ThreadPool& pool, const float* x, int64_t tokens, const compute::MatrixView& w,
                const float* bias, float* y, compute::Workspace scratch) {
  if (!g_int8.contains(w.data)) return g_base->linear(pool, x, tokens, w, bias, y, scratch);
  compute::PackedMatrix form;
  const bool known = compute::PackedFormOf(w.dtype, w.rows, w.cols, &form);
  const int64_t block = known ? compute::TokensFor(form, compute::Rounding::kInt8).block : compute::kTokenBlock;
  std::vector<float> rounded(static_cast<size_t>(tokens * w.cols));
  for (int64_t t = 0; t < tokens; ++t) RoundToInt8(x + t * w.cols, w.cols, block, rounded.data() + t * w.cols);
  g_base->linear(pool, rounded.data(), tokens, w, bias, y, scratch);
}

const compute::Ops* EmulatingOps(const compute::CpuWeights& w, const Int8Operators& which) {
  g_int8.clear();
  const auto add = [](bool wanted, std::initializer_list<const void*> matrices) {
    if (wanted) g_int8.insert(matrices);
  };
  for (const compute::LayerWeights& l : w.layers) {
    add(which.q, {l[compute::Role::kQ].data});
    add(which.kv, {l[compute::Role::kK].data, l[compute::Role::kV].data});
    add(which.wo, {l[compute::Role::kO].data});
    add(which.gate_up, {l[compute::Role::kGate].data, l[compute::Role::kUp].data});
    add(which.down, {l[compute::Role::kDown].data});
  }
  add(which.lm_head, {w.lm_head.data});
  static compute::Ops ops;
  g_base = compute::SelectOps();
  ops = *g_base;
  ops.name = "int8 emulated";
  ops.linear = LinearInt8;
  return &ops;
}

constexpr compute::NumericsOptions kReference{.dtype = "float32"};
constexpr compute::NumericsOptions kRows{.activation_dtype = "float32"};

}  // namespace

std::vector<NumericsVariant> MakeVariants(bool integer_weights) {
  std::vector<NumericsVariant> v = {
      {"float32 (reference)", kReference},
      {"weights as stored, f32 activations, f32 KV", {.activation_dtype = "float32", .kv_cache_dtype = "float32"}},
      {"weights as stored, f32 activations, bf16 KV", kRows},
  };
  if (integer_weights) {
    v.push_back({"**auto**: weights as stored, mixed activations, bf16 KV", {}});
    v.push_back({"mixed activations, f32 KV", {.kv_cache_dtype = "float32"}});
    v.push_back({"mixed activations, int8 KV", {.kv_cache_dtype = "int8"}});
    v.push_back({"int16 activations, f32 KV", {.activation_dtype = "int16", .kv_cache_dtype = "float32"}});
    v.push_back({"int16 activations, bf16 KV", {.activation_dtype = "int16"}});
    v.push_back({"int8 activations, bf16 KV", {.activation_dtype = "int8"}});
    v.push_back({"int8 activations, int8 KV", {.activation_dtype = "int8", .kv_cache_dtype = "int8"}});
  } else {
    v.push_back({"**auto**", {}});
    v.push_back({"auto, int8 KV", {.kv_cache_dtype = "int8"}});
  }
  v.push_back({"weights and activations bf16, bf16 KV", {.activation_dtype = "bfloat16"}});
  for (const auto& [quantization, text] : {std::pair{"q8_0", "to q8_0"},
                                           {"int8", "to int8 (a scale per row)"},
                                           {"int4", "to int4 (groups of 64)"},
                                           {"int4_nearest", "to int4, each weight to the nearest"}}) {
    v.push_back({std::string("quantised ") + text + ", int16 activations",
                 {.activation_dtype = "int16", .quantization = quantization}});
    v.push_back({std::string("quantised ") + text + ", mixed activations", {.quantization = quantization}});
    v.push_back({std::string("quantised ") + text + ", int8 activations",
                 {.activation_dtype = "int8", .quantization = quantization}});
  }
  return v;
}

std::vector<NumericsVariant> MakeActivationVariants(bool integer_weights, std::string_view quantization) {
  const bool quantised = quantization != "none";
  std::vector<NumericsVariant> v = {{"reference", kReference}};
  if (quantised) v.front().options = {.activation_dtype = "int16", .kv_cache_dtype = "float32"};
  if (integer_weights || quantised) {
    v.push_back({"mixed (auto)", {}});
    v.push_back({"int16", {.activation_dtype = "int16"}});
    v.push_back({"int8", {.activation_dtype = "int8"}});
  } else {
    v.push_back({"auto", {}});
  }
  if (!quantised) v.push_back({"bfloat16", {.activation_dtype = "bfloat16"}});
  for (NumericsVariant& variant : v) variant.options.quantization = quantization;
  return v;
}

std::optional<Arithmetic> ArithmeticOf(const compute::CpuWeights& weights) {
  if (weights.packed == nullptr) return std::nullopt;
  const compute::PackedWeights& packed = *weights.packed;
  double plain = 0, multiplied = 0;
  bool integers = true;
  const auto add = [&](std::initializer_list<const compute::PackedMatrix*> matrices, compute::Rounding rounding) {
    for (const compute::PackedMatrix* m : matrices) {
      const compute::TokenFormat tokens = compute::TokensFor(*m, rounding);
      integers = integers && tokens.integer();
      plain += static_cast<double>(m->rows * m->cols);
      multiplied += static_cast<double>(m->rows * tokens.multiplies(m->cols));
    }
  };
  for (const compute::PackedLayerWeights& l : packed.layers) {
    add({&l[compute::Role::kQ], &l[compute::Role::kO], &l[compute::Role::kGate], &l[compute::Role::kUp]},
        packed.roundings.others);
    add({&l[compute::Role::kK], &l[compute::Role::kV]}, packed.roundings.kv);
    add({&l[compute::Role::kDown]}, packed.roundings.down);
  }
  Arithmetic work;
  work.prompt = multiplied / plain;
  add({&packed.lm_head}, packed.roundings.lm_head);
  work.decode = multiplied / plain;
  if (!integers) return std::nullopt;
  return work;
}

std::vector<NumericsVariant> MakeOperatorVariants() {
  std::vector<NumericsVariant> v = {{"float32 (reference)", kReference}, {"f32 activations, bf16 KV", kRows}};
  constexpr std::pair<const char*, bool Int8Operators::*> kOperators[] = {{"q", &Int8Operators::q},
                                                                          {"k and v", &Int8Operators::kv},
                                                                          {"attention output", &Int8Operators::wo},
                                                                          {"gate and up", &Int8Operators::gate_up},
                                                                          {"down", &Int8Operators::down},
                                                                          {"lm_head", &Int8Operators::lm_head}};
  for (const auto& [name, member] : kOperators) {
    Int8Operators only;
    only.*member = true;
    v.push_back({std::string("int8 for ") + name + " alone", kRows, true, only});
  }
  const Int8Operators all{true, true, true, true, true, true};
  v.push_back({"int8 for all", kRows, true, all});
  for (const auto& [name, member] : kOperators) {
    Int8Operators most = all;
    most.*member = false;
    v.push_back({std::string("int8 for all but ") + name, kRows, true, most});
  }
  v.push_back(
      {"int8 for all but lm_head, k and v", kRows, true, {.q = true, .wo = true, .gate_up = true, .down = true}});
  v.push_back({"int8 for all but lm_head, q, k and v", kRows, true, {.wo = true, .gate_up = true, .down = true}});
  return v;
}

Result<LoadedVariant> LoadVariant(const compute::ModelDescription& description, const NumericsVariant& variant) {
  LoadedVariant loaded;
  TACTUS_ASSIGN_OR_RETURN(loaded.numerics, compute::ChooseNumerics(variant.options, description.config.weight_dtype));
  compute::LoadWeightsOptions load = compute::LoadOptionsFor(loaded.numerics);
  load.threads = compute::UsableCores();
  load.pack = load.pack && !variant.emulate;  // the emulation replaces the operator over rows
  TACTUS_ASSIGN_OR_RETURN(loaded.weights, compute::LoadWeights(description, load, SystemClock()));
  loaded.ops = variant.emulate ? EmulatingOps(loaded.weights, variant.operators) : compute::SelectOps();
  return loaded;
}

}  // namespace tactus::bench
