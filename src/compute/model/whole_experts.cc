#include "compute/model/whole_experts.h"

#include <algorithm>
#include <cstring>

namespace tactus::compute {
namespace {

// The parts of a thread's scratch.
struct UnitScratch {
  UnitScratch(int64_t cols, int64_t inner, int64_t unit_tokens)
      : tokens(Aligned(PackedTokenBytes(unit_tokens, cols))),
        packed_inner(Aligned(PackedTokenBytes(unit_tokens, inner))),
        values(Aligned(unit_tokens * inner * 4)),
        operators(Aligned(WorkspaceBytes(unit_tokens, std::max(cols, inner), 0, 0, 1))) {}
  static int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t total() const { return tokens + packed_inner + values + operators; }
  int64_t tokens, packed_inner, values, operators;  // bytes
};

}  // namespace

PackedTokens TokenSlice(const PackedTokens& x, int64_t first, int64_t count) {
  PackedTokens slice = x;
  slice.tokens = count;
  const int64_t row = first * x.format.parts;
  slice.values += row * x.stride;
  if (x.scales != nullptr) slice.scales += row * x.scale_count();
  if (x.sums != nullptr) slice.sums += row * x.sum_count();
  if (x.wide != nullptr) slice.wide += row * x.wide_count();
  return slice;
}

void CopyToken(const PackedTokens& from, int64_t token, const PackedTokens& to, int64_t row) {
  const PackedTokens source = TokenSlice(from, token, 1), target = TokenSlice(to, row, 1);
  const auto copy = [&](auto* out, const auto* in, int64_t count) {
    if (in != nullptr) std::memcpy(out, in, static_cast<size_t>(source.format.parts * count) * sizeof *in);
  };
  copy(target.values, source.values, source.stride);
  copy(target.scales, source.scales, source.scale_count());
  copy(target.sums, source.sums, source.sum_count());
  copy(target.wide, source.wide, source.wide_count());
}

WholeExperts::WholeExperts(int64_t most) {
  experts_.reserve(static_cast<size_t>(most));
}

int64_t WholeExperts::WorkspaceBytesFor(int64_t cols, int64_t inner, int64_t tokens, int32_t threads) {
  return threads * UnitScratch(cols, inner, std::min(tokens, kUnitTokens)).total() + 64;
}

void WholeExperts::Add(const WholeExpert& expert) {
  experts_.push_back({expert, units_});
  units_ += TokenBlocks(expert.count);
}

void WholeExperts::Run(const Ops& ops, ThreadPool& pool, Workspace workspace) {
  cost_ = {};
  int64_t cols = 0, inner = 0, tokens = 0;
  for (const auto& [e, first_unit] : experts_) {
    cols = std::max(cols, e.x.cols);
    inner = std::max(inner, e.gate->rows);
    tokens = std::max(tokens, std::min(e.count, kUnitTokens));
    const int64_t weights = e.gate->bytes() + e.up->bytes() + e.down->bytes();
    cost_.memory_bytes += weights;
    cost_.bytes += weights + e.count * (e.x.stride + e.down->rows * 4);
    cost_.AddProducts(e.x.format.values, 4 * e.count * e.x.format.multiplies(e.x.cols) * e.gate->rows);
    cost_.AddProducts(e.inner.values, 2 * e.count * e.inner.multiplies(e.down->cols) * e.down->rows);
  }
  const UnitScratch sizes(cols, inner, tokens);
  auto* const memory = workspace.data + (64 - reinterpret_cast<uintptr_t>(workspace.data) % 64) % 64;
  pool.ParallelFor(units_, [&](int64_t unit, int32_t thread) {
    const auto& [e, first_unit] = EntryOf(experts_, unit);
    const auto [first, count] = TokenBlock(e.count, unit - first_unit);
    std::byte* at = memory + thread * sizes.total();
    PackedTokens x = TokenSlice(e.x, first, count);
    if (e.tokens != nullptr) {
      x = PlaceTokens(at, e.x.format, count, e.x.cols);
      for (int64_t row = 0; row < count; ++row) CopyToken(e.x, e.tokens[first + row], x, row);
    }
    at += sizes.tokens;
    const PackedTokens values = PlaceTokens(at, e.inner, count, e.gate->rows);
    at += sizes.packed_inner;
    const Workspace scratch = {at + sizes.values, sizes.operators};
    ops.gated_packed(inline_, x, *e.gate, e.gate_bias, *e.up, e.up_bias, reinterpret_cast<float*>(at), values, scratch);
    const LinearOutput down = {e.down, e.down_bias, e.y + first * e.down->rows, e.down->rows};
    ops.linear_packed(inline_, values, {&down, 1}, scratch);
  });
  Clear();
}

}  // namespace tactus::compute
