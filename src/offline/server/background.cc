#include "offline/server/background.h"

#include <algorithm>
#include <chrono>

namespace tactus::offline {
namespace {

constexpr DurationNs kGoneNs = kSecond;  // much longer than the pause between two attempts of a line

}  // namespace

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

std::vector<BackgroundRoom::Waiter>::iterator BackgroundRoom::Find(Asker asker) {
  return std::find_if(queue_.begin(), queue_.end(), [&](const Waiter& w) { return w.asker == asker; });
}

void BackgroundRoom::Queue(Asker asker, bool waits) {
  if (asker == nullptr) return;
  auto at = Find(asker);
  if (at == queue_.end()) at = queue_.insert(at, {asker});
  *at = {asker, waits, clock_.NowNs()};
}

// An asker that neither waits nor has called lately needs no room any more: its line was dropped, or was its last.
void BackgroundRoom::DropGone() {
  const TimeNs now_ns = clock_.NowNs();
  std::erase_if(queue_, [&](const Waiter& w) { return !w.waits && now_ns - w.last_asked > kGoneNs; });
}

bool BackgroundRoom::Take(const Cost& c, Asker asker) {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  DropGone();
  if (!IsNext(asker) || !Fits(c)) {
    Queue(asker, false);
    return false;
  }
  if (!queue_.empty()) {
    queue_.erase(queue_.begin());
    changed_.notify_all();  // the next in the queue may fit
  }
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

bool BackgroundRoom::WaitFor(const Cost& cost, DurationNs timeout_ns, Asker asker) {
  constexpr DurationNs kLookNs = 10 * kMillisecond;  // poll: there is no signal when interactive requests end
  const auto may_take = [&] { return closed_ || (IsNext(asker) && Fits(cost)); };
  std::unique_lock lock(mutex_);
  DropGone();
  if (may_take()) {
    if (Find(asker) != queue_.end()) Queue(asker, false);
    return true;
  }
  Queue(asker, true);
  bool may = false;
  for (DurationNs left_ns = timeout_ns; left_ns > 0 && !may; left_ns -= kLookNs) {
    DropGone();
    may = changed_.wait_for(lock, std::chrono::nanoseconds(std::min(left_ns, kLookNs)), may_take);
  }
  if (Find(asker) != queue_.end()) Queue(asker, false);  // otherwise it has left meanwhile
  return may;
}

void BackgroundRoom::Leave(Asker asker) {
  std::lock_guard lock(mutex_);
  std::erase_if(queue_, [&](const Waiter& w) { return w.asker == asker; });
  changed_.notify_all();
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

}  // namespace tactus::offline
