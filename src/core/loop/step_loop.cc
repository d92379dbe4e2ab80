#include "core/loop/step_loop.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "base/check.h"
#include "core/loop/commit.h"
#include "core/loop/crash_report.h"
#include "core/loop/live_requests.h"
#include "core/loop/pass_events.h"
#include "core/loop/stats_cell.h"
#include "core/loop/step_plan.h"
#include "core/loop/steps_in_flight.h"
#include "core/loop/transfers.h"
#include "core/loop/wake_up.h"

namespace tactus::core {

// The parts of the loop, and the order in which a pass runs them.
class StepLoop::Impl {
 public:
  Impl(const StepLoopConfig& config, const StepLoopParts& parts, Intake* intake, std::atomic<bool>* healthy);

  bool RunOnce();
  void Run();
  void Abort(Status why);
  void Stop();
  Status Failure() const;

  Clock& clock() { return *parts_.clock; }
  WakeUp& wake() { return *wake_; }
  Planning& planning() { return planning_; }
  Transfers& transfers() { return transfers_; }
  EngineStats Stats() const { return published_.Read(); }
  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const { return live_.timelines().Find(query); }
  std::vector<RequestHandle> LiveHandles() const { return live_.timelines().Live(); }
  bool idle() const { return steps_.empty() && live_.empty(); }
  void Movable(std::vector<RunningSequence>* sequences) const;
  std::string CheckIntegrity() const;

 private:
  bool DrainInput();
  std::optional<Status> TakeAbort();
  bool EndWhatIsAborted(const std::optional<Status>& abort);
  void PublishStats();
  std::string Account() const;

  void GiveUp(const Status& why);

  const LoopContext context_;
  const StepLoopParts& parts_;  // of context_
  Intake& intake_;
  std::atomic<bool>& healthy_;

  PlanBuilder builder_;
  PassEvents events_;
  StepsInFlight steps_;
  ImportReservations reservations_;
  LiveRequests live_;
  Commit commit_;
  Planning planning_;
  Transfers transfers_;
  std::vector<PreparedRequest> drained_;
  std::vector<RequestHandle> cancels_;
  std::vector<TransferCommand> commands_;

  StatsCell published_;
  const std::shared_ptr<WakeUp> wake_ = std::make_shared<WakeUp>();
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abort_{false};
  mutable std::mutex status_mutex_;
  Status abort_status_, failure_;  // under status_mutex_
};

StepLoop::Impl::Impl(const StepLoopConfig& config, const StepLoopParts& parts, Intake* intake,
                     std::atomic<bool>* healthy)
    : context_{.config = config, .parts = parts, .traits = parts.executor->traits()},
      parts_(context_.parts),
      intake_(*intake),
      healthy_(*healthy),
      builder_(parts_.scheduler->config().limits, parts_.kv),
      events_(parts_.sink, static_cast<size_t>(config.limits.max_num_seqs),
              static_cast<size_t>(context_.traits.max_in_flight)),
      steps_(context_.traits.max_in_flight, static_cast<size_t>(config.limits.max_num_seqs)),
      reservations_(parts_.kv),
      live_(context_, intake, &events_, &reservations_),
      commit_(context_, &builder_, &steps_, &live_, &events_, [this](const Status& why) { GiveUp(why); }),
      planning_(context_, &builder_, &steps_, &live_, &events_),
      transfers_(context_, &live_, &reservations_, &steps_, [this] { return planning_.copies_wait(); }) {
  const ExecutorTraits& traits = context_.traits;
  TACTUS_CHECK(parts_.scheduler->config().limits.slot_capacity >= config.slots());
  TACTUS_CHECK(parts_.scheduler->config().limits.predictor == parts_.predictor);
  TACTUS_CHECK(parts_.kv->block_size() == config.limits.block_size && traits.max_in_flight >= 1);
  TACTUS_CHECK((parts_.drafts != nullptr) == (config.max_draft_tokens > 0));
  TACTUS_CHECK_MSG(config.max_draft_tokens <= traits.max_draft_tokens,
                   fmt::format("executor {} verifies at most {} draft tokens, not {}", traits.name,
                               traits.max_draft_tokens, config.max_draft_tokens));
  drained_.reserve(256);
  cancels_.reserve(256);
  InstallCrashReport();
  PublishStats();
  parts_.executor->SetWakeup([wake = wake_] { wake->Signal(); });
}

void StepLoop::Impl::GiveUp(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    failure_ = why;
  }
  healthy_.store(false, std::memory_order_release);
  intake_.Close(why);
}

Status StepLoop::Impl::Failure() const {
  std::lock_guard<std::mutex> lock(status_mutex_);
  return failure_;
}

// For the crash report: state and the last steps, oldest first, one per line.
std::string StepLoop::Impl::Account() const {
  std::string text = fmt::format(
      "scheduler {}\n{}{} steps planned, plan hash {:016x}, {} in flight, {} running, {} waiting; {} KV blocks of {} "
      "in use; recorded {} bytes\nthe last steps: number, planned, started, ended (ns), prefill tokens, decodes, "
      "preemptions\n",
      parts_.scheduler->Describe(), parts_.about, steps_.next_step(), planning_.plan_hash(), steps_.count(),
      live_.sequences().running().size(), live_.sequences().waiting().size(), parts_.kv->blocks_in_use(),
      parts_.kv->blocks_total(), parts_.tap != nullptr ? parts_.tap->position() : 0);
  const auto recent = steps_.recent();
  for (size_t i = 0; i < recent.size(); ++i) {
    const StepRecord& r = recent[(static_cast<size_t>(steps_.recent_begin()) + i) % recent.size()];
    text += fmt::format("  {} {} {} {} {} {} {}{}\n", r.step, r.planned_ns, r.start_ns, r.end_ns, r.prefill_tokens,
                        r.decode_tokens, r.preemptions, r.ok ? "" : " failed");
  }
  return text;
}

bool StepLoop::Impl::RunOnce() {
  const CrashScope scope([](const void* loop) { return static_cast<const Impl*>(loop)->Account(); }, this);
  events_.Begin(parts_.clock->NowNs());
  Timelines::Pass pass(&live_.timelines(), events_.now_ns(), steps_.next_step());
  if (parts_.tap != nullptr) parts_.tap->BeginPass(events_.now_ns());
  const std::optional<Status> abort = TakeAbort();  // before the input: an abort ends all requests submitted before it
  bool worked = DrainInput();
  worked = transfers_.ReserveForWaiting() || worked;
  worked = commit_.Ready() || worked;
  worked = EndWhatIsAborted(abort) || worked;
  worked = transfers_.Settle() || worked;
  if (parts_.scheduler->gate_asks()) worked = planning_.AskGate() || worked;
  while (!steps_.full() && planning_.PlanAndSubmit(transfers_.any_paused())) worked = true;
  worked = transfers_.Read() || worked;  // while the step runs
  pass.End();
  if (worked) {
    events_.Deliver();
    PublishStats();
    intake_.TellRoom();
  }
  if (parts_.tap != nullptr) parts_.tap->EndPass();
  return worked;
}

bool StepLoop::Impl::DrainInput() {
  if (!intake_.HasInput()) return false;
  intake_.Drain(&drained_, &cancels_, &commands_);
  for (PreparedRequest& request : drained_) live_.Take(std::move(request));
  for (const RequestHandle handle : cancels_) live_.Cancel(handle);
  for (TransferCommand& command : commands_) transfers_.Take(std::move(command));
  return true;
}

std::optional<Status> StepLoop::Impl::TakeAbort() {
  if (!abort_.load(std::memory_order_acquire)) return std::nullopt;
  std::lock_guard<std::mutex> lock(status_mutex_);
  abort_.store(false, std::memory_order_release);
  return abort_status_;
}

bool StepLoop::Impl::EndWhatIsAborted(const std::optional<Status>& abort) {
  const SequenceTable& table = live_.sequences();
  bool ended = false;
  if (!healthy_.load(std::memory_order_relaxed) && (table.num_held() > 0 || !table.waiting().empty())) {
    // They were submitted while the executor failed for good.
    live_.FinishAll(FinishReason::kError, Status(StatusCode::kUnavailable, "the executor has failed"));
    ended = true;
  }
  if (!abort) return ended;
  if (parts_.tap != nullptr) parts_.tap->Abort();
  live_.FinishAll(FinishReason::kError, *abort);
  return true;
}

void StepLoop::Impl::PublishStats() {
  const KvCacheStats kv = parts_.kv->Stats();
  const SequenceCounts& counts = live_.counts();
  const SequenceTable& table = live_.sequences();
  EngineStats stats;
  stats.running = static_cast<int64_t>(table.running().size());
  stats.waiting = static_cast<int64_t>(table.waiting().size()) + table.num_held();
  stats.waiting_tokens = table.waiting_tokens();
  stats.kv_blocks_total = kv.blocks_total;
  stats.kv_blocks_in_use = kv.blocks_in_use;
  stats.kv_blocks_cached = kv.blocks_cached;
  stats.block_size = parts_.kv->block_size();
  stats.step_tokens = parts_.scheduler->max_step_tokens();
  stats.steps = steps_.next_step();
  stats.prompt_tokens = counts.prompt_tokens;
  stats.generation_tokens = counts.generation_tokens;
  stats.preemptions = counts.preemptions;
  stats.recomputed_tokens = counts.recomputed_tokens;
  stats.swap_blocks_total = kv.swap_blocks_total;
  stats.swap_blocks_used = kv.swap_blocks_used;
  stats.swapped_sequences = kv.swap_outs;
  stats.swapped_out_blocks = kv.swapped_out_blocks;
  stats.swapped_in_blocks = kv.swapped_in_blocks;
  stats.prefix_query_tokens = kv.prefix_query_tokens;
  stats.prefix_hit_tokens = kv.prefix_hit_tokens;
  stats.finished_stop = counts.finished_stop;
  stats.finished_length = counts.finished_length;
  stats.finished_cancelled = counts.finished_cancelled;
  stats.finished_error = counts.finished_error;
  stats.migrated_in = counts.migrated_in;
  stats.migrated_out = counts.migrated_out;
  stats.migrated_out_blocks = transfers_.blocks_read();
  stats.forced_drafts = counts.drafts[static_cast<size_t>(DraftKind::kForced)];
  stats.ngram_drafts = counts.drafts[static_cast<size_t>(DraftKind::kNgram)];
  stats.model_drafts = counts.drafts[static_cast<size_t>(DraftKind::kModel)];
  stats.budget_utilization = planning_.budget_utilization();
  stats.kv_utilization = planning_.kv_utilization();
  if (parts_.corrected != nullptr) stats.step_time_correction = parts_.corrected->factor();
  stats.plan_hash = planning_.plan_hash();
  if (!steps_.empty()) {
    const InFlight& oldest = steps_.Oldest();
    stats.step_in_flight = oldest.plan.step;
    stats.step_since_ns = steps_.oldest_since_ns();
    stats.step_predicted_ns = oldest.predicted.corrected_ns;
  }
  stats.healthy = healthy_.load(std::memory_order_relaxed);
  published_.Write(stats);
}

void StepLoop::Impl::Movable(std::vector<RunningSequence>* sequences) const {
  sequences->clear();
  const SequenceTable& table = live_.sequences();
  for (const SlotId s : table.running()) {
    if (!table.holds_kv(s)) continue;
    const PreparedRequest& in = live_.slot(s).request->in;
    if (in.choices.size() != 1 || in.request->prompt_logprobs) continue;
    sequences->push_back(
        {in.handle, in.request->priority, table.columns().computed_committed[s], table.columns().known_committed[s]});
  }
}

void StepLoop::Impl::Run() {
  while (true) {
    wake_->Arm();  // before any check, so that later input wakes the thread
    if (stopping_.load(std::memory_order_acquire)) return;
    if (!RunOnce()) wake_->Wait();
  }
}

void StepLoop::Impl::Abort(Status why) {
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    abort_status_ = std::move(why);
    abort_.store(true, std::memory_order_release);
  }
  wake_->Signal();
}

void StepLoop::Impl::Stop() {
  stopping_.store(true, std::memory_order_release);
  wake_->Signal();
}

std::string StepLoop::Impl::CheckIntegrity() const {
  if (std::string broken = parts_.kv->CheckIntegrity(); !broken.empty()) return "kv: " + broken;
  return live_.CheckIntegrity();
}

StepLoop::StepLoop(const StepLoopConfig& config, StepLoopParts parts)
    : intake_(config.limits.max_queue, config.slots()),
      impl_(std::make_unique<Impl>(config, parts, &intake_, &healthy_)) {}

StepLoop::~StepLoop() = default;

Result<RequestHandle> StepLoop::Submit(PreparedRequest request) {
  Result<RequestHandle> handle = intake_.Submit(std::move(request), impl_->clock().NowNs());
  if (handle.ok()) impl_->wake().Signal();
  return handle;
}

void StepLoop::Cancel(RequestHandle handle) {
  intake_.Cancel(handle);
  impl_->wake().Signal();
}

void StepLoop::Transfer(TransferCommand command) {
  intake_.Transfer(std::move(command));
  impl_->wake().Signal();
}

void StepLoop::StopAccepting(Status why) {
  intake_.Close(std::move(why));
}
void StepLoop::Abort(Status why) {
  impl_->Abort(std::move(why));
}
void StepLoop::Stop() {
  impl_->Stop();
}
Status StepLoop::Failure() const {
  return impl_->Failure();
}
EngineStats StepLoop::Stats() const {
  return impl_->Stats();
}
std::vector<RequestTimeline> StepLoop::Timelines(const TimelineQuery& query) const {
  return impl_->Timelines(query);
}
std::vector<RequestHandle> StepLoop::LiveHandles() const {
  return impl_->LiveHandles();
}
bool StepLoop::RunOnce() {
  return impl_->RunOnce();
}
void StepLoop::Run() {
  impl_->Run();
}
bool StepLoop::idle() const {
  return !intake_.HasInput() && impl_->idle();
}
void StepLoop::Movable(std::vector<RunningSequence>* sequences) const {
  impl_->Movable(sequences);
}
TransferAnswer StepLoop::ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted) {
  return impl_->transfers().ReadEntered(blocks, wanted);
}
uint64_t StepLoop::plan_hash() const {
  return impl_->planning().plan_hash();
}
void StepLoop::KeepPlanHashes() {
  impl_->planning().KeepHashes();
}
const std::vector<uint64_t>* StepLoop::plan_hashes() const {
  return impl_->planning().hashes();
}
std::string StepLoop::CheckIntegrity() const {
  return impl_->CheckIntegrity();
}

}  // namespace tactus::core
