#include "engine/past_requests.h"

#include <algorithm>

#include "base/hash.h"

namespace tactus::engine {
namespace {

std::vector<int64_t> TextIdsOf(const std::vector<TokenId>& prompt) {
  std::vector<int64_t> ids;
  Hash128 key{};
  for (size_t end = kTextBlockTokens; end <= prompt.size() && ids.size() < PastRequests::kMostTextIds;
       end += kTextBlockTokens) {
    key = SipHash128(key, prompt.data() + end - kTextBlockTokens, kTextBlockTokens * sizeof(TokenId));
    ids.push_back(static_cast<int64_t>(key.low >> 1));
  }
  return ids;
}

PastRequest PastOf(const core::RequestDoneEvent& done) {
  PastRequest past;
  past.arrival_ns = done.arrival_ns;
  past.prompt_tokens = done.prompt_tokens;
  past.cached_tokens = done.cached_tokens;
  past.completion_tokens = done.completion_tokens;
  if (done.request != nullptr) {
    past.priority = done.request->priority;
    past.slo = done.request->slo;
    past.slo_class = done.request->slo_class;
  }
  past.finish = done.finish;
  past.refused = done.refused;
  past.late = std::any_of(done.misses.begin(), done.misses.end(), [](const Miss& m) { return m.missed; });
  if (done.first_token_ns > 0) past.ttft_ns = done.first_token_ns - done.arrival_ns;
  past.e2e_ns = done.done_ns - done.arrival_ns;
  if (done.gaps > 0) past.longest_gap_ns = done.longest_gap_ns;
  past.gaps = done.gaps;
  past.late_gaps = done.late_gaps;
  return past;
}

}  // namespace

void PastRequests::Arriving(const Request& request) {
  if (!request.prompt || request.prompt->size() < kTextBlockTokens) return;
  std::vector<int64_t> ids = TextIdsOf(*request.prompt);
  const std::lock_guard lock(mutex_);
  text_ids_[&request] = std::move(ids);
}

void PastRequests::Forget(const Request& request) {
  const std::lock_guard lock(mutex_);
  text_ids_.erase(&request);
}

void PastRequests::OnStep(const core::StepEvents& events) {
  for (const core::RequestDoneEvent& done : events.done) {
    unadded_.push_back({done.request, done.done_ns, PastOf(done)});
  }
  if (unadded_.empty()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Unadded& u : unadded_) {
    if (auto ids = text_ids_.extract(u.asked.get()); !ids.empty()) u.request.text_ids = std::move(ids.mapped());
    ended_.push_back({u.at_ns, std::make_shared<const PastRequest>(std::move(u.request))});
  }
  unadded_.clear();
  const TimeNs oldest_ns = events.now_ns - kKeptNs;
  while (!ended_.empty() && (ended_.size() > kMost || ended_.front().at_ns < oldest_ns)) ended_.pop_front();
}

std::vector<PastRequest> PastRequests::Since(TimeNs now_ns) const {
  std::vector<std::shared_ptr<const PastRequest>> kept;
  {
    const std::lock_guard lock(mutex_);
    kept.reserve(ended_.size());
    for (const Ended& e : ended_) {
      if (e.at_ns >= now_ns - kKeptNs) kept.push_back(e.request);
    }
  }
  std::vector<PastRequest> found;
  found.reserve(kept.size());
  for (const auto& request : kept) found.push_back(*request);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.arrival_ns < b.arrival_ns; });
  return found;
}

}  // namespace tactus::engine
