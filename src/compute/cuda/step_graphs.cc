#include "compute/cuda/step_graphs.h"

#include <algorithm>
#include <bit>

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kMostRows = 512;       // with more, a launch takes longer to run than to make
constexpr size_t kMostEntries = 512;     // bounds the memory of graphs
constexpr int64_t kRowsPerDoubling = 4;  // numbers of rows between two powers of two

}  // namespace

int64_t StepGraphs::RowsFor(int64_t decodes, int64_t most) {
  most = std::min(most, kMostRows);
  if (decodes < 1 || decodes > most) return 0;
  const auto above = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(decodes)));
  const int64_t step = std::max<int64_t>(1, above / 2 / kRowsPerDoubling);
  return std::min(most, (decodes + step - 1) / step * step);
}

StepGraphs::Entry& StepGraphs::EntryOf(const Key& key) {
  const auto at = entries_.find(key);
  if (at != entries_.end()) return at->second;
  if (entries_.size() >= kMostEntries) Clear();
  return entries_[key];
}

}  // namespace tactus::compute::cuda
