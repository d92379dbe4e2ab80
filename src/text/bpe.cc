#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace tactus {
namespace {

constexpr uint64_t kNoKey = ~uint64_t{0};  // both halves -1: no pair of tokens has it
constexpr size_t kScanUpTo = 24;           // symbols; beyond, the heap is faster

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

struct Candidate {
  int32_t rank;
  int32_t position;
  TokenId left, right;  // as they were when this was pushed: stale if they have changed
  TokenId result;
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

void MergeByHeap(const MergeTable& merges, std::vector<TokenId>* ids) {
  struct Symbol {
    TokenId id;
    int32_t previous, next;
  };
  const auto n = static_cast<int32_t>(ids->size());
  std::vector<Symbol> symbols(ids->size());
  std::vector<Candidate> heap;
  heap.reserve(ids->size());
  for (int32_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)] = {(*ids)[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  }
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto candidate = [&](int32_t position, Candidate* out) {
    const int32_t next = at(position).next;
    if (next < 0) return false;
    const MergeTable::Merge merge = merges.Find(at(position).id, at(next).id);
    *out = {merge.rank, position, at(position).id, at(next).id, merge.result};
    return merge.rank >= 0;
  };
  Candidate top{};
  for (int32_t i = 0; i + 1 < n; ++i) {
    if (candidate(i, &top)) heap.push_back(top);
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(heap));
  while (!queue.empty()) {
    top = queue.top();
    queue.pop();
    Symbol& left = at(top.position);
    if (left.id != top.left || left.next < 0 || at(left.next).id != top.right) continue;
    Symbol& right = at(left.next);
    left.id = top.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = top.position;
    Candidate more{};
    if (candidate(top.position, &more)) queue.push(more);
    if (left.previous >= 0 && candidate(left.previous, &more)) queue.push(more);
  }
  ids->clear();
  for (int32_t i = 0; i >= 0; i = at(i).next) ids->push_back(at(i).id);
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

void MergePairs(const MergeTable& merges, std::vector<TokenId>* ids) {
  if (ids->size() < 2) return;
  if (ids->size() <= kScanUpTo) {
    MergeByScan(merges, ids);
  } else {
    MergeByHeap(merges, ids);
  }
}

}  // namespace tactus
