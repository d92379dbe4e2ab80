// Shared by the tests of packed weights: every packed form with random weights, packed tokens, one call of an operator.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compute/kernels/kernel_testing.h"
#include "compute/kernels/packed/packed.h"

namespace tactus::compute::testing {

// Bytes that begin at a cache line, with other contents before.
struct Aligned {
  explicit Aligned(int64_t bytes) : memory(static_cast<size_t>(bytes) + 64, std::byte{0xa5}) {}
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - at % 64) % 64;
  }
  std::vector<std::byte> memory;
};

struct OwnedPacked {
  OwnedPacked(const compute::MatrixView& w, const PackedMatrix& f) : form(f), bytes(f.bytes()) {
    PackPanels(w, form, 0, form.panels(), bytes.data());
    form.data = bytes.data();
  }
  OwnedPacked(const OwnedPacked&) = delete;
  OwnedPacked& operator=(const OwnedPacked&) = delete;
  PackedMatrix form;
  Aligned bytes;
};

struct OwnedTokens {
  OwnedTokens(const TokenFormat& format, int64_t tokens, int64_t cols)
      : bytes(PackedTokenBytes(tokens, cols)), view(PlaceTokens(bytes.data(), format, tokens, cols)) {}
  OwnedTokens(const OwnedTokens&) = delete;
  OwnedTokens& operator=(const OwnedTokens&) = delete;
  Aligned bytes;
  PackedTokens view;
};

inline std::vector<float> RowOf(const PackedMatrix& w, int64_t row) {
  std::vector<float> out(static_cast<size_t>(w.cols));
  UnpackRow(w, row, out.data());
  return out;
}

inline compute::MatrixView ViewOf(const std::vector<float>& x, int64_t rows, int64_t cols) {
  return {x.data(), compute::DType::kF32, rows, cols, cols * 4};
}

// A conversion from weights to a packed form: a file's format, or one made at load.
struct Form {
  compute::DType dtype;
  Quantization quantization = Quantization::kNone;
  bool to_bf16 = false;

  std::string name() const {
    static constexpr const char* kNames[] = {"", " to q8_0", " to int8", " to int4"};
    return std::string(compute::InfoOf(dtype).name) + kNames[static_cast<int>(quantization)] +
           (to_bf16 ? " to bf16" : "");
  }
  bool integer() const {
    return quantization != Quantization::kNone || (!to_bf16 && compute::InfoOf(dtype).block_elements > 1);
  }
  // A valid width for the form that ends within any structure that may be partial.
  int64_t width(int64_t about) const {
    const int64_t block = compute::InfoOf(dtype).block_elements;
    return block == 1 ? about - 3 : (about + block - 1) / block * block;
  }
  PackedMatrix at(int64_t rows, int64_t cols) const {
    PackedMatrix form;
    const bool known = quantization == Quantization::kNone
                           ? PackedFormOf(to_bf16 ? compute::DType::kBF16 : dtype, rows, cols, &form)
                           : QuantizedFormOf(quantization, rows, cols, &form);
    return known ? form : PackedMatrix{};
  }
};

// Operators see a format's layout alone, and AllLayouts has those of the formats after q6_K: three stand for all.
inline std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (compute::DType dtype : kAllDTypes) {
    if (dtype <= compute::DType::kQ2_K || dtype == compute::DType::kMXFP4 || dtype == compute::DType::kIQ2_XS)
      forms.push_back({dtype});
  }
  for (Quantization q : {Quantization::kQ8_0, Quantization::kInt8, Quantization::kInt4})
    forms.push_back({compute::DType::kF32, q});
  for (compute::DType dtype : {compute::DType::kF32, compute::DType::kF16, compute::DType::kQ6_K})
    forms.push_back({.dtype = dtype, .to_bf16 = true});
  return forms;
}

inline constexpr Rounding kIntegerRoundings[] = {Rounding::kInt8, Rounding::kMixed, Rounding::kMixedFine,
                                                 Rounding::kInt16};

inline std::string NameOf(Rounding rounding) {
  static constexpr const char* kNames[] = {"f32", "int8", "mixed", "mixed16", "int16"};
  return kNames[static_cast<int>(rounding)];
}

// f16 and f32 are multiplied with f32 tokens for any requested rounding.
inline std::vector<Rounding> RoundingsOf(const Form& form) {
  if (form.integer())
    return {Rounding::kInt8, Rounding::kMixed, Rounding::kMixedFine, Rounding::kInt16, Rounding::kNone};
  const bool whole = !form.to_bf16 && form.dtype != compute::DType::kBF16;
  return whole ? std::vector<Rounding>{Rounding::kNone} : std::vector<Rounding>{Rounding::kInt8, Rounding::kNone};
}

// Whether every set has ref's bits.
inline bool IsExact(const Form& form, Rounding rounding) {
  return form.integer() && rounding != Rounding::kNone;
}

// The integer of a row's column.
inline int32_t RowValue(const PackedTokens& x, int64_t row, int64_t c) {
  const int32_t q = static_cast<int8_t>(x.values[row * x.stride + c]);
  if (x.wide == nullptr) return q;
  const WideGroup& group = x.wide[row * x.wide_count() + c / x.format.wide];
  const int64_t i = c % x.format.wide - group.first;
  return 0 <= i && i < kWideColumns ? q + 256 * group.upper[i] : q;
}

// The value of a token's column.
inline float TokenValue(const PackedTokens& x, int64_t t, int64_t c) {
  if (x.format.values == TokenValues::kF32) {
    float value;
    std::memcpy(&value, x.values + t * x.stride + 4 * c, sizeof value);
    return value;
  }
  if (!x.format.integer()) {
    uint16_t bits;
    std::memcpy(&bits, x.values + t * x.stride + 2 * c, sizeof bits);
    return compute::BF16ToF32(bits);
  }
  double value = 0;
  for (int64_t row = t * x.format.parts; row < (t + 1) * x.format.parts; ++row) {
    value += static_cast<double>(x.scales[row * x.scale_count() + c / x.format.block]) * RowValue(x, row, c);
  }
  return static_cast<float>(value);
}

// Tokens like activations: a few columns far larger than the others.
inline std::vector<float> RandomTokens(int64_t tokens, int64_t cols, uint64_t seed) {
  std::vector<float> x = RandomFloats(tokens * cols, seed);
  for (int64_t t = 0; t < tokens; ++t) x[t * cols + (t * 37) % cols] *= 50.0f;
  return x;
}

inline void Pack(const Ops& ops, ThreadPool& pool, const std::vector<float>& x, const PackedTokens& out) {
  ops.pack(pool, x.data(), nullptr, 0.0f, out);
}

// y[tokens, rows] of x, packed and multiplied by the same set.
inline std::vector<float> RunPacked(const Ops& ops, ThreadPool& pool, const float* x, int64_t tokens,
                                    const PackedMatrix& w, Rounding rounding, const float* bias = nullptr) {
  OwnedTokens packed(TokensFor(w, rounding), tokens, w.cols);
  OwnedWorkspace scratch(tokens, w.cols, 1, 8, pool.threads());
  ops.pack(pool, x, nullptr, 0.0f, packed.view);
  std::vector<float> y(static_cast<size_t>(tokens * w.rows), -1.0f);
  const LinearOutput out = {&w, bias, y.data(), w.rows, false};
  ops.linear_packed(pool, packed.view, {&out, 1}, scratch.view());
  return y;
}

// Fewer tokens where every instruction is emulated (set by tools/arm/test_kernels.sh).
inline int64_t MostTokens(int64_t tokens) {
  return std::getenv("TACTUS_EMULATED") == nullptr ? tokens : tokens / 6;
}

// Sets that do not use ref's operators.
inline std::vector<const Ops*> OwnSets() {
  std::vector<const Ops*> sets;
  for (const Ops* ops : RunnableOps()) {
    if (ops->linear_packed != SelectOps("ref")->linear_packed) sets.push_back(ops);
  }
  return sets;
}

}  // namespace tactus::compute::testing
