#include "loop/step_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "loop/crash_report.h"
#include "loop/step_loop_impl.h"

namespace tactus {

void StatsCell::Write(const EngineStats& stats) {
  static_assert(std::is_trivially_copyable_v<EngineStats> && sizeof(EngineStats) % sizeof(uint64_t) == 0);
  uint64_t raw[kWords];
  std::memcpy(raw, &stats, sizeof(raw));
  const uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  // Each word is a release store, so that no reader sees a new word under an old, even version.
  for (size_t i = 0; i < kWords; ++i) words_[i].store(raw[i], std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

EngineStats StatsCell::Read() const {
  uint64_t raw[kWords];
  for (;;) {
    const uint64_t before = version_.load(std::memory_order_acquire);
    for (size_t i = 0; i < kWords; ++i) raw[i] = words_[i].load(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_acquire) == before) break;
  }
  EngineStats stats;
  std::memcpy(&stats, raw, sizeof(raw));
  return stats;
}

namespace {

int32_t CapacityOf(const StepLoopConfig& config) {
  return config.slot_capacity > 0 ? config.slot_capacity : config.limits.max_queue + config.limits.max_num_seqs;
}

}  // namespace

StepLoop::Impl::Impl(const StepLoopConfig& c, StepLoopParts p, Intake* i, std::atomic<bool>* h)
    : config(c),
      parts(std::move(p)),
      traits(parts.executor->traits()),
      wants_tokens(parts.sink->wants_tokens()),
      intake(*i),
      healthy(*h),
      block_size(parts.kv->block_size()),
      table(CapacityOf(c)),
      requests(CapacityOf(c)),
      slots(static_cast<size_t>(CapacityOf(c))),
      builder(parts.scheduler->config().limits, parts.kv) {
  TACTUS_CHECK(parts.scheduler->config().limits.slot_capacity >= CapacityOf(c));
  TACTUS_CHECK(parts.scheduler->config().limits.predictor == parts.predictor);
  TACTUS_CHECK(block_size == c.limits.block_size && traits.max_in_flight >= 1);
  ring.resize(static_cast<size_t>(traits.max_in_flight));
  const auto most = static_cast<size_t>(c.limits.max_num_seqs);
  for (InFlight& f : ring) {
    f.epochs.reserve(most);
    f.plan.items.reserve(most);
    f.plan.starts.reserve(most);
    f.plan.table_updates.reserve(2 * most);
    f.plan.table_blocks.reserve(4 * most);
    f.plan.preempts.reserve(most);
    f.plan.tokens.reserve(4 * most);
  }
  key_tokens.resize(static_cast<size_t>(block_size));
  token_events.reserve(4 * most);
  step_events.reserve(ring.size());
  drained.reserve(256);
  cancels.reserve(256);
  gap_events.reserve(most);
  stats.kv_blocks_total = parts.kv->blocks_total();
  InstallCrashReport();
  published.Write(stats);
}

void WakeUp::Signal() {
  if (signalled_.exchange(true, std::memory_order_acq_rel)) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
  }  // the engine thread is not between its check and its wait
  condition_.notify_one();
}

void WakeUp::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  condition_.wait(lock, [this] { return signalled_.load(std::memory_order_acquire); });
}

// The last steps oldest first, each in one line.
std::string StepLoop::Impl::Account() const {
  std::string text = fmt::format(
      "scheduler {}\n{}{} steps planned, plan hash {:016x}, {} in flight, {} running, {} waiting; {} KV blocks of {} "
      "in use; "
      "recorded {} bytes\nthe last steps: number, planned, started, ended (ns), prefill tokens, decodes, preemptions\n",
      parts.scheduler->Describe(), parts.about, next_step, plan_hash, ring_count, table.running().size(),
      table.waiting().size(), parts.kv->blocks_in_use(), parts.kv->blocks_total(),
      parts.tap != nullptr ? parts.tap->position() : 0);
  for (size_t i = recent_count > recent.size() ? recent_count - recent.size() : 0; i < recent_count; ++i) {
    const StepRecord& r = recent[i % recent.size()];
    text += fmt::format("  {} {} {} {} {} {} {}{}\n", r.step, r.planned_ns, r.start_ns, r.end_ns, r.prefill_tokens,
                        r.decode_tokens, r.preemptions, r.ok ? "" : " failed");
  }
  return text;
}

bool StepLoop::Impl::RunOnce() {
  const CrashScope scope([](const void* loop) { return static_cast<const Impl*>(loop)->Account(); }, this);
  now_ns = parts.clock->NowNs();
  if (parts.tap != nullptr) parts.tap->BeginPass(now_ns);
  bool worked = DrainInput();
  worked = CommitReady() || worked;
  if (!healthy.load(std::memory_order_relaxed) && (table.num_held() > 0 || !table.waiting().empty())) {
    FinishAll(FinishReason::kError, Status(StatusCode::kUnavailable, "the executor has failed"));  // came in meanwhile
  }
  if (abort.load(std::memory_order_acquire)) {
    Status why;
    {
      std::lock_guard<std::mutex> lock(abort_mutex);
      abort.store(false, std::memory_order_release);
      why = abort_status;
    }
    if (parts.tap != nullptr) parts.tap->Abort();
    FinishAll(FinishReason::kError, why);
    worked = true;
  }
  while (ring_count < ring.size() && PlanAndSubmit()) worked = true;
  if (worked) {
    Deliver();
    PublishStats();
  }
  if (parts.tap != nullptr) parts.tap->EndPass();
  return worked;
}

bool StepLoop::Impl::DrainInput() {
  if (!intake.HasInput()) return false;
  intake.Drain(&drained, &cancels);
  for (PreparedRequest& request : drained) TakeRequest(std::move(request));
  for (const RequestHandle handle : cancels) {
    if (parts.tap != nullptr) parts.tap->Cancel(handle);
    RequestRecord* request = requests.Find(handle);
    if (request == nullptr) continue;
    const int32_t error = AddError(Status(StatusCode::kCancelled, "cancelled"));
    ++request->slots_held;  // the record outlives this loop
    for (const SequenceBuffers& choice : request->in.choices) {
      if (choice.slot != kNoSlot && table.columns().state[choice.slot] != SeqState::kFinished) {
        Finish(choice.slot, FinishReason::kCancelled, nullptr, error);
      }
    }
    if (--request->slots_held == 0) requests.Release(request);
  }
  return true;
}

void StepLoop::Impl::TakeRequest(PreparedRequest prepared) {
  RequestRecord* request = requests.Add(std::move(prepared));
  const PreparedRequest& in = request->in;
  if (parts.tap != nullptr) parts.tap->Arrival(in);
  const auto n = static_cast<int32_t>(in.choices.size());
  request->live_choices = request->slots_held = n;
  request->siblings_held = n > 1;
  TACTUS_CHECK_MSG(!traits.has_tokens || in.request->prompt != nullptr, "this executor needs token ids");
  for (int32_t choice = 0; choice < n; ++choice) {
    SequenceBuffers& buffers = request->in.choices[static_cast<size_t>(choice)];
    const SlotId s = table.Add({.prompt_tokens = in.prompt_tokens,
                                .max_output_tokens = in.max_tokens,
                                .arrival_ns = in.arrival_ns,
                                .priority = in.request->priority,
                                .slo = in.request->slo,
                                .prompt_logprobs = in.request->prompt_logprobs,
                                .held = choice > 0},
                               now_ns);
    buffers.slot = s;
    SlotEntry& slot = slots[static_cast<size_t>(s)];
    slot = SlotEntry();
    slot.request = request;
    slot.buffers = &buffers;
    slot.prompt = in.request->prompt != nullptr ? in.request->prompt->data() : nullptr;
    slot.prompt_tokens = in.prompt_tokens;
    slot.user = in.user;
    slot.handle = in.handle;
    slot.stop_ids = in.stop_ids.data();
    slot.num_stop_ids = static_cast<int32_t>(in.stop_ids.size());
    slot.max_tokens = in.max_tokens;
    slot.has_stop_strings = buffers.stop.has_value() && parts.token_bytes;
    slot.choice = choice;
    slot.min_tokens = static_cast<int32_t>(std::min<int64_t>(in.request->stop.min_tokens, in.max_tokens));
    slot.last_token_ns = in.arrival_ns;
    if (in.has_keys) slot.next_key_at = (static_cast<int32_t>(buffers.keys.size()) + 1) * block_size;
    parts.kv->Bind(s, in.has_keys ? &buffers.keys : nullptr);
    if (parts.predictor != nullptr) BindPredictor(s, *request);
  }
}

void StepLoop::Impl::BindPredictor(SlotId s, const RequestRecord& request) {
  PredictionFeatures features;
  features.prompt_tokens = request.in.prompt_tokens;
  features.max_output_tokens = request.in.max_tokens;
  features.client = request.in.client;
  features.request = request.in.request.get();
  if (request.in.has_keys) features.prefix_keys = slots[static_cast<size_t>(s)].buffers->keys;
  parts.predictor->Bind(s, features);
  if (parts.tap != nullptr && !parts.predictor->learns())
    parts.tap->Predicted(parts.predictor->PredictOutputTokens(s, 0));
}

void StepLoop::Impl::Deliver() {
  if (!gap_events.empty() || !token_events.empty() || !done_events.empty() || !step_events.empty() ||
      !scheduled_events.empty()) {
    StepEvents events;
    events.now_ns = now_ns;
    events.decision_ns = decision_ns;
    events.steps = step_events;
    events.scheduled = scheduled_events;
    events.gaps = gap_events;
    events.tokens = token_events;
    events.prompt_logprobs = prompt_logprob_events;
    events.done = done_events;
    events.logprobs = logprob_events;
    events.errors = error_events;
    parts.sink->OnStep(events);
  }
  decision_ns = -1;
  step_events.clear();
  scheduled_events.clear();
  gap_events.clear();
  token_events.clear();
  prompt_logprob_events.clear();
  done_events.clear();
  logprob_events.clear();
  error_events.clear();
}

void StepLoop::Impl::PublishStats() {
  const KvCacheStats kv = parts.kv->Stats();
  stats.running = static_cast<int64_t>(table.running().size());
  stats.waiting = static_cast<int64_t>(table.waiting().size()) + table.num_held();
  stats.kv_blocks_in_use = kv.blocks_in_use;
  stats.kv_blocks_cached = kv.blocks_cached;
  stats.prefix_query_tokens = kv.prefix_query_tokens;
  stats.prefix_hit_tokens = kv.prefix_hit_tokens;
  stats.swap_blocks_total = kv.swap_blocks_total;
  stats.swap_blocks_used = kv.swap_blocks_used;
  stats.swapped_sequences = kv.swap_outs;
  stats.swapped_out_blocks = kv.swapped_out_blocks;
  stats.swapped_in_blocks = kv.swapped_in_blocks;
  stats.plan_hash = plan_hash;
  stats.budget_utilization = budget_tokens > 0 ? planned_tokens / budget_tokens : 0;
  stats.kv_utilization = stats.steps > 0 ? kv_use_sum / static_cast<double>(stats.steps * stats.kv_blocks_total) : 0;
  stats.healthy = healthy.load(std::memory_order_relaxed);
  published.Write(stats);
}

StepLoop::StepLoop(const StepLoopConfig& config, StepLoopParts parts)
    : intake_(config.limits.max_queue, CapacityOf(config)),
      impl_(std::make_unique<Impl>(config, std::move(parts), &intake_, &healthy_)) {
  impl_->parts.executor->SetWakeup([wake = impl_->wake] { wake->Signal(); });
}

StepLoop::~StepLoop() = default;

Result<RequestHandle> StepLoop::Submit(PreparedRequest request) {
  Result<RequestHandle> handle = intake_.Submit(std::move(request), impl_->parts.clock->NowNs());
  if (handle.ok()) impl_->wake->Signal();
  return handle;
}

void StepLoop::Cancel(RequestHandle handle) {
  intake_.Cancel(handle);
  impl_->wake->Signal();
}

void StepLoop::StopAccepting(Status why) {
  intake_.Close(std::move(why));
}

void StepLoop::Abort(Status why) {
  {
    std::lock_guard<std::mutex> lock(impl_->abort_mutex);
    impl_->abort_status = std::move(why);
    impl_->abort.store(true, std::memory_order_release);
  }
  impl_->wake->Signal();
}

void StepLoop::Stop() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->wake->Signal();
}

EngineStats StepLoop::Stats() const {
  return impl_->published.Read();
}
bool StepLoop::RunOnce() {
  return impl_->RunOnce();
}

void StepLoop::Run() {
  while (true) {
    impl_->wake->Arm();  // before anything is looked at, so that whatever comes later wakes
    if (impl_->stopping.load(std::memory_order_acquire)) return;
    if (!impl_->RunOnce()) impl_->wake->Wait();
  }
}

bool StepLoop::idle() const {
  return !intake_.HasInput() && impl_->ring_count == 0 && impl_->table.waiting().empty() &&
         impl_->table.running().empty() && impl_->table.num_held() == 0;
}

uint64_t StepLoop::plan_hash() const {
  return impl_->plan_hash;
}
void StepLoop::KeepPlanHashes() {
  impl_->keep_hashes = true;
}
const std::vector<uint64_t>* StepLoop::plan_hashes() const {
  return impl_->keep_hashes ? &impl_->hashes : nullptr;
}

double StepLoop::budget_utilization() const {
  return impl_->budget_tokens > 0 ? impl_->planned_tokens / impl_->budget_tokens : 0;
}

double StepLoop::kv_utilization() const {
  const EngineStats& stats = impl_->stats;
  return stats.steps > 0 ? impl_->kv_use_sum / static_cast<double>(stats.steps * stats.kv_blocks_total) : 0;
}

std::string StepLoop::CheckIntegrity() const {
  if (std::string broken = impl_->table.CheckIntegrity(); !broken.empty()) return "sequences: " + broken;
  if (std::string broken = impl_->parts.kv->CheckIntegrity(); !broken.empty()) return "kv: " + broken;
  const SequenceColumns& seq = impl_->table.columns();
  for (SlotId s = 0; s < seq.capacity; ++s) {
    const int64_t held = impl_->parts.kv->blocks_held(s);
    if (!impl_->table.holds_kv(s)) {
      if (held != 0) return "slot " + std::to_string(s) + " holds blocks without running";
      const int32_t kept = seq.state[s] == SeqState::kWaiting ? seq.computed_committed[s] : 0;
      if (impl_->parts.kv->SwappedTokens(s) != kept)
        return "slot " + std::to_string(s) + ": host memory keeps another length";
      continue;
    }
    if (held * impl_->block_size < seq.computed_planned[s])
      return "slot " + std::to_string(s) + " computes beyond its blocks";
    const SlotEntry& slot = impl_->slots[static_cast<size_t>(s)];
    const bool all_there =
        !impl_->traits.has_tokens || static_cast<int32_t>(slot.buffers->output.size()) == slot.generated;
    if (!all_there || slot.generated + seq.prompt_tokens[s] != seq.known_committed[s]) {
      return "slot " + std::to_string(s) + " has lost or invented tokens";
    }
  }
  return {};
}

}  // namespace tactus
