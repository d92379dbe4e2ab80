#include "core/trace/recorded_pass.h"

#include <algorithm>
#include <limits>

namespace tactus::core {
namespace {

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
  SequenceSnapshot& s = imported.snapshot;
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
  const uint8_t outcome = in->Byte();
  r.ok = outcome == 1;
  r.device_failed = outcome == 2;
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

RecordedKey ReadKey(TraceCursor* in, const TraceHeader& header) {
  RecordedKey key;
  key.handle = in->Varint();
  key.choice = static_cast<int32_t>(in->Bounded(0, header.slot_capacity));
  key.block = static_cast<int32_t>(in->Bounded(0, header.kv.num_blocks));
  key.key = in->Hash();
  return key;
}

// kDrafts, the form of formats 3 to 8.
RecordedDrafts ReadOldDrafts(TraceCursor* in, const TraceHeader& header) {
  const auto slot = static_cast<SlotId>(in->Bounded(0, header.slot_capacity - 1));
  return {slot, static_cast<int32_t>(in->Bounded(1, header.max_draft_tokens)), kSureDraft, DraftKind::kModel};
}

RecordedDrafts ReadProposal(TraceCursor* in, const TraceHeader& header) {
  RecordedDrafts drafts;
  drafts.slot = static_cast<SlotId>(in->Bounded(0, header.slot_capacity - 1));
  drafts.tokens = static_cast<int32_t>(in->Bounded(0, header.max_draft_tokens));
  drafts.chance = in->Byte();
  const uint8_t kind = in->Byte();
  if (kind >= kDraftKindNames.size()) {
    in->Fail();
    return drafts;
  }
  drafts.kind = static_cast<DraftKind>(kind);
  return drafts;
}

void ReadStepTimes(TraceCursor* in, std::vector<DurationNs>* step_times) {
  for (int64_t left = in->Bounded(1, 1 << 24); left > 0 && in->ok(); --left)
    step_times->push_back(std::clamp<int64_t>(in->Signed(), 0, kMostStepNs));
}

uint64_t ReadPlanHash(TraceCursor* in) {
  const uint64_t hash = in->Fixed64();
  for (int i = 0; i < 4; ++i) in->Varint();  // for readers that do not replay
  return hash;
}

// A record about the pass's last arrival. False: the tag is not of such a record.
bool ReadOfArrival(TraceCursor* in, const TraceHeader& header, TraceTag tag, RecordedPass* pass) {
  const bool is_place = tag == TraceTag::kPlanned || tag == TraceTag::kPlace || tag == TraceTag::kScanned;
  if (!is_place && tag != TraceTag::kRequestId && tag != TraceTag::kStored && tag != TraceTag::kImported) return false;
  if (pass->arrivals.empty()) {
    in->Fail();
    return true;
  }
  RecordedArrival& arrival = pass->arrivals.back();
  if (is_place) {
    ReadPlace(in, tag, &arrival.request->planned);
  } else if (tag == TraceTag::kRequestId) {
    arrival.request->id = in->String(kLongestRequestId);
  } else if (tag == TraceTag::kStored) {
    arrival.stored_blocks = static_cast<int32_t>(in->Bounded(0, header.kv.num_blocks));
    arrival.stored_end = ReadCacheEnd(in);
  } else if (arrival.request->n == 1) {
    arrival.imported = ReadImported(in, header, pass->now_ns);
  } else {
    in->Fail();  // only single sequences are migrated
  }
  return true;
}

// A record of a pass that has begun.
void ReadRecord(TraceCursor* in, const TraceHeader& header, TraceTag tag, RecordedPass* pass) {
  if (ReadOfArrival(in, header, tag, pass)) return;
  switch (tag) {
    case TraceTag::kArrival:
      pass->arrivals.push_back(ReadArrival(in, header, pass->now_ns));
      break;
    case TraceTag::kTransfer:
      pass->transfers.push_back(ReadTransfer(in, header));
      break;
    case TraceTag::kCancel:
      pass->cancels.push_back(in->Varint());
      break;
    case TraceTag::kResult:
      pass->results.push_back(ReadResult(in, header, pass->now_ns));
      break;
    case TraceTag::kKey:
      pass->keys.push_back(ReadKey(in, header));
      break;
    case TraceTag::kAbort:
      pass->abort = true;
      break;
    case TraceTag::kStepTimes:
      ReadStepTimes(in, &pass->step_times);
      break;
    case TraceTag::kPredicted:
      pass->predictions.push_back(static_cast<int32_t>(in->Bounded(1, header.limits.max_model_len)));
      break;
    case TraceTag::kDrafts:
      pass->drafts.push_back(ReadOldDrafts(in, header));
      break;
    case TraceTag::kProposal:
      pass->drafts.push_back(ReadProposal(in, header));
      break;
    case TraceTag::kPlan:
      pass->plan_hashes.push_back(ReadPlanHash(in));
      break;
    default:
      in->Fail();
  }
}

// The time of a pass, stated from the previous pass on.
void ReadTime(TraceCursor* in, TimeNs* now_ns, RecordedPass* pass) {
  *now_ns += ReadApart(in);
  if (*now_ns < -kMostTimeNs || *now_ns > kMostTimeNs) in->Fail();
  pass->now_ns = *now_ns;
}

}  // namespace

bool ReadPass(TraceCursor* in, const TraceHeader& header, TimeNs* now_ns, RecordedPass* pass, bool* complete) {
  *pass = RecordedPass();
  bool begun = false;
  while (in->ok() && !in->done()) {
    const TraceCursor before = *in;
    const auto tag = static_cast<TraceTag>(in->Byte());
    if (tag == TraceTag::kEnd) {
      *complete = true;
      return begun;
    }
    if (tag == TraceTag::kPass && begun) {
      *in = before;
      return true;
    }
    if (tag == TraceTag::kPass) {
      ReadTime(in, now_ns, pass);
      begun = true;
    } else if (begun) {
      ReadRecord(in, header, tag, pass);
    } else {
      in->Fail();  // a record outside any pass
    }
  }
  return begun && in->ok();
}

}  // namespace tactus::core
