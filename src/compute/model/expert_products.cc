#include "compute/model/expert_products.h"

#include <algorithm>

namespace tactus::compute {
namespace {

constexpr int64_t kUnitsPerThread = 12, kMostPanels = 4;

int64_t Ceil(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// Panels [first, first + count) of an output.
LinearOutput Panels(const LinearOutput& output, const PackedMatrix& w, int64_t first, int64_t count,
                    PackedMatrix* part) {
  *part = w;
  part->data += first * w.panel_bytes;
  part->rows = std::min(count * kPanelRows, w.rows - first * kPanelRows);
  LinearOutput out = output;
  out.w = part;
  out.y += first * kPanelRows;
  if (out.bias != nullptr) out.bias += first * kPanelRows;
  return out;
}

}  // namespace

ExpertProducts::ExpertProducts(int64_t most) {
  products_.reserve(static_cast<size_t>(most));
}

int64_t ExpertProducts::WorkspaceBytesFor(int64_t max_cols, int32_t threads) {
  return threads * WorkspaceBytes(kUnitTokens, max_cols, 0, 0, 1);
}

void ExpertProducts::Run(const Ops& ops, ThreadPool& pool, Workspace workspace) {
  int64_t panels = 0;
  cost_ = {};
  for (const Product& p : products_) {
    panels += p.output.w->panels() * TokenBlocks(p.x.tokens);
    cost_.memory_bytes += p.output.w->bytes();
    cost_.bytes += p.output.w->bytes() + p.x.tokens * p.output.w->rows * 4;
    cost_.AddProducts(p.x.format.values, 2 * p.x.tokens * p.x.format.multiplies(p.x.cols) * p.output.w->rows);
  }
  const int64_t each = std::clamp<int64_t>(panels / (kUnitsPerThread * pool.threads()), 1, kMostPanels);
  int64_t units = 0;
  for (Product& p : products_) {
    p.first_unit = units;
    units += Ceil(p.output.w->panels(), each) * TokenBlocks(p.x.tokens);
  }
  const int64_t scratch_bytes = workspace.size / pool.threads() / 64 * 64;
  pool.ParallelFor(units, [&](int64_t unit, int32_t thread) {
    const Product& p = EntryOf(products_, unit);
    // Units of the same panels are neighbours, so that weights are read from memory once.
    const int64_t blocks = TokenBlocks(p.x.tokens), at = unit - p.first_unit;
    const auto [first, count] = TokenBlock(p.x.tokens, at % blocks);
    PackedMatrix part;
    LinearOutput output = Panels(p.output, *p.output.w, at / blocks * each, each, &part);
    output.y += first * output.y_stride;
    const Workspace scratch = {workspace.data + thread * scratch_bytes, scratch_bytes};
    ops.linear_packed(inline_, TokenSlice(p.x, first, count), {&output, 1}, scratch);
  });
  products_.clear();
}

}  // namespace tactus::compute
