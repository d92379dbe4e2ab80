#include "language/text/bpe.h"

#include <algorithm>
#include <bit>

#include "language/text/merge_by_rank.h"

namespace tactus::language {
namespace {

constexpr uint64_t kNoKey = ~uint64_t{0};  // both halves -1: no pair of tokens has it
constexpr size_t kScanUpTo = 24;           // in symbols; the queue is faster for more

uint64_t KeyOf(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void MergeByScan(const MergeTable& merges, std::vector<TokenId>* ids) {
  MergeTable::Merge pairs[kScanUpTo];
  std::vector<TokenId>& id = *ids;
  size_t n = id.size();
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.Find(id[i], id[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i].rank >= 0 && (best == n || pairs[i].rank < pairs[best].rank)) best = i;
    }
    if (best == n) break;
    id[best] = pairs[best].result;
    std::copy(id.begin() + static_cast<ptrdiff_t>(best) + 2, id.begin() + static_cast<ptrdiff_t>(n),
              id.begin() + static_cast<ptrdiff_t>(best) + 1);
    --n;
    if (best + 1 < n) {
      std::copy(pairs + best + 2, pairs + n, pairs + best + 1);
      pairs[best] = merges.Find(id[best], id[best + 1]);
    }
    if (best > 0) pairs[best - 1] = merges.Find(id[best - 1], id[best]);
  }
  id.resize(n);
}

int64_t MergeByQueue(const MergeTable& merges, StopToken stop, std::vector<TokenId>* ids) {
  std::vector<TokenId>& id = *ids;
  std::vector<RankedLink> links;
  const auto find = [&](int32_t i, int32_t j) {
    return merges.Find(id[static_cast<size_t>(i)], id[static_cast<size_t>(j)]);
  };
  const int64_t steps = MergeByRank(
      id.size(), stop, [&](int32_t i, int32_t j) { return find(i, j).rank; },
      [&](int32_t i, int32_t j) { id[static_cast<size_t>(i)] = find(i, j).result; }, &links);
  size_t kept = 0;  // never ahead of i
  for (int32_t i = 0; i >= 0; i = links[static_cast<size_t>(i)].next) id[kept++] = id[static_cast<size_t>(i)];
  id.resize(kept);
  return steps;
}

}  // namespace

size_t MergeTable::Place(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (key * 0x9E3779B97F4A7C15ull >> 20) & mask;
  while (slots_[at].key != key && slots_[at].key != kNoKey) at = (at + 1) & mask;
  return at;
}

void MergeTable::Grow(size_t slots) {
  std::vector<Slot> old(slots, Slot{kNoKey, {}});
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key != kNoKey) slots_[Place(slot.key)] = slot;
  }
}

void MergeTable::Reserve(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, merges * 2));
  if (slots > slots_.size()) Grow(slots);
}

void MergeTable::Add(TokenId left, TokenId right, Merge merge) {
  Reserve(used_ + 1);
  Slot& slot = slots_[Place(KeyOf(left, right))];
  used_ += slot.key == kNoKey;
  slot = {KeyOf(left, right), merge};
}

MergeTable::Merge MergeTable::Find(TokenId left, TokenId right) const {
  return slots_.empty() ? Merge{} : slots_[Place(KeyOf(left, right))].merge;
}

int64_t MergePairs(const MergeTable& merges, std::vector<TokenId>* ids, StopToken stop) {
  if (ids->size() > kScanUpTo) return MergeByQueue(merges, stop, ids);
  if (ids->size() > 1) MergeByScan(merges, ids);
  return 0;
}

}  // namespace tactus::language
