#include "engine/live_records.h"

#include <utility>

namespace tactus::engine {
namespace {

LiveEnd EndOf(const core::RequestDoneEvent& done) {
  LiveEnd end;
  end.request = done.handle;
  end.finish = done.finish;
  end.refused = done.refused;
  end.prompt_tokens = done.prompt_tokens;
  end.cached_tokens = done.cached_tokens;
  end.completion_tokens = done.completion_tokens;
  end.preemptions = done.preemptions;
  end.gaps = done.gaps;
  end.late_gaps = done.late_gaps;
  if (done.first_token_ns > 0) end.ttft_ns = done.first_token_ns - done.arrival_ns;
  end.e2e_ns = done.done_ns - done.arrival_ns;
  end.longest_gap_ns = done.longest_gap_ns;
  end.misses = done.misses;
  return end;
}

}  // namespace

void LiveRecords::Watch(bool on) {
  if (on) {
    if (ring_.empty()) ring_.resize(capacity_);
    taken_.store(pushed_.load(std::memory_order_acquire), std::memory_order_release);
    lost_.store(0, std::memory_order_relaxed);
    std::lock_guard lock(outline_mutex_);
    outline_.reset();  // the last viewer's
  }
  watched_.store(on, std::memory_order_release);
}

int64_t LiveRecords::Take(std::vector<LiveRecord>* records) {
  const uint64_t end = pushed_.load(std::memory_order_acquire);
  uint64_t at = taken_.load(std::memory_order_relaxed);
  for (; at < end; ++at) records->push_back(ring_[at % capacity_]);
  taken_.store(at, std::memory_order_release);
  return lost_.exchange(0, std::memory_order_relaxed);
}

std::optional<PrefixOutline> LiveRecords::TakePrefixes() {
  const std::lock_guard lock(outline_mutex_);
  prefixes_asked_.store(true, std::memory_order_release);
  return std::exchange(outline_, std::nullopt);
}

void LiveRecords::Push(const LiveRecord& record) {
  const uint64_t at = pushed_.load(std::memory_order_relaxed);
  if (at - taken_.load(std::memory_order_acquire) >= capacity_) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ring_[at % capacity_] = record;
  pushed_.store(at + 1, std::memory_order_release);
}

void LiveRecords::Copy(const core::StepEvents& events) {
  for (const core::ChunkEvent& c : events.chunks) {
    Push(LiveChunk{c.step, c.handle, c.choice, c.first_position, c.tokens});
  }
  if (!events.steps.empty()) {
    const EngineStats stats = stats_();
    for (const core::StepRecord& s : events.steps) {
      LiveStep step;
      step.step = s.step;
      step.begin_ns = s.start_ns;
      step.end_ns = s.end_ns;
      step.predicted_ns = s.predicted_ns;
      step.budget_tokens = s.budget_tokens;
      step.decodes = s.decode_tokens;
      step.prompt_tokens = s.prefill_tokens;
      step.preemptions = s.preemptions;
      step.ok = s.ok;
      step.running = stats.running;
      step.waiting = stats.waiting;
      step.kv_blocks_in_use = stats.kv_blocks_in_use;
      step.kv_blocks_cached = stats.kv_blocks_cached;
      Push(step);
    }
  }
  if (!events.steps.empty() && prefixes_asked_.load(std::memory_order_acquire)) CopyPrefixes();
  for (const core::ScheduledEvent& s : events.scheduled) Push(LiveStart{s.handle, s.prompt_tokens, s.cached_tokens});
  CopyTokens(events.tokens);
  for (const core::RequestDoneEvent& done : events.done) Push(EndOf(done));
}

void LiveRecords::CopyPrefixes() {
  const std::unique_lock lock(outline_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // at the next step
  outline_ = prefixes_(kMostBranches);
  prefixes_asked_.store(false, std::memory_order_release);
}

// One record for the tokens that a choice gets in one pass.
void LiveRecords::CopyTokens(std::span<const core::TokenEvent> tokens) {
  LiveTokens record;
  for (const core::TokenEvent& t : tokens) {
    if (t.number == 0) continue;  // an end without a token
    if (record.count > 0 && (t.handle != record.request || t.choice != record.choice)) {
      Push(record);
      record.count = 0;
    }
    if (record.count == 0) record = {t.handle, t.choice, 0, 0, t.first_token, t.gap_ns};
    ++record.count;
    record.tokens = t.number;
  }
  if (record.count > 0) Push(record);
}

}  // namespace tactus::engine
