// Counts the steps of one render, with a limit, and checks its stop token. Everything that a template can make large is
// charged: evaluated nodes, visited items, bytes that native code (searches, comparisons, sorting) may touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tactus/stop_token.h"

namespace tactus::language::jinja {

class Meter {
 public:
  Meter(int64_t limit, StopToken stop) : limit_(limit), stop_(stop) { Look(); }
  // Throws TemplateError: kLimit, or kStopped.
  void Charge(size_t units) {
    steps_ = units > static_cast<size_t>(limit_ - steps_) ? limit_ + 1 : steps_ + static_cast<int64_t>(units);
    if (steps_ > next_look_) Look();
  }
  void ChargeText(size_t bytes) { Charge(bytes / kBytesPerStep + 1); }
  int64_t steps() const { return steps_; }

 private:
  static constexpr size_t kBytesPerStep = 64;
  static constexpr int64_t kStepsBetweenLooks = 4096;
  void Look();

  const int64_t limit_;
  const StopToken stop_;
  int64_t steps_ = 0;
  int64_t next_look_ = 0;
};

}  // namespace tactus::language::jinja
