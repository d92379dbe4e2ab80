#include "core/trace/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/input_file.h"
#include "core/predict/predictor.h"
#include "core/trace/recorded_drafts.h"
#include "core/trace/recorded_pass.h"
#include "core/trace/recorded_step_times.h"

namespace tactus::core {
namespace {

constexpr int64_t kMostTraceBytes = int64_t{4} << 30;

// Returns the recorded results, each in the pass in which it arrived.
class ReplayExecutor final : public Executor {
 public:
  ReplayExecutor(const TraceHeader& header, const ReplayHooks& hooks)
      : hooks_(hooks),
        traits_{.max_in_flight = header.max_in_flight,
                .can_chain = header.can_chain,
                .max_draft_tokens = header.max_draft_tokens,
                .has_tokens = false,
                .name = "replay"} {}
  ExecutorTraits traits() const override { return traits_; }
  void SetWakeup(std::function<void()>) override {}
  void Submit(const StepPlan& plan) override { plans_.push_back(&plan); }

  void Expect(std::vector<RecordedResult> results) {
    for (RecordedResult& r : results) results_.push_back(std::move(r));
  }
  bool drained() const { return results_.empty(); }

  bool Poll(StepResult* result) override {
    if (plans_.empty() || results_.empty()) return false;
    const StepPlan& plan = *plans_.front();
    const RecordedResult& r = results_.front();
    if (r.step != plan.step) return false;  // corrupt: detected by drained()
    result->Clear();
    result->step = r.step;
    result->start_ns = r.start_ns;
    result->end_ns = r.end_ns;
    if (!r.ok) result->status = Internal("executor error in the recording");
    result->device_failed = r.device_failed;
    if (r.ok) {
      size_t next = 0;
      for (size_t i = 0; i < plan.items.size(); ++i) {
        RecordedItem item{static_cast<int32_t>(i), ItemStatus::kOk, plan.items[i].count, plan.items[i].sample ? 1 : 0,
                          0};
        if (next < r.items.size() && r.items[next].index == static_cast<int32_t>(i)) item = r.items[next++];
        const auto offset = static_cast<int32_t>(result->tokens.size());
        result->items.push_back({item.status, item.accepted, offset, item.num_tokens});
        for (int32_t t = 0; t < item.num_tokens; ++t) {
          result->tokens.push_back(item.stopped_at == t + 1 ? kStopToken : kOtherToken);
        }
      }
    }
    if (r.ok && hooks_.on_step) hooks_.on_step(plan, r.start_ns, r.end_ns);
    plans_.pop_front();
    results_.pop_front();
    return true;
  }

 private:
  const ReplayHooks& hooks_;
  const ExecutorTraits traits_;
  std::deque<const StepPlan*> plans_;
  std::deque<RecordedResult> results_;
};

// Returns the recorded predictions of a predictor that does not learn, one per sequence.
class RecordedPredictor final : public LengthPredictor {
 public:
  RecordedPredictor(std::string name, int32_t slot_capacity)
      : name_(std::move(name)),
        tokens_(static_cast<size_t>(slot_capacity), 1),
        most_(static_cast<size_t>(slot_capacity), 1) {}
  const char* name() const override { return name_.c_str(); }
  bool learns() const override { return false; }
  void Expect(const std::vector<int32_t>& predictions) {
    next_.insert(next_.end(), predictions.begin(), predictions.end());
  }
  bool missed() const { return missed_; }
  void Bind(SlotId slot, const PredictionFeatures& features) override {
    const auto s = static_cast<size_t>(slot);
    most_[s] = features.max_output_tokens;
    missed_ |= next_.empty();
    tokens_[s] = next_.empty() ? 1 : next_.front();
    if (!next_.empty()) next_.pop_front();
  }
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    return GrownPrediction(tokens_[static_cast<size_t>(slot)], attempt, most_[static_cast<size_t>(slot)]);
  }

 private:
  const std::string name_;
  std::vector<int32_t> tokens_, most_;
  std::deque<int32_t> next_;
  bool missed_ = false;
};

class NoSink final : public EventSink {
 public:
  void OnStep(const StepEvents&) override {}
};

Result<PreparedRequest> PrepareRecorded(const RecordedArrival& a, const IntakeLimits& limits) {
  IntakeLimits without = limits;
  without.prefix_caching = limits.prefix_caching && a.has_keys;
  TACTUS_ASSIGN_OR_RETURN(PreparedRequest prepared, PrepareWithoutTokens(a.request, a.prompt_tokens, a.keys, without));
  prepared.arrival_ns = a.arrival_ns;
  prepared.client = a.client;
  prepared.tokens_on_host = a.tokens_on_host;
  prepared.stored_blocks = a.stored_blocks;
  prepared.stored_end = a.stored_end;
  if (a.imported) {
    ImportedSequence imported = *a.imported;
    imported.snapshot.arrival_ns = a.arrival_ns;
    TACTUS_RETURN_IF_ERROR(AddImported(std::move(imported), limits, &prepared));
  }
  return prepared;
}

// Adds a pass's records of requests. False: a record of an unknown request.
bool CollectRequests(const RecordedPass& pass, std::vector<RecordedRequest>* requests) {
  for (const RecordedArrival& a : pass.arrivals) {
    RecordedRequest& r = requests->emplace_back();
    r = {a.handle, a.arrival_ns, a.prompt_tokens, a.client, a.request, a.keys, a.has_keys, {}, -1};
  }
  // Handles are 1, 2, ... in order of arrival.
  const auto at = [requests](RequestHandle handle) {
    return handle >= 1 && handle <= requests->size() ? &(*requests)[handle - 1] : nullptr;
  };
  for (const RecordedKey& key : pass.keys) {
    RecordedRequest* request = at(key.handle);
    if (request == nullptr) return false;
    request->generated_keys.push_back({key.choice, key.block, key.key});
  }
  for (const RequestHandle handle : pass.cancels) {
    RecordedRequest* request = at(handle);
    if (request != nullptr) request->cancelled_ns = pass.now_ns;  // a cancel of an unknown request has no effect
  }
  return true;
}

// Collects the schedules of the requested requests as they end.
class Explaining {
 public:
  explicit Explaining(ReplayHooks::Explain* explain) : explain_(explain) {}
  void Arrived(const RecordedArrival& a) {
    if (explain_ == nullptr) return;
    ++explain_->requests;
    explain_->with_id += !a.request->id.empty();
    if (!explain_->id.empty() && a.request->id == explain_->id) by_id_.live.push_back(a.handle);
    if (IsPromptOf(a.request->id, explain_->id)) by_prompt_.live.push_back(a.handle);
    if (std::to_string(a.handle) == explain_->id) by_number_.live.push_back(a.handle);
  }
  void Look(const StepLoop& loop, bool at_end) {
    if (explain_ == nullptr) return;
    for (Wanted* wanted : {&by_id_, &by_prompt_, &by_number_}) {
      std::erase_if(wanted->live, [&](RequestHandle handle) {
        for (RequestTimeline& t : loop.Timelines({.handle = handle})) {
          if (!t.ended && !at_end) return false;
          wanted->ended.push_back(std::move(t));
        }
        return true;
      });
    }
    if (!at_end) return;
    std::vector<RequestTimeline>& found = explain_->found;
    for (Wanted* wanted : {&by_id_, &by_prompt_, &by_number_}) {
      if (found.empty()) found = std::move(wanted->ended);
    }
    // Among requests with the same id the newest counts; the prompts of one request arrive together.
    TimeNs newest_ns = std::numeric_limits<TimeNs>::min();
    for (const RequestTimeline& t : found) newest_ns = std::max(newest_ns, t.arrival_ns);
    std::erase_if(found, [newest_ns](const RequestTimeline& t) { return t.arrival_ns != newest_ns; });
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.handle < b.handle; });
  }

 private:
  ReplayHooks::Explain* const explain_;
  struct Wanted {
    std::vector<RequestHandle> live;  // have arrived and not ended
    std::vector<RequestTimeline> ended;
  };
  Wanted by_id_, by_prompt_, by_number_;
};

// A file that is no trace is not read to its end, because it may be endless (a pipe).
Result<std::string> ReadTrace(const std::string& path) {
  auto file = InputFile::Open(path, kMostTraceBytes);
  if (!file.ok()) return NotFound(fmt::format("cannot read the trace: {}", file.status().message()));
  TACTUS_ASSIGN_OR_RETURN(std::string bytes, file->ReadSome(sizeof(kTraceMagic)));
  if (bytes != std::string_view(kTraceMagic, sizeof(kTraceMagic))) {
    return DataLoss(fmt::format("'{}': not a step trace", path));
  }
  TACTUS_ASSIGN_OR_RETURN(const std::string rest, file->ReadAll());
  bytes += rest;
  return bytes;
}

}  // namespace

Result<ReplayReport> ReplayTrace(const std::string& path, const ReplayHooks& hooks) {
  TACTUS_ASSIGN_OR_RETURN(const std::string bytes, ReadTrace(path));
  TraceCursor in(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  auto read = ReadHeader(&in);
  if (!read.ok()) return Status(read.status().code(), fmt::format("'{}': {}", path, read.status().message()));
  TraceHeader header = std::move(read).value();
  if (hooks.header != nullptr) *hooks.header = header;
  const auto corrupt = [&](const std::string& what) {
    return DataLoss(fmt::format("trace '{}', byte {}: {}", path, in.offset(), what));
  };
  // A trace is untrusted: sizes that no recording can have are refused before they are allocated.
  const SchedulerLimits& sizes = header.scheduler.limits;
  const int64_t blocks_per_slot = (int64_t{sizes.max_model_len} + sizes.block_size - 1) / sizes.block_size;
  if (header.slot_capacity != header.kv.max_slots || sizes.slot_capacity != header.slot_capacity ||
      header.kv.max_blocks_per_slot != blocks_per_slot || header.kv.max_slots * blocks_per_slot > (int64_t{1} << 31)) {
    return corrupt("the header's sizes are inconsistent");
  }

  RecordedPredictor recorded(header.scheduler.predictor, header.slot_capacity);
  RecordedStepTimes step_times(header.step_tile_tokens, nullptr);
  step_times.Expect(header.step_times);
  ReplicaServices services;
  // A predictor that learns repeats its learning in the replay.
  if (!Learns(header.scheduler.predictor)) services.predictor = &recorded;
  if (header.step_tile_tokens > 0) services.step_time = &step_times;
  TACTUS_ASSIGN_OR_RETURN(const auto replica, Replica::Create(ReplicaOf(header), std::move(services)));
  step_times.DropUnread();

  ReplayExecutor executor(header, hooks);
  RecordedDraftSource drafts(hooks.drafts);
  ManualClock clock;
  NoSink no_sink;
  std::deque<RecordedKey> keys;
  std::string key_error;
  ReplicaParts parts;
  parts.executor = &executor;
  parts.clock = &clock;
  EventFanOut events;
  events.Add(hooks.sink != nullptr ? hooks.sink : &no_sink);
  std::optional<RecordingSink> recording;
  if (hooks.recorder != nullptr)
    events.Add(&recording.emplace(hooks.recorder, [&replica] { return replica->loop().Stats(); }));
  parts.sink = &events;
  if (header.max_draft_tokens > 0) parts.drafts = &drafts;
  parts.generated_key = [&](RequestHandle handle, int32_t choice, int32_t block) {
    if (keys.empty() || keys.front().handle != handle || keys.front().choice != choice || keys.front().block != block) {
      key_error = "a block of generated text has no recorded key";
      return Hash128{};
    }
    const Hash128 key = keys.front().key;
    keys.pop_front();
    return key;
  };
  TACTUS_RETURN_IF_ERROR(replica->Connect(std::move(parts)));
  StepLoop& loop = replica->loop();
  loop.KeepPlanHashes();

  Explaining explaining(hooks.explain);
  ReplayReport report;
  report.program_version = header.version;
  report.scheduler = replica->scheduler().Describe();
  TimeNs now_ns = 0;
  RecordedPass pass;
  while (ReadPass(&in, header, &now_ns, &pass, &report.complete)) {
    ++report.passes;
    if (hooks.requests != nullptr && !CollectRequests(pass, hooks.requests))
      return corrupt("a key of a request that has not arrived");
    clock.AdvanceTo(pass.now_ns);
    for (const RecordedArrival& a : pass.arrivals) {
      auto prepared = PrepareRecorded(a, replica->limits());
      if (!prepared.ok()) return corrupt(prepared.status().message());
      const auto handle = loop.Submit(std::move(prepared).value());
      if (!handle.ok() || *handle != a.handle) return corrupt("arrivals are out of order or beyond the slots");
      ++report.arrivals;
      explaining.Arrived(a);
      if (hooks.recorder != nullptr) hooks.recorder->Arrived(a.arrival_ns);
    }
    for (const RequestHandle handle : pass.cancels) loop.Cancel(handle);
    for (TransferCommand& command : pass.transfers) loop.Transfer(std::move(command));
    if (pass.abort) loop.Abort(Status(StatusCode::kUnavailable, "aborted in the recording"));
    keys.insert(keys.end(), pass.keys.begin(), pass.keys.end());
    recorded.Expect(pass.predictions);
    drafts.Expect(pass.drafts);
    step_times.Expect(pass.step_times);
    executor.Expect(std::move(pass.results));
    loop.RunOnce();
    explaining.Look(loop, false);
    const std::vector<uint64_t>& hashes = *loop.plan_hashes();
    for (const uint64_t hash : pass.plan_hashes) {
      const auto step = static_cast<size_t>(report.steps_recorded++);
      report.plan_hash_recorded = hash;
      if (report.first_difference < 0 && (step >= hashes.size() || hashes[step] != hash)) {
        report.first_difference = static_cast<int64_t>(step);
      }
    }
    if (report.first_difference < 0 && hashes.size() != static_cast<size_t>(report.steps_recorded)) {
      report.first_difference = report.steps_recorded;
    }
    if (report.first_difference >= 0) break;  // the further recorded results belong to other plans
    if (!key_error.empty()) return corrupt(key_error);
    if (recorded.missed()) return corrupt("an arrival without its recorded prediction");
    if (!drafts.drained()) return corrupt("drafts of a sequence that has no task for them");
    if (step_times.ran_out() || !step_times.drained())
      return corrupt("recorded step times do not match the scheduler's reads");
    if (!executor.drained()) return corrupt("a result of a step that was never submitted");
  }
  if (!in.ok()) return corrupt("cut off or corrupt");
  explaining.Look(loop, true);
  report.steps_replayed = static_cast<int64_t>(loop.plan_hashes()->size());
  report.plan_hash_replayed = loop.plan_hash();
  report.stats = loop.Stats();
  return report;
}

}  // namespace tactus::core
