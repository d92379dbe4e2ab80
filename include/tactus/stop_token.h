// Asks work under way to end soon: a flag that another thread sets and the work looks at every few thousand steps. The
// flag's owner outlives the work, and never takes the flag back.
#pragma once

#include <atomic>

namespace tactus {

class StopToken {
 public:
  StopToken() = default;  // never stops
  explicit StopToken(const std::atomic<bool>* flag) : flag_(flag) {}
  bool stopped() const { return flag_ != nullptr && flag_->load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* flag_ = nullptr;
};

}  // namespace tactus
