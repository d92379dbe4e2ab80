// The ids below a limit that are free: of those returned the last comes first, then the lowest that was never taken.
// The ids that were never taken are a count, so that a large pool costs no memory before it is used.
//
// Nothing allocates after construction. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tactus {

class FreeIds {
 public:
  explicit FreeIds(size_t count) : count_(count) { returned_.reserve(count); }

  bool empty() const { return returned_.empty() && taken_ == count_; }
  size_t size() const { return returned_.size() + count_ - taken_; }
  size_t count() const { return count_; }
  // The ids below it were taken at least once, the others never.
  size_t taken() const { return taken_; }

  // Precondition: not empty.
  int32_t Take() {
    if (returned_.empty()) {
      TACTUS_DCHECK(taken_ < count_);
      return static_cast<int32_t>(taken_++);
    }
    const int32_t id = returned_.back();
    returned_.pop_back();
    return id;
  }
  void Return(int32_t id) { returned_.push_back(id); }
  // The id that the Take after next returns; -1: fewer than two are free.
  int32_t Second() const {
    if (returned_.size() > 1) return returned_[returned_.size() - 2];
    const size_t id = taken_ + (returned_.empty() ? 1 : 0);
    return id < count_ ? static_cast<int32_t>(id) : -1;
  }
  const std::vector<int32_t>& returned() const { return returned_; }

 private:
  size_t count_;
  size_t taken_ = 0;
  std::vector<int32_t> returned_;
};

}  // namespace tactus
