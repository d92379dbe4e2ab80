#include "fake_engine.h"

#include "support/listed_grammar.h"

namespace tactus {

static std::vector<TokenLogprob> Row(TokenId chosen, int32_t k) {
  std::vector<TokenLogprob> row{{chosen, -0.5f}};
  for (int32_t i = 0; i < k; ++i) row.push_back({chosen + i, -0.5f - static_cast<float>(i)});
  return row;
}

std::vector<RequestTimeline> FakeEngine::Timelines(const TimelineQuery& query) const {
  std::lock_guard lock(mutex_);
  std::vector<RequestTimeline> found;
  for (size_t i = 0; i < submitted_.size(); ++i) {
    const Request& r = submitted_[i];
    const bool found_by_id = (r.id == query.id || IsPromptOf(r.id, query.id)) && r.owner == query.owner;
    if (query.handle != 0 ? query.handle != i + 1 : !found_by_id) continue;
    if (query.arrival_ns >= 0 && r.arrival_ns != query.arrival_ns) continue;
    RequestTimeline& t = found.emplace_back();
    t.handle = i + 1;
    t.id = r.id;
    t.owner = r.owner;
    t.ended = live_.count(t.handle) == 0;
    t.finish = t.ended ? FinishReason::kLength : FinishReason::kNone;
    t.slo = r.slo;
    for (int32_t choice = 0; choice < r.n; ++choice) {
      SequenceTimeline& s = t.sequences.emplace_back();
      s.choice = choice;
      s.ttft_ns = 2000000;
      s.end_ns = 3500001;
      s.segments = {{Cause::kQueue, false, 0, 1000000, 4}, {Cause::kPrefill, false, 1000000, s.end_ns, 2}};
      s.total_ns[static_cast<size_t>(Cause::kQueue)] = 1000000;
      s.total_ns[static_cast<size_t>(Cause::kPrefill)] = 2500001;
    }
  }
  return found;
}

void FakeEngine::Deliver() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    std::vector<RequestHandle> handles;
    changed_.wait(lock, [&] {
      for (const auto& [handle, live] : live_)
        if (Runnable(handle, live)) handles.push_back(handle);
      return quit_ || !handles.empty();
    });
    if (quit_) break;
    for (const RequestHandle handle : handles) Step(&lock, handle, Cancelled(handle));
    changed_.notify_all();
  }
  for (auto& [handle, live] : live_) live.sink.reset();
}

bool FakeEngine::Runnable(RequestHandle handle, const Live& live) const {
  if (cut_off_ || Cancelled(handle)) return true;
  return std::any_of(live.sent.begin(), live.sent.end(),
                     [this](int64_t sent) { return sent >= 0 && sent < hold_after_; });
}

void FakeEngine::Step(std::unique_lock<std::mutex>* lock, RequestHandle handle, bool cancelled) {
  Live& live = live_[handle];  // stays valid: only this thread erases
  const std::vector<std::string> pieces = pieces_;
  const bool cut = cut_off_;
  const int64_t fail_after = fail_after_, hold_after = hold_after_;
  const Status fail_status = fail_status_;
  const std::vector<int64_t> lengths = lengths_;
  lock->unlock();
  const Request& r = live.request;
  bool first = live.sent[0] == 0 && live.choices_done == 0;
  if (first && r.prompt_logprobs && !cancelled && !cut) {
    for (size_t i = 1; i < r.prompt->size(); ++i)
      live.sink->OnPromptLogprobs({Row((*r.prompt)[i], r.sampling.logprobs)});
  }
  for (int32_t c = 0; c < r.n; ++c) {
    int64_t& sent = live.sent[static_cast<size_t>(c)];
    if (sent < 0 || (sent >= hold_after && !cancelled && !cut)) continue;
    TokenDelta delta;
    delta.choice = c;
    if (cancelled || cut) {
      delta.finish = FinishReason::kCancelled;
      delta.error =
          Status(cut ? StatusCode::kUnavailable : StatusCode::kCancelled, cut ? "the server is stopping" : "cancelled");
    } else if (fail_after >= 0 && sent >= fail_after) {
      delta.finish = FinishReason::kError;
      delta.error = fail_status;
    } else {
      const std::string& piece = pieces[static_cast<size_t>(sent) % pieces.size()];
      delta.text = piece;
      delta.tokens = {static_cast<TokenId>('a' + sent % 26)};
      if (r.sampling.logprobs >= 0) delta.logprobs.push_back(Row(delta.tokens[0], r.sampling.logprobs));
      ++sent;
      const auto own = static_cast<size_t>(c);
      if (sent >= (own < lengths.size() ? lengths[own] : r.stop.max_tokens)) delta.finish = FinishReason::kLength;
      for (const std::string& stop : r.stop.stop) {
        if (piece.find(stop) == std::string::npos) continue;
        delta.text.clear();
        delta.finish = FinishReason::kStop;
        delta.stop_string = stop;
      }
    }
    if (delta.finish != FinishReason::kNone) {
      live.total += sent;
      sent = -1;
      ++live.choices_done;
    }
    live.sink->OnDelta(delta);
  }
  const bool done = live.choices_done == static_cast<size_t>(r.n);
  if (done) live.sink->OnDone(Usage{static_cast<int64_t>(r.prompt->size()), 1, live.total});
  lock->lock();
  live.begun = live.sent[0] > 0;
  if (done) live_.erase(handle);
}

Result<std::shared_ptr<const TokenGrammar>> FakeEngine::CompileRule(const OutputRule& rule, StopToken,
                                                                    RuleWait* wait) const {
  if (on_rule) TACTUS_RETURN_IF_ERROR(on_rule(rule, wait));
  if (rule.text.find("impossible") != std::string::npos) return InvalidArgument("'impossible' is not supported");
  return std::shared_ptr<const TokenGrammar>(
      std::make_shared<test::ListedGrammar>(model_.vocab_size, 0, std::vector<std::vector<TokenId>>()));
}

std::string FakeEngine::TokenString(TokenId token) const {
  CallHook({});
  return token < 128   ? std::string(1, static_cast<char>(token))
         : token < 256 ? "\xEF\xBF\xBD"
                       : "<" + std::to_string(token) + ">";
}

Status FakeEngine::WaitForRoom(int32_t sequences, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] {
    const int64_t wanted = std::min<int64_t>(sequences, queue_limit_);
    return draining_ || static_cast<int64_t>(live_.size()) + wanted <= queue_limit_;
  });
  if (draining_) return Status(StatusCode::kUnavailable, "draining");
  return came ? Status() : Status(StatusCode::kDeadlineExceeded, "no room");
}

int64_t FakeEngine::Drain(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return live_.empty(); });
  const auto left = static_cast<int64_t>(live_.size());
  cut_off_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kAwaitLimit, [this] { return live_.empty(); });
  return left;
}

}  // namespace tactus
