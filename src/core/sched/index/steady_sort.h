// Sorts the running sequences of every step, whose order hardly changes from step to step: each first takes its place
// of the last step, then few have to move. Equal to std::sort if no two entries are equal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"

namespace tactus::core {

// Insertion sort for nearly sorted entries. Returns the number of entries moved.
template <class Entry, class Less>
int64_t SortSteady(std::vector<Entry>* entries, Less less) {
  constexpr int64_t kMostMovesEach = 8;  // beyond it std::sort is cheaper
  const int64_t most_moves = kMostMovesEach * static_cast<int64_t>(entries->size());
  int64_t moves = 0;
  for (size_t i = 1; i < entries->size() && moves <= most_moves; ++i) {
    if (!less((*entries)[i], (*entries)[i - 1])) continue;
    const Entry entry = (*entries)[i];
    size_t at = i;
    for (; at > 0 && less(entry, (*entries)[at - 1]); --at) (*entries)[at] = (*entries)[at - 1];
    (*entries)[at] = entry;
    moves += static_cast<int64_t>(i - at);
  }
  if (moves > most_moves) std::sort(entries->begin(), entries->end(), less);
  return moves;
}

template <class Entry>  // has a member `slot`, unique within a call
class SteadySort {
 public:
  SteadySort(int32_t slot_capacity, int32_t most_entries) : place_(static_cast<size_t>(slot_capacity), 0) {
    arranged_.reserve(static_cast<size_t>(most_entries));
    at_place_.reserve(static_cast<size_t>(most_entries));
  }

  template <class Less>
  void Sort(std::vector<Entry>* entries, Less less) {
    Arrange(*entries);
    entries->swap(arranged_);
    moves_ = SortSteady(entries, less);
    for (size_t i = 0; i < entries->size(); ++i) place_[Index((*entries)[i])] = static_cast<int32_t>(i);
  }
  // entries moved by the insertion sort of the last Sort
  int64_t moves() const { return moves_; }

 private:
  static size_t Index(const Entry& entry) { return static_cast<size_t>(entry.slot); }
  // Arranges the entries in the order of the last sort, new ones last. A place may be stale, or shared by two: it is a
  // guess.
  void Arrange(const std::vector<Entry>& entries) {
    const size_t n = entries.size();
    at_place_.assign(n, -1);
    arranged_.clear();
    for (size_t i = 0; i < n; ++i) {
      const auto place = static_cast<size_t>(place_[Index(entries[i])]);
      if (place < n && at_place_[place] < 0) at_place_[place] = static_cast<int32_t>(i);
    }
    for (const int32_t i : at_place_) {
      if (i >= 0) arranged_.push_back(entries[static_cast<size_t>(i)]);
    }
    if (arranged_.size() == n) return;
    for (size_t i = 0; i < n; ++i) {
      const auto place = static_cast<size_t>(place_[Index(entries[i])]);
      if (place >= n || at_place_[place] != static_cast<int32_t>(i)) arranged_.push_back(entries[i]);
    }
  }

  std::vector<int32_t> place_;     // [slot_capacity] place in the last sort with the slot
  std::vector<int32_t> at_place_;  // index of the entry that gets the place; -1: none
  std::vector<Entry> arranged_;
  int64_t moves_ = 0;
};

}  // namespace tactus::core
