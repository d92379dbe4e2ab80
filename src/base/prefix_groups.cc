#include "base/prefix_groups.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace tactus {

PrefixGroups::PrefixGroups(int32_t block_size, int32_t sequences)
    : block_size_(block_size), least_blocks_((kLeastTokens + block_size - 1) / block_size) {
  entries_.reserve(static_cast<size_t>(sequences));
}

int64_t PrefixGroups::Find(std::span<Sequence> sequences) {
  entries_.clear();
  groups_ = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = sequences[i];
    s.group = -1;
    s.shared_tokens = 0;
    if (s.tokens < least_blocks_ * block_size_) continue;
    entries_.push_back({s.blocks[least_blocks_ - 1], static_cast<int32_t>(i), 0});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.last, a.sequence) < std::tie(b.last, b.sequence); });
  int64_t spared = 0;
  for (size_t first = 0, end; first < entries_.size(); first = end) {
    for (end = first + 1; end < entries_.size() && entries_[end].last == entries_[first].last;) ++end;
    if (end - first > 1) spared += FindAmong(sequences, std::span(entries_).subspan(first, end - first));
  }
  return spared;
}

// Forms groups among sequences that share the block `last` of `entries`; the first remaining sequence leads each.
int64_t PrefixGroups::FindAmong(std::span<Sequence> sequences, std::span<Entry> entries) {
  auto at = [&](const Entry& e) -> Sequence& { return sequences[static_cast<size_t>(e.sequence)]; };
  int64_t all_spared = 0;
  for (int32_t round = 0; round < kMostPerPrefix && entries.size() > 1; ++round) {
    const Sequence& leader = at(entries[0]);
    for (Entry& e : entries) e.common = CommonBlocks(leader, at(e));
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.common != b.common ? a.common > b.common : a.sequence < b.sequence;
    });
    int64_t spared = 0;
    size_t members = 1;
    for (size_t n = 2; n <= entries.size() && entries[n - 1].common >= least_blocks_; ++n) {
      const int64_t by_these = static_cast<int64_t>(n - 1) * entries[n - 1].common * block_size_;
      if (by_these < spared) continue;
      spared = by_these;
      members = n;
    }
    const int32_t shared = entries[members - 1].common * block_size_;
    int64_t own = 0;
    for (const Entry& e : entries.first(members)) own += at(e).tokens - shared;
    if (members > 1 && spared >= own) {
      for (const Entry& e : entries.first(members)) {
        at(e).group = groups_;
        at(e).shared_tokens = shared;
      }
      ++groups_;
      all_spared += spared;
    }
    entries = entries.subspan(members);
  }
  return all_spared;
}

// The number of leading blocks that both share, among blocks that both read completely.
int32_t PrefixGroups::CommonBlocks(const Sequence& a, const Sequence& b) const {
  const int32_t most = std::min(a.tokens, b.tokens) / block_size_;
  constexpr int32_t kAtOnce = 64;
  int32_t n = 0;
  while (n + kAtOnce <= most && std::memcmp(a.blocks + n, b.blocks + n, kAtOnce * sizeof(BlockId)) == 0) n += kAtOnce;
  while (n < most && a.blocks[n] == b.blocks[n]) ++n;
  return n;
}

}  // namespace tactus
