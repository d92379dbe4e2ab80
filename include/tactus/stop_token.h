// Requests that running work end soon: a flag that another thread sets and the work polls every few thousand steps. The
// flag's owner outlives the work and never clears the flag.
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
