#include "sim/replay/replay_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/sim_request.h"
#include "base/step_shape.h"
#include "core/loop/metrics.h"
#include "core/trace/recorded_step_times.h"
#include "sim/executor/sim_executor.h"
#include "sim/replay/like_recorded_drafts.h"

namespace tactus::sim {
namespace {

// Latencies and outputs of one of the two runs.
class Watcher final : public core::EventSink {
 public:
  bool wants_tokens() const override { return false; }
  void OnStep(const core::StepEvents& events) override {
    metrics_.OnStep(events);
    for (const core::RequestDoneEvent& d : events.done) {
      outputs[d.handle] = d.completion_tokens;
      if (d.finish == FinishReason::kCancelled) cancelled.insert(d.handle);
    }
  }
  RunResult Outcome(const EngineStats& stats) const { return metrics_.Outcome(stats); }
  std::map<RequestHandle, int32_t> outputs;  // tokens of all choices
  std::set<RequestHandle> cancelled;

 private:
  core::EngineMetrics metrics_{"", {}, 0, true};
};

// Compares every recorded step with the model's time for its plan.
class StepComparison {
 public:
  explicit StepComparison(const StepTimeModel& model) : model_(model) {}
  void Add(const StepPlan& plan, DurationNs measured_ns) {
    const StepShape shape = ShapeOf(plan, &chunks_);
    for (const ChunkShape& c : chunks_) {
      most_chunk.tokens = std::max(most_chunk.tokens, c.tokens);
      most_chunk.context_tokens = std::max(most_chunk.context_tokens, c.context_tokens);
    }
    most.decodes = std::max(most.decodes, shape.decodes);
    most.decode_context_tokens = std::max(most.decode_context_tokens, shape.decode_context_tokens);
    StepPrediction step{
        shape.prefill_tokens(),  0, shape.decodes, shape.decode_context_tokens, std::max<DurationNs>(1, measured_ns),
        model_.StepTimeNs(shape)};
    for (const ChunkShape& c : chunks_) step.prefill_context += c.context_tokens;
    steps.push_back(step);
  }
  StepErrors Errors() const {
    StepErrors e;
    e.steps = static_cast<int64_t>(steps.size());
    if (steps.empty()) return e;
    std::vector<double> errors;
    double predicted_ns = 0, measured_ns = 0;
    for (const StepPrediction& s : steps) {
      const auto predicted = static_cast<double>(s.predicted_ns), measured = static_cast<double>(s.measured_ns);
      predicted_ns += predicted;
      measured_ns += measured;
      errors.push_back(std::abs(predicted / measured - 1));
    }
    std::sort(errors.begin(), errors.end());
    e.median_abs = errors[errors.size() / 2];
    e.p90_abs = errors[errors.size() * 9 / 10];
    e.total = predicted_ns / measured_ns - 1;
    return e;
  }
  std::vector<StepPrediction> steps;
  StepShape most;
  ChunkShape most_chunk;

 private:
  const StepTimeModel& model_;
  std::vector<ChunkShape> chunks_;
};

// Simulates the recorded requests, with their recorded answer lengths, on the same engine.
class ModelRun {
 public:
  ModelRun(const core::TraceHeader& header, const StepTimeModel& model,
           const std::vector<core::RecordedRequest>& requests, const std::map<RequestHandle, int32_t>& outputs,
           const std::vector<core::RecordedDrafts>& drafts, double draft_acceptance, core::RunRecorder* recorder)
      : header_(header),
        model_(model),
        requests_(requests),
        outputs_(outputs),
        drafts_(drafts),
        draft_acceptance_(draft_acceptance),
        recorder_(recorder) {}

  Result<RunResult> Go() {
    // Values derived from step times at the start (a budget, a pivot) stay as recorded; after that the model answers.
    core::RecordedStepTimes step_times(header_.step_tile_tokens, &model_);
    step_times.Expect(header_.step_times);
    core::ReplicaServices services;
    if (header_.step_tile_tokens > 0) services.step_time = &step_times;
    core::ReplicaConfig config = core::ReplicaOf(header_);
    config.true_lengths_known = true;
    // Drafts are simulated only if the recording has some: a server can always verify tokens that a grammar forces, but
    // most runs have none.
    const bool guessed = std::any_of(drafts_.begin(), drafts_.end(), [](const auto& d) { return d.tokens > 0; });
    constexpr double kLeastAcceptance = 1e-9;  // for drafts that were never accepted: they still need verification
    SimExecutor executor({.step_time = &model_,
                          .clock = &clock_,
                          .max_slots = header_.slot_capacity,
                          .max_in_flight = header_.max_in_flight,
                          .can_chain = header_.can_chain,
                          .draft_acceptance = guessed ? std::max(draft_acceptance_, kLeastAcceptance) : 0});
    config.max_draft_tokens = std::min(config.max_draft_tokens, executor.traits().max_draft_tokens);
    config.guesses = config.guesses && guessed;
    const bool drafting = config.max_draft_tokens > 0;
    TACTUS_ASSIGN_OR_RETURN(const auto replica, core::Replica::Create(std::move(config), std::move(services)));
    step_times.DropUnread();
    LikeRecordedDrafts drafts(drafts_);
    Watcher watcher;
    core::ReplicaParts parts;
    parts.executor = &executor;
    parts.clock = &clock_;
    if (drafting) parts.drafts = &drafts;
    core::EventFanOut events;
    events.Add(&watcher);
    std::optional<core::RecordingSink> recording;
    if (recorder_ != nullptr) events.Add(&recording.emplace(recorder_, [&replica] { return replica->loop().Stats(); }));
    parts.sink = &events;
    parts.generated_key = [this](RequestHandle handle, int32_t choice, int32_t block) {
      return KeyOf(handle, choice, block);
    };
    TACTUS_RETURN_IF_ERROR(replica->Connect(std::move(parts)));
    core::StepLoop& loop = replica->loop();

    std::vector<std::pair<TimeNs, RequestHandle>> cancels;
    for (const core::RecordedRequest& r : requests_) {
      if (r.cancelled_ns >= 0) cancels.emplace_back(r.cancelled_ns, r.handle);
    }
    std::sort(cancels.begin(), cancels.end());
    size_t next = 0, next_cancel = 0;
    for (;;) {
      const TimeNs now = clock_.NowNs();
      for (; next < requests_.size() && requests_[next].arrival_ns <= now; ++next) {
        TACTUS_ASSIGN_OR_RETURN(core::PreparedRequest prepared, Prepare(requests_[next], replica->limits()));
        const auto request = std::static_pointer_cast<const SimRequest>(prepared.request);
        const auto submitted = loop.Submit(std::move(prepared));
        // A slower machine may have more concurrent requests: the request waits outside the loop for a free slot.
        if (submitted.status().code() == StatusCode::kResourceExhausted && executor.busy()) break;
        if (!submitted.ok()) return submitted.status();
        const RequestHandle handle = *submitted;
        executor.Expect(handle, *request);
        if (recorder_ != nullptr) recorder_->Arrived(requests_[next].arrival_ns);
        if (handle != requests_[next].handle) return Internal("handles of the recording are not in order of arrival");
      }
      for (; next_cancel < cancels.size() && cancels[next_cancel].first <= now; ++next_cancel)
        loop.Cancel(cancels[next_cancel].second);
      loop.RunOnce();
      TimeNs event = executor.NextReadyNs();
      if (next < requests_.size() && requests_[next].arrival_ns > now)
        event = std::min(event, requests_[next].arrival_ns);
      if (next_cancel < cancels.size()) event = std::min(event, cancels[next_cancel].first);
      if (event == kNever) break;
      clock_.AdvanceTo(event);
    }
    if (!loop.idle()) return Internal("the simulation stalled with work left");
    return watcher.Outcome(loop.Stats());
  }

 private:
  Result<core::PreparedRequest> Prepare(const core::RecordedRequest& r, const core::IntakeLimits& limits) const {
    auto request = std::make_shared<SimRequest>();
    static_cast<Request&>(*request) = *r.request;
    request->stop.ignore_eos = false;
    request->prompt_tokens = r.prompt_tokens;
    // A cancelled request would have continued.
    const auto done = outputs_.find(r.handle);
    const bool known = r.cancelled_ns < 0 && done != outputs_.end() && done->second > 0;
    request->output_tokens =
        known ? (done->second + request->n - 1) / request->n : static_cast<int32_t>(request->stop.max_tokens);
    core::IntakeLimits own = limits;
    own.prefix_caching = limits.prefix_caching && r.has_keys;
    TACTUS_ASSIGN_OR_RETURN(core::PreparedRequest prepared,
                            core::PrepareWithoutTokens(request, r.prompt_tokens, r.prompt_keys, own));
    prepared.arrival_ns = r.arrival_ns;
    prepared.client = r.client;
    return prepared;
  }

  // Generated blocks have their recorded keys at any time; blocks that were never generated get unique keys.
  Hash128 KeyOf(RequestHandle handle, int32_t choice, int32_t block) const {
    for (const core::RecordedRequest::GeneratedKey& g : requests_[handle - 1].generated_keys) {
      if (g.choice == choice && g.block == block) return g.key;
    }
    return {handle << 20 | static_cast<uint64_t>(choice), static_cast<uint64_t>(block) | uint64_t{1} << 63};
  }

  const core::TraceHeader& header_;
  const StepTimeModel& model_;
  const std::vector<core::RecordedRequest>& requests_;
  const std::map<RequestHandle, int32_t>& outputs_;
  const std::vector<core::RecordedDrafts>& drafts_;
  const double draft_acceptance_;
  core::RunRecorder* const recorder_;
  ManualClock clock_;
};

}  // namespace

Result<ModelReplay> ReplayWithModel(const std::string& path, const StepTimeModel& model, core::RunRecorder* recorder) {
  ModelReplay out;
  Watcher watcher;
  StepComparison comparison(model);
  core::TraceHeader header;
  std::vector<core::RecordedRequest> requests;
  core::ReplayHooks hooks;
  hooks.sink = &watcher;
  hooks.header = &header;
  hooks.requests = &requests;
  std::vector<core::RecordedDrafts> drafts;
  hooks.drafts = &drafts;
  hooks.on_step = [&](const StepPlan& plan, TimeNs start_ns, TimeNs end_ns) {
    comparison.Add(plan, end_ns - start_ns);
  };
  TACTUS_ASSIGN_OR_RETURN(out.recorded, core::ReplayTrace(path, hooks));
  if (!out.recorded.identical()) {
    return InvalidArgument(
        fmt::format("trace '{}' does not replay: step {} has another plan", path, out.recorded.first_difference));
  }
  if (out.recorded.steps_recorded == 0) {
    return InvalidArgument(fmt::format("trace '{}' has no steps; record a run that answers requests", path));
  }
  out.errors = comparison.Errors();
  out.steps = std::move(comparison.steps);
  out.most = comparison.most;
  out.most_chunk = comparison.most_chunk;
  out.measured = watcher.Outcome(out.recorded.stats);
  // A client that disconnects after its whole answer cancels a finished request; in the model's run the request may
  // still be running.
  for (core::RecordedRequest& r : requests) {
    if (!watcher.cancelled.contains(r.handle)) r.cancelled_ns = -1;
  }
  DraftCounts guesses;
  for (const DraftCounts& of :
       {out.recorded.stats.forced_drafts, out.recorded.stats.ngram_drafts, out.recorded.stats.model_drafts}) {
    guesses.drafts += of.drafts;
    guesses.draft_tokens += of.draft_tokens;
    guesses.accepted_tokens += of.accepted_tokens;
  }
  ModelRun run(header, model, requests, watcher.outputs, drafts, AcceptanceOf(guesses), recorder);
  TACTUS_ASSIGN_OR_RETURN(out.predicted, run.Go());
  return out;
}

}  // namespace tactus::sim
