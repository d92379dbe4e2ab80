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
#include "core/trace/recorded_step_times.h"

namespace tactus::core {
namespace {

constexpr int64_t kMostTraceBytes = int64_t{4} << 30;

// In a replay token 1 is the stop id of every request, and token 0 represents all others.
constexpr TokenId kOther = 0, kStopToken = 1;

struct RecordedItem {
  int32_t index = 0;
  ItemStatus status = ItemStatus::kOk;
  int32_t accepted = 0;
  int32_t num_tokens = 0;
  int32_t stopped_at = 0;  // 1 + index of the token that ended the sequence; 0: none
};
struct RecordedResult {
  StepId step = 0;
  TimeNs start_ns = 0, end_ns = 0;
  bool ok = true;
  std::vector<RecordedItem> items;
};
struct RecordedKey {
  RequestHandle handle = 0;
  int32_t choice = 0, block = 0;
  Hash128 key;
};
struct RecordedArrival {
  RequestHandle handle = 0;
  TimeNs arrival_ns = 0;
  int32_t prompt_tokens = 0;
  uint64_t client = 0;
  std::shared_ptr<Request> request;
  std::vector<Hash128> keys;
  bool has_keys = false;
  bool tokens_on_host = false;
  std::optional<ImportedSequence> imported;
  int32_t stored_blocks = 0;
  CacheEnd stored_end = CacheEnd::kUnknown;
};
struct Pass {
  TimeNs now_ns = 0;
  std::vector<RecordedArrival> arrivals;
  std::vector<RequestHandle> cancels;
  std::vector<TransferCommand> transfers;
  std::vector<RecordedResult> results;
  std::vector<RecordedKey> keys;
  std::vector<int32_t> predictions;
  std::vector<RecordedDrafts> drafts;
  std::vector<DurationNs> step_times;
  std::vector<uint64_t> plan_hashes;
  bool abort = false;
};

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
    if (r.ok) {
      size_t next = 0;
      for (size_t i = 0; i < plan.items.size(); ++i) {
        RecordedItem item{static_cast<int32_t>(i), ItemStatus::kOk, plan.items[i].count, plan.items[i].sample ? 1 : 0,
                          0};
        if (next < r.items.size() && r.items[next].index == static_cast<int32_t>(i)) item = r.items[next++];
        const auto offset = static_cast<int32_t>(result->tokens.size());
        result->items.push_back({item.status, item.accepted, offset, item.num_tokens});
        for (int32_t t = 0; t < item.num_tokens; ++t) {
          result->tokens.push_back(item.stopped_at == t + 1 ? kStopToken : kOther);
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

// A recording is untrusted: impossible times end the reading, so that sums of a few of them cannot overflow.
constexpr TimeNs kMostTimeNs = int64_t{1} << 60;
constexpr DurationNs kMostStepNs = int64_t{1} << 45;  // of one step: policies add up thousands of them

DurationNs ReadApart(TraceCursor* in) {
  const int64_t apart_ns = in->Signed();
  if (apart_ns >= -kMostTimeNs && apart_ns <= kMostTimeNs) return apart_ns;
  in->Fail();
  return 0;
}

RecordedArrival ReadArrival(TraceCursor* in, const TraceHeader& header, TimeNs now_ns) {
  RecordedArrival a;
  a.handle = in->Varint();
  a.arrival_ns = now_ns - ReadApart(in);
  a.prompt_tokens = static_cast<int32_t>(in->Bounded(1, header.limits.max_model_len));
  a.request = std::make_shared<Request>();
  Request& r = *a.request;
  r.stop.max_tokens = in->Bounded(1, header.limits.max_model_len);
  r.stop.ignore_eos = true;
  r.stop.stop_token_ids = {kStopToken};
  r.n = static_cast<int32_t>(in->Bounded(1, header.slot_capacity));
  const int64_t priority = in->Signed();
  r.priority = static_cast<int32_t>(priority);
  const int64_t flags = in->Bounded(0, 7);
  r.prompt_logprobs = (flags & 1) != 0;
  a.has_keys = (flags & 2) != 0;
  a.tokens_on_host = (flags & 4) != 0;
  for (int64_t* bound_ns : {&r.slo.ttft_ns, &r.slo.tbt_ns, &r.slo.jct_ns}) *bound_ns = in->Bounded(0, kMostTimeNs);
  r.slo_class = in->String(256);
  a.client = in->Varint();
  const int64_t keys = in->Bounded(0, a.prompt_tokens / header.kv.block_size);
  for (int64_t i = 0; i < keys && in->ok(); ++i) a.keys.push_back(in->Hash());
  return a;
}

void ReadPlace(TraceCursor* in, TraceTag tag, PlannedPlace* place) {
  const auto number = [in] { return static_cast<int32_t>(in->Bounded(0, std::numeric_limits<int32_t>::max())); };
  const bool scanned = tag == TraceTag::kScanned;
  if (scanned) place->end = static_cast<PlanEnd>(in->Bounded(1, 2));
  (scanned ? place->density : place->position) = number();
  if (tag == TraceTag::kPlanned) in->Bounded(0, std::numeric_limits<uint32_t>::max());
  (scanned ? place->step_tokens : place->kv_tokens) = number();
}

ImportedSequence ReadImported(TraceCursor* in, const TraceHeader& header, TimeNs now_ns) {
  ImportedSequence imported;
  imported.import = in->Varint();
  SequenceStanding& s = imported.standing;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto count = [in](int64_t most) { return static_cast<int32_t>(in->Bounded(0, most)); };
  s.generated = count(header.limits.max_model_len);
  s.computed_tokens = count(header.limits.max_model_len);
  s.late_gaps = count(kMost);
  s.cached_tokens = count(header.limits.max_model_len);
  s.preemptions = count(kMost - 1);
  s.recomputed_tokens = count(kMost);
  const int64_t known = in->Bounded(0, 3);
  for (TimeNs* at_ns : {&s.scheduled_ns, &s.first_token_ns, &s.last_token_ns, &s.longest_gap_end_ns})
    *at_ns = now_ns - ReadApart(in);
  if ((known & 1) == 0) s.scheduled_ns = 0;
  if ((known & 2) == 0) s.first_token_ns = 0;
  s.longest_gap_ns = ReadApart(in);
  return imported;
}

CacheEnd ReadCacheEnd(TraceCursor* in) {
  const uint8_t end = in->Byte();
  if (end <= static_cast<uint8_t>(CacheEnd::kOff)) return static_cast<CacheEnd>(end);
  in->Fail();
  return CacheEnd::kUnknown;
}

TransferCommand ReadTransfer(TraceCursor* in, const TraceHeader& header) {
  TransferCommand command;
  const uint8_t kind = in->Byte();
  if (kind < static_cast<uint8_t>(TransferKind::kPause) || kind > static_cast<uint8_t>(TransferKind::kFetched)) {
    in->Fail();
    return command;
  }
  command.kind = static_cast<TransferKind>(kind);
  command.handle = in->Varint();
  command.import = in->Varint();
  command.blocks = static_cast<int32_t>(in->Bounded(0, header.kv.swap_blocks));
  if (command.kind == TransferKind::kFetched) command.end = ReadCacheEnd(in);
  return command;
}

RecordedResult ReadResult(TraceCursor* in, const TraceHeader& header, TimeNs now_ns) {
  RecordedResult r;
  r.step = in->Bounded(0, std::numeric_limits<int64_t>::max());
  r.start_ns = now_ns - ReadApart(in);
  r.end_ns = now_ns - ReadApart(in);
  r.ok = in->Byte() == 1;
  while (r.ok && in->ok()) {
    const int64_t index = in->Bounded(0, header.slot_capacity);
    if (index == 0) break;
    RecordedItem item;
    item.index = static_cast<int32_t>(index - 1);
    item.status = static_cast<ItemStatus>(in->Byte() % 4);
    item.accepted = static_cast<int32_t>(in->Signed());
    const int64_t tokens = in->Signed();
    if (tokens < 0 || tokens > header.limits.max_model_len) {
      in->Fail();
      break;
    }
    item.num_tokens = static_cast<int32_t>(tokens);
    item.stopped_at = static_cast<int32_t>(in->Bounded(0, header.limits.max_model_len));
    r.items.push_back(item);
  }
  return r;
}

// Reads one pass; false at the end of the trace.
bool ReadPass(TraceCursor* in, const TraceHeader& header, TimeNs* now_ns, Pass* pass, bool* complete) {
  *pass = Pass();
  bool begun = false;
  while (in->ok() && !in->done()) {
    TraceCursor before = *in;
    const auto tag = static_cast<TraceTag>(in->Byte());
    if (tag == TraceTag::kPass && begun) {
      *in = before;
      return true;
    }
    if (!begun && tag != TraceTag::kPass && tag != TraceTag::kEnd) {
      in->Fail();  // a record outside any pass
      return false;
    }
    const bool of_arrival = tag == TraceTag::kPlanned || tag == TraceTag::kPlace || tag == TraceTag::kRequestId ||
                            tag == TraceTag::kImported || tag == TraceTag::kStored || tag == TraceTag::kScanned;
    if (of_arrival && pass->arrivals.empty()) {
      in->Fail();
      return false;
    }
    switch (tag) {
      case TraceTag::kPass:
        *now_ns += ReadApart(in);
        if (*now_ns < -kMostTimeNs || *now_ns > kMostTimeNs) {
          in->Fail();
          return false;
        }
        pass->now_ns = *now_ns;
        begun = true;
        break;
      case TraceTag::kArrival:
        pass->arrivals.push_back(ReadArrival(in, header, *now_ns));
        break;
      case TraceTag::kPlanned:
      case TraceTag::kPlace:
      case TraceTag::kScanned:
        ReadPlace(in, tag, &pass->arrivals.back().request->planned);
        break;
      case TraceTag::kRequestId:
        pass->arrivals.back().request->id = in->String(kLongestRequestId);
        break;
      case TraceTag::kStored:
        pass->arrivals.back().stored_blocks = static_cast<int32_t>(in->Bounded(0, header.kv.num_blocks));
        pass->arrivals.back().stored_end = ReadCacheEnd(in);
        break;
      case TraceTag::kImported:
        if (pass->arrivals.back().request->n != 1) {
          in->Fail();
          return false;
        }
        pass->arrivals.back().imported = ReadImported(in, header, *now_ns);
        break;
      case TraceTag::kTransfer:
        pass->transfers.push_back(ReadTransfer(in, header));
        break;
      case TraceTag::kCancel:
        pass->cancels.push_back(in->Varint());
        break;
      case TraceTag::kResult:
        pass->results.push_back(ReadResult(in, header, *now_ns));
        break;
      case TraceTag::kKey: {
        RecordedKey key;
        key.handle = in->Varint();
        key.choice = static_cast<int32_t>(in->Bounded(0, header.slot_capacity));
        key.block = static_cast<int32_t>(in->Bounded(0, header.kv.num_blocks));
        key.key = in->Hash();
        pass->keys.push_back(key);
        break;
      }
      case TraceTag::kAbort:
        pass->abort = true;
        break;
      case TraceTag::kStepTimes:
        for (int64_t left = in->Bounded(1, 1 << 24); left > 0 && in->ok(); --left)
          pass->step_times.push_back(std::clamp<int64_t>(in->Signed(), 0, kMostStepNs));
        break;
      case TraceTag::kPredicted:
        pass->predictions.push_back(static_cast<int32_t>(in->Bounded(1, header.limits.max_model_len)));
        break;
      case TraceTag::kDrafts: {
        const auto slot = static_cast<SlotId>(in->Bounded(0, header.slot_capacity - 1));
        pass->drafts.push_back(
            {slot, static_cast<int32_t>(in->Bounded(1, header.max_draft_tokens)), kSureDraft, DraftKind::kModel});
        break;
      }
      case TraceTag::kProposal: {
        RecordedDrafts& drafts = pass->drafts.emplace_back();
        drafts.slot = static_cast<SlotId>(in->Bounded(0, header.slot_capacity - 1));
        drafts.tokens = static_cast<int32_t>(in->Bounded(0, header.max_draft_tokens));
        drafts.chance = in->Byte();
        const uint8_t kind = in->Byte();
        if (kind >= kDraftKindNames.size()) {
          in->Fail();
          return false;
        }
        drafts.kind = static_cast<DraftKind>(kind);
        break;
      }
      case TraceTag::kPlan:
        pass->plan_hashes.push_back(in->Fixed64());
        for (int i = 0; i < 4; ++i) in->Varint();
        break;
      case TraceTag::kEnd:
        *complete = true;
        return begun;
      default:
        in->Fail();
        return false;
    }
  }
  return begun && in->ok();
}

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
    imported.standing.arrival_ns = a.arrival_ns;
    TACTUS_RETURN_IF_ERROR(AddImported(std::move(imported), limits, &prepared));
  }
  return prepared;
}

// Adds a pass's records of requests. False: a record of an unknown request.
bool CollectRequests(const Pass& pass, std::vector<RecordedRequest>* requests) {
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
  parts.sink = hooks.sink != nullptr ? hooks.sink : &no_sink;
  std::optional<RecordingSink> recording;
  if (hooks.recorder != nullptr)
    parts.sink = &recording.emplace(hooks.recorder, parts.sink, [&replica] { return replica->loop().Stats(); });
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
  Pass pass;
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
