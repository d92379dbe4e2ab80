// Memory accounting for all compiled rules and all answers with one: one sum, with a limit set aside by the memory
// plan. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tactus::language {

class RuleMemory {
 public:
  explicit RuleMemory(int64_t limit_bytes) : limit_(limit_bytes) {}
  RuleMemory(const RuleMemory&) = delete;
  RuleMemory& operator=(const RuleMemory&) = delete;

  // Reserves bytes before an allocation. False: they do not fit, and nothing is reserved.
  bool Take(int64_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    Give(bytes);
    return false;
  }
  void Give(int64_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (bytes <= 0 || given_.fetch_add(bytes, std::memory_order_relaxed) + bytes < kMuch) return;
    given_.store(0, std::memory_order_relaxed);
    Wake();
  }

  // Waits until kMuch bytes have been returned since the last call, or until Wake. One thread.
  void WaitForMuchGiven() {
    times_.wait(seen_);
    seen_ = times_.load();
  }
  void Wake() {
    ++times_;
    times_.notify_one();
  }

  void CountAnswer(int change) { answers_.fetch_add(change, std::memory_order_relaxed); }

  int64_t limit() const { return limit_; }
  // An answer's share where memory is short; compiled rules have a quarter of the whole.
  int64_t fair_part() const { return limit_ / 4 * 3 / std::max<int64_t>(1, answers_.load(std::memory_order_relaxed)); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t left() const { return limit_ - used(); }

 private:
  static constexpr int64_t kMuch = int64_t{64} << 20;

  const int64_t limit_;
  std::atomic<int64_t> used_{0}, answers_{0}, given_{0};
  std::atomic<uint32_t> times_{0};
  uint32_t seen_ = 0;
};

// A share of it that is updated with an object's size and returned with the object. One thread at a time.
class RuleMemoryShare {
 public:
  RuleMemoryShare(RuleMemory* memory, bool is_answer) : memory_(*memory), is_answer_(is_answer) {
    if (is_answer_) memory_.CountAnswer(1);
  }
  ~RuleMemoryShare() {
    memory_.Give(bytes_);
    if (is_answer_) memory_.CountAnswer(-1);
  }
  RuleMemoryShare(const RuleMemoryShare&) = delete;
  RuleMemoryShare& operator=(const RuleMemoryShare&) = delete;

  // Sets the bytes held. Memory already allocated is counted, even beyond the limit.
  void Set(int64_t bytes) {
    memory_.Give(bytes_ - bytes);
    bytes_ = bytes;
  }
  int64_t bytes() const { return bytes_; }

 private:
  RuleMemory& memory_;
  const bool is_answer_;
  int64_t bytes_ = 0;
};

}  // namespace tactus::language
