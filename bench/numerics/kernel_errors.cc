// kernel_errors: every operator of every kernel set of this machine against ref/, on the default model's shapes with
// seeded random inputs, as a markdown table: an element's largest difference, relative to the largest element; "equal"
// means bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/kernels/ops.h"
#include "compute/tensor/quantize.h"

namespace tactus::bench {
namespace {

using compute::Ops;
using compute::PackedMatrix;
using compute::Quantization;
using compute::Rounding;

constexpr int64_t kTokens = 37, kCols = 1536, kRows = 576;
constexpr int32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kPositions = 1100, kBlockSize = 16;

std::vector<float> Random(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(rng.UniformInt(-1 << 20, 1 << 20)) / static_cast<float>(1 << 20);
  return x;
}

struct Memory {
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(bytes + 64)) {}
  std::byte* data() { return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64; }
  std::vector<std::byte> bytes_;
};

struct Machine {
  compute::ThreadPool pool{1, SystemClock()};
  Memory scratch{compute::WorkspaceBytes(kPositions, kCols, kHeads, kHeadDim, 1)};
  compute::Workspace workspace() {
    return {scratch.data(), compute::WorkspaceBytes(kPositions, kCols, kHeads, kHeadDim, 1)};
  }
};

std::vector<float> Rows(const Ops& ops, Machine& m, compute::DType dtype) {
  const std::vector<float> x = Random(kTokens * kCols, 1), w = Random(kRows * kCols, 2);
  Memory stored(kRows * compute::RowBytes(dtype, kCols));
  compute::Quantize(dtype, w.data(), kRows * kCols, stored.data());
  std::vector<float> y(static_cast<size_t>(kTokens * kRows));
  const compute::MatrixView view{stored.data(), dtype, kRows, kCols, compute::RowBytes(dtype, kCols)};
  ops.linear(m.pool, x.data(), kTokens, view, nullptr, y.data(), m.workspace());
  return y;
}

struct PackedInput {
  Memory weights{0}, tokens{compute::PackedTokenBytes(kTokens, kCols)};
  PackedMatrix form;
  compute::PackedTokens x;
};

void Prepare(const Ops& ops, Machine& m, Quantization quantization, Rounding rounding, bool norm, int64_t rows,
             uint64_t seed, PackedInput* in) {
  const std::vector<float> x = Random(kTokens * kCols, 1), w = Random(rows * kCols, seed), weight = Random(kCols, 3);
  if (!compute::QuantizedFormOf(quantization, rows, kCols, &in->form))
    compute::PackedFormOf(compute::DType::kBF16, rows, kCols, &in->form);
  in->weights = Memory(in->form.bytes());
  compute::PackPanels({w.data(), compute::DType::kF32, rows, kCols, kCols * 4}, in->form, 0, in->form.panels(),
                      in->weights.data());
  in->form.data = in->weights.data();
  in->x = compute::PlaceTokens(in->tokens.data(), compute::TokensFor(in->form, rounding), kTokens, kCols);
  ops.pack(m.pool, x.data(), norm ? weight.data() : nullptr, 1e-5f, in->x);
}

std::vector<float> Packed(const Ops& ops, Machine& m, Quantization quantization, Rounding rounding, bool norm) {
  PackedInput in;
  Prepare(ops, m, quantization, rounding, norm, kRows, 2, &in);
  std::vector<float> y(static_cast<size_t>(kTokens * kRows));
  const compute::LinearOutput out{&in.form, nullptr, y.data(), kRows};
  ops.linear_packed(m.pool, in.x, {&out, 1}, m.workspace());
  return y;
}

// silu(gate) * up, rounded for a matrix of the same form, and its product with that matrix.
std::vector<float> Gated(const Ops& ops, Machine& m, Quantization quantization, Rounding rounding) {
  PackedInput gate, up, down;
  Prepare(ops, m, quantization, rounding, true, kCols, 4, &gate);
  Prepare(ops, m, quantization, rounding, true, kCols, 5, &up);
  Prepare(ops, m, quantization, rounding, false, kRows, 6, &down);
  std::vector<float> inner(static_cast<size_t>(kTokens * kCols)), y(static_cast<size_t>(kTokens * kRows));
  ops.gated_packed(m.pool, gate.x, gate.form, nullptr, up.form, nullptr, inner.data(), down.x, m.workspace());
  const compute::LinearOutput out{&down.form, nullptr, y.data(), kRows};
  ops.linear_packed(m.pool, down.x, {&out, 1}, m.workspace());
  return y;
}

std::vector<float> Norm(const Ops& ops, Machine& m) {
  const std::vector<float> x = Random(kTokens * kCols, 1), w = Random(kCols, 3);
  std::vector<float> y(x.size());
  ops.rms_norm(m.pool, x.data(), kTokens, kCols, w.data(), 1e-5f, y.data());
  return y;
}

// RoPE, the cache's rounding, and attention of a prompt's last chunk and of a decode.
std::vector<float> Attention(const Ops& ops, Machine& m, compute::DType kv_dtype) {
  constexpr int32_t kBlocks = kPositions / kBlockSize + 1;
  std::vector<float> q = Random(int64_t{kPositions} * kHeads * kHeadDim, 7);
  const std::vector<float> k = Random(int64_t{kPositions} * kKvHeads * kHeadDim, 8),
                           v = Random(int64_t{kPositions} * kKvHeads * kHeadDim, 9);
  compute::KvLayer kv{nullptr, nullptr, kv_dtype, kBlockSize, kKvHeads, kHeadDim};
  Memory keys(compute::KvBlockBytes(kv) * kBlocks), values(compute::KvBlockBytes(kv) * kBlocks);
  kv.k = keys.data();
  kv.v = values.data();
  std::vector<float> inverse(kHeadDim / 2);
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(inverse.size()));
  std::vector<int32_t> positions, table;
  std::vector<int64_t> slots;
  for (int32_t p = 0; p < kPositions; ++p) {
    positions.push_back(p);
    slots.push_back(p);
  }
  for (int32_t b = 0; b < kBlocks; ++b) table.push_back(b);
  compute::RopeStoreCall call;
  call.q = q.data();
  call.k = k.data();
  call.v = v.data();
  call.q_stride = kHeads * kHeadDim;
  call.k_stride = call.v_stride = kKvHeads * kHeadDim;
  call.positions = positions.data();
  call.slots = slots.data();
  call.tokens = kPositions;
  call.heads = kHeads;
  call.rope = {inverse.data(), 1.0f, kHeadDim, false};
  ops.rope_store(m.pool, call, kv);
  const std::vector<compute::AttentionItem> items = {{0, kPositions - 65, 64, table.data()},
                                                     {64, kPositions - 1, 1, table.data()}};
  std::vector<float> y(size_t{65} * kHeads * kHeadDim);
  ops.attention(m.pool, q.data() + int64_t{kPositions - 65} * call.q_stride, call.q_stride, items, kHeads, kv,
                {.scale = 0.125f}, y.data(), call.q_stride, m.workspace());
  return y;
}

struct Row {
  std::string name;
  std::function<std::vector<float>(const Ops&, Machine&)> run;
};

std::vector<Row> AllRows() {
  std::vector<Row> rows = {{"rms_norm", Norm}};
  for (const compute::DType kv : {compute::DType::kF32, compute::DType::kBF16, compute::DType::kInt8}) {
    rows.push_back({std::string("rope, store and attention, KV ") + compute::InfoOf(kv).name,
                    [kv](const Ops& ops, Machine& m) { return Attention(ops, m, kv); }});
  }
  for (const compute::DType dtype : {compute::DType::kF32, compute::DType::kQ4_1, compute::DType::kQ8_0}) {
    rows.push_back({std::string("rows, ") + compute::InfoOf(dtype).name + " x f32",
                    [dtype](const Ops& ops, Machine& m) { return Rows(ops, m, dtype); }});
  }
  constexpr std::pair<const char*, Quantization> kForms[] = {{"bf16", Quantization::kNone},
                                                             {"q8_0", Quantization::kQ8_0},
                                                             {"int8", Quantization::kInt8},
                                                             {"int4", Quantization::kInt4}};
  for (const auto& [name, form] : kForms) {
    for (const Rounding rounding : {Rounding::kInt8, Rounding::kMixed, Rounding::kInt16}) {
      if (form == Quantization::kNone && rounding != Rounding::kInt8) continue;
      const std::string tokens = form == Quantization::kNone    ? "bf16"
                                 : rounding == Rounding::kInt8  ? "int8"
                                 : rounding == Rounding::kMixed ? "mixed"
                                                                : "int16";
      const auto quantization = form;
      rows.push_back(
          {fmt::format("packed, {} x {}, no norm", name, tokens), [quantization, rounding](const Ops& ops, Machine& m) {
             return Packed(ops, m, quantization, rounding, false);
           }});
      rows.push_back(
          {fmt::format("norm and packed, {} x {}", name, tokens), [quantization, rounding](const Ops& ops, Machine& m) {
             return Packed(ops, m, quantization, rounding, true);
           }});
      rows.push_back(
          {fmt::format("norm, gate, up, SiLU, down, {} x {}", name, tokens),
           [quantization, rounding](const Ops& ops, Machine& m) { return Gated(ops, m, quantization, rounding); }});
    }
  }
  return rows;
}

std::string Compare(const std::vector<float>& ref, const std::vector<float>& y) {
  if (std::memcmp(ref.data(), y.data(), ref.size() * sizeof(float)) == 0) return "equal";
  float largest = 0.0f, difference = 0.0f;
  for (size_t i = 0; i < ref.size(); ++i) {
    largest = std::max(largest, std::fabs(ref[i]));
    difference = std::max(difference, std::fabs(ref[i] - y[i]));
  }
  return fmt::format("{:.1e}", difference / largest);
}

int Run() {
  const std::vector<const Ops*> sets = compute::RunnableOps();
  Machine machine;
  std::string head = "| operator |", line = "|---|";
  for (size_t i = 1; i < sets.size(); ++i) {
    head += fmt::format(" {} |", sets[i]->name);
    line += "---|";
  }
  fmt::print("{}\n{}\n", head, line);
  for (const Row& row : AllRows()) {
    const std::vector<float> ref = row.run(*sets[0], machine);
    std::string text = fmt::format("| {} |", row.name);
    for (size_t i = 1; i < sets.size(); ++i) text += fmt::format(" {} |", Compare(ref, row.run(*sets[i], machine)));
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tactus::bench

int main() {
  return tactus::bench::Run();
}
