// Shared by the tests of packed weights: every packed form with random weights in it, packed tokens, one call of an
// operator.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/kernel_testing.h"
#include "kernels/packed.h"

namespace tactus::kernels::testing {

// Bytes that begin a cache line and held something else before.
struct Aligned {
  explicit Aligned(int64_t bytes) : memory(static_cast<size_t>(bytes) + 64, std::byte{0xa5}) {}
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - at % 64) % 64;
  }
  std::vector<std::byte> memory;
};

struct OwnedPacked {
  OwnedPacked(const MatrixView& w, const PackedMatrix& f) : form(f), bytes(f.bytes()) {
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

// A way from weights to a packed form: a file's own format, or one made at load.
struct Form {
  DType dtype;
  Quantization quantization = Quantization::kNone;

  std::string name() const {
    static constexpr const char* kNames[] = {"", " to q8_0", " to int8", " to int4"};
    return std::string(InfoOf(dtype).name) + kNames[static_cast<int>(quantization)];
  }
  bool integer() const { return quantization != Quantization::kNone || InfoOf(dtype).block_elements > 1; }
  // A width that the form takes and that ends in the middle of whatever may end there.
  int64_t width(int64_t about) const {
    const int64_t block = InfoOf(dtype).block_elements;
    return block == 1 ? about - 3 : (about + block - 1) / block * block;
  }
  PackedMatrix at(int64_t rows, int64_t cols) const {
    PackedMatrix form;
    const bool known = quantization == Quantization::kNone ? PackedFormOf(dtype, rows, cols, &form)
                                                           : QuantizedFormOf(quantization, rows, cols, &form);
    return known ? form : PackedMatrix{};
  }
};

inline std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (DType dtype : kAllDTypes) forms.push_back({dtype});
  for (Quantization q : {Quantization::kQ8_0, Quantization::kInt8, Quantization::kInt4})
    forms.push_back({DType::kF32, q});
  return forms;
}

inline std::vector<int32_t> PlanesOf(const Form& form) {
  return form.integer() ? std::vector<int32_t>{1, 2} : std::vector<int32_t>{1};
}

// Tokens with what rows of activations have: a few columns far larger than the others.
inline std::vector<float> RandomTokens(int64_t tokens, int64_t cols, uint64_t seed) {
  std::vector<float> x = RandomFloats(tokens * cols, seed);
  for (int64_t t = 0; t < tokens; ++t) x[t * cols + (t * 37) % cols] *= 50.0f;
  return x;
}

inline void Pack(const Ops& ops, ThreadPool& pool, const std::vector<float>& x, const PackedTokens& out) {
  ops.pack(pool, x.data(), nullptr, 0.0f, out);
}

// y[tokens, rows] of x with `planes`, packed and multiplied by the same set.
inline std::vector<float> RunPacked(const Ops& ops, ThreadPool& pool, const float* x, int64_t tokens,
                                    const PackedMatrix& w, int32_t planes, const float* bias = nullptr) {
  OwnedTokens packed(TokensFor(w, planes), tokens, w.cols);
  OwnedWorkspace scratch(tokens, w.cols, 1, 8, pool.threads());
  ops.pack(pool, x, nullptr, 0.0f, packed.view);
  std::vector<float> y(static_cast<size_t>(tokens * w.rows), -1.0f);
  const LinearOutput out = {&w, bias, y.data(), w.rows, false};
  ops.linear_packed(pool, packed.view, {&out, 1}, scratch.view());
  return y;
}

// Fewer tokens where every instruction is emulated (tools/arm/test_kernels.sh sets it).
inline int64_t MostTokens(int64_t tokens) {
  return std::getenv("TACTUS_EMULATED") == nullptr ? tokens : tokens / 6;
}

// A set that does not borrow ref's operators.
inline std::vector<const Ops*> OwnSets() {
  std::vector<const Ops*> sets;
  for (const Ops* ops : RunnableOps()) {
    if (ops->linear_packed != SelectOps("ref")->linear_packed) sets.push_back(ops);
  }
  return sets;
}

}  // namespace tactus::kernels::testing
