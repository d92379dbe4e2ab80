// The common loop of byte-pair encoding, for any ranking: joins neighbours, the lowest rank first and the leftmost
// among equals, until no pair has a rank. A queue keeps each rank's positions in a separate list. Sweeps run from left
// to right, so positions mostly arrive in order at constant cost: a run of one letter is linear in its length.
// Positions out of order go into a heap of their rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tactus/stop_token.h"

namespace tactus::language {

class RankQueue {
 public:
  // `steps` counts list and heap operations, to measure how the work grows.
  explicit RankQueue(int64_t* steps) : steps_(steps) {}
  void Reserve(size_t positions) { nodes_.reserve(positions); }

  void Push(int32_t rank, int32_t position) {
    const auto [entry, is_new] = list_of_rank_.try_emplace(rank, static_cast<int32_t>(lists_.size()));
    if (is_new) lists_.emplace_back();
    List& list = lists_[static_cast<size_t>(entry->second)];
    if (list.empty()) {
      ranks_.emplace_back(rank, entry->second);
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      *steps_ += HeapSteps(ranks_.size());
    }
    if (list.head >= 0 && position < nodes_[static_cast<size_t>(list.tail)].position) {
      list.late.push_back(position);
      std::push_heap(list.late.begin(), list.late.end(), std::greater<>());
      *steps_ += HeapSteps(list.late.size());
      return;
    }
    const int32_t node = NewNode(position);
    (list.head < 0 ? list.head : nodes_[static_cast<size_t>(list.tail)].next) = node;
    list.tail = node;
    ++*steps_;
  }
  // False: empty.
  bool Pop(int32_t* rank, int32_t* position) {
    if (ranks_.empty()) return false;
    List& list = lists_[static_cast<size_t>(ranks_.front().second)];
    *rank = ranks_.front().first;
    if (list.head < 0 || (!list.late.empty() && list.late.front() < nodes_[static_cast<size_t>(list.head)].position)) {
      *position = list.late.front();
      std::pop_heap(list.late.begin(), list.late.end(), std::greater<>());
      *steps_ += HeapSteps(list.late.size());
      list.late.pop_back();
    } else {
      Node& head = nodes_[static_cast<size_t>(list.head)];
      *position = head.position;
      free_ = std::exchange(list.head, std::exchange(head.next, free_));
    }
    ++*steps_;
    if (list.empty()) {
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      *steps_ += HeapSteps(ranks_.size());
      ranks_.pop_back();
    }
    return true;
  }

 private:
  struct Node {
    int32_t position, next;
  };
  struct List {
    int32_t head = -1, tail = -1;  // nodes in ascending order of position
    std::vector<int32_t> late;     // a heap: positions that were left of the tail on arrival
    bool empty() const { return head < 0 && late.empty(); }
  };
  static int64_t HeapSteps(size_t size) {
    int64_t levels = 1;
    while (size >>= 1) ++levels;
    return levels;
  }
  int32_t NewNode(int32_t position) {
    if (free_ < 0) {
      nodes_.push_back({position, -1});
      return static_cast<int32_t>(nodes_.size() - 1);
    }
    const int32_t node = free_;
    free_ = std::exchange(nodes_[static_cast<size_t>(node)], Node{position, -1}).next;
    return node;
  }

  int64_t* steps_;
  std::unordered_map<int32_t, int32_t> list_of_rank_;
  std::vector<List> lists_;
  std::vector<std::pair<int32_t, int32_t>> ranks_;  // a heap: ranks with a non-empty list, and their list
  std::vector<Node> nodes_;
  int32_t free_ = -1;  // freed nodes
};

// One link of a chain of symbols; `rank`: of this symbol and the next, below 0 if they do not merge.
struct RankedLink {
  int32_t previous, next;
  int32_t rank;
};

// `rank_of(i, j)`: rank of the neighbouring symbols i and j; below 0: they do not merge. `merge(i, j)`: i becomes both.
// Returns the number of steps. In `links`, `next` from symbol 0 on leads through the remaining symbols. When stopped,
// some merges are missing.
template <class RankOf, class Merge>
int64_t MergeByRank(size_t count, StopToken stop, RankOf rank_of, Merge merge, std::vector<RankedLink>* links) {
  constexpr int64_t kMergesBetweenLooks = 4096;
  links->resize(count);
  int64_t steps = 0, merges = 0;
  RankQueue queue(&steps);
  queue.Reserve(count);
  const auto at = [links](int32_t i) -> RankedLink& { return (*links)[static_cast<size_t>(i)]; };
  const auto consider = [&](int32_t i) {
    RankedLink& link = at(i);
    link.rank = link.next < 0 ? -1 : rank_of(i, link.next);
    if (link.rank >= 0) queue.Push(link.rank, i);
  };
  const auto last = static_cast<int32_t>(count) - 1;
  for (int32_t i = 0; i <= last; ++i) at(i) = {i - 1, i < last ? i + 1 : -1, -1};
  for (int32_t i = 0; i < last; ++i) {
    if (i % kMergesBetweenLooks == 0 && stop.stopped()) return steps;
    consider(i);
  }
  int32_t rank = 0, position = 0;
  while (queue.Pop(&rank, &position)) {
    if (at(position).rank != rank) continue;  // stale: one of the two has merged with another symbol
    if (++merges % kMergesBetweenLooks == 0 && stop.stopped()) return steps;
    const int32_t right = at(position).next;
    merge(position, right);
    at(right).rank = -1;
    const int32_t next = at(position).next = at(right).next;
    if (next >= 0) at(next).previous = position;
    // The left pair first: positions stay in order during a sweep to the right.
    if (at(position).previous >= 0) consider(at(position).previous);
    consider(position);
  }
  return steps;
}

}  // namespace tactus::language
