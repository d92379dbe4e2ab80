#include "batches/background.h"

#include <algorithm>
#include <chrono>

namespace tactus::batches {

bool BackgroundRoom::Fits(const Cost& c) const {
  if (taken_.sequences == 0) return true;
  const bool others = live_ && live_() > taken_.sequences;
  const auto share = [&](int64_t all) {
    return others ? static_cast<int64_t>(share_.beside_others * static_cast<double>(all)) : all;
  };
  if (taken_.sequences + c.sequences > share(share_.sequences)) return false;
  if (share_.kv_tokens > 0 && taken_.kv_tokens + c.kv_tokens > share(share_.kv_tokens)) return false;
  if (waiting_sequences_ == 0) return true;
  return waiting_sequences_ + c.sequences <= share_.waiting_sequences &&
         waiting_tokens_ + c.prompt_tokens <= share_.waiting_tokens;
}

bool BackgroundRoom::Take(const Cost& c) {
  std::lock_guard lock(mutex_);
  if (closed_ || !Fits(c)) return false;
  taken_.sequences += c.sequences;
  taken_.kv_tokens += c.kv_tokens;
  waiting_sequences_ += c.sequences;
  waiting_tokens_ += c.prompt_tokens;
  return true;
}

void BackgroundRoom::Began(const Cost& c) {
  std::lock_guard lock(mutex_);
  waiting_sequences_ -= c.sequences;
  waiting_tokens_ -= c.prompt_tokens;
  changed_.notify_all();
}

void BackgroundRoom::Ended(const Cost& c, bool began, int64_t output_tokens) {
  std::lock_guard lock(mutex_);
  taken_.sequences -= c.sequences;
  taken_.kv_tokens -= c.kv_tokens;
  if (began) {
    expected_tokens_ += (2.0 * static_cast<double>(output_tokens) - expected_tokens_) / 32;
  } else {
    waiting_sequences_ -= c.sequences;
    waiting_tokens_ -= c.prompt_tokens;
  }
  changed_.notify_all();
}

bool BackgroundRoom::WaitFor(const Cost& cost, DurationNs timeout_ns) {
  constexpr DurationNs kLookNs = 10 * kMillisecond;  // nobody says when the others have gone
  std::unique_lock lock(mutex_);
  for (DurationNs left_ns = timeout_ns; left_ns > 0; left_ns -= kLookNs) {
    const std::chrono::nanoseconds look(std::min(left_ns, kLookNs));
    if (changed_.wait_for(lock, look, [&] { return closed_ || Fits(cost); })) return true;
  }
  return false;
}

void BackgroundRoom::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool BackgroundRoom::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

int64_t BackgroundRoom::ExpectedTokens(int64_t most) const {
  std::lock_guard lock(mutex_);
  return std::min(most, static_cast<int64_t>(expected_tokens_) + 1);
}

}  // namespace tactus::batches
