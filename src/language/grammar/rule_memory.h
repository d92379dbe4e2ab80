// The memory of all compiled rules and of all answers that follow one: one sum, with a limit that the memory plan has
// set aside. Any thread.
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

  // For bytes that are still to be allocated. False: they do not fit, and nothing is taken.
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

  // Waits until much has been given back since the last time, or Wake. One thread.
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
  // Of one answer, where there is not enough for all: compiled rules have a quarter of the whole.
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

// A share of it that follows what something holds, and is given back with it. One thread at a time.
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

  // From now on it holds so much. What is there is counted, beyond the limit too.
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
