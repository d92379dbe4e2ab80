#include "core/trace/trace_writer.h"
#include "base/thread_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace tactus::core {
namespace {
constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr size_t kBacklogBytes = size_t{1} << 28;
}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path, const TraceHeader& header) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return InvalidArgument(fmt::format("cannot write the trace to '{}': {}", path, std::strerror(errno)), "trace-out");
  }
  std::unique_ptr<TraceWriter> w(new TraceWriter());
  w->file_ = file;
  w->buffer_.reserve(2 * kBufferBytes);
  w->stops_.reserve(64);
  for (int i = 0; i < 4; ++i) {
    w->spare_.emplace_back();
    w->spare_.back().reserve(2 * kBufferBytes);
  }
  w->full_.reserve(64);
  PutHeader(header, &w->buffer_);
  w->thread_ = std::thread([writer = w.get()] {
    SetThreadRole(ThreadRole::kService, "tactus-trace");
    writer->Write();
  });
  return w;
}

TapFactory RecordTo(std::string path, std::string started_with) {
  return [path = std::move(path), text = std::move(started_with)](
             Replica& replica, const ExecutorTraits& traits) -> Result<std::unique_ptr<LoopTap>> {
    TACTUS_ASSIGN_OR_RETURN(auto writer, TraceWriter::Create(path, MakeTraceHeader(replica, traits, text)));
    return std::unique_ptr<LoopTap>(std::move(writer));
  };
}

TraceWriter::~TraceWriter() {
  (void)Close();
}

void TraceWriter::BeginPass(TimeNs now_ns) {
  pass_ns_ = now_ns;
  in_pass_ = false;
  stops_.clear();
}

void TraceWriter::Touch() {
  if (in_pass_) return;
  in_pass_ = true;
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kPass));
  PutSigned(pass_ns_ - last_pass_ns_, &buffer_);
  last_pass_ns_ = pass_ns_;
}

void TraceWriter::Arrival(const PreparedRequest& r) {
  Touch();
  const Request& request = *r.request;
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kArrival));
  PutVarint(r.handle, &buffer_);
  PutSigned(pass_ns_ - r.arrival_ns, &buffer_);
  PutVarint(static_cast<uint64_t>(r.prompt_tokens), &buffer_);
  PutVarint(static_cast<uint64_t>(r.max_tokens), &buffer_);
  PutVarint(r.choices.size(), &buffer_);
  PutSigned(request.priority, &buffer_);
  PutVarint((request.prompt_logprobs ? 1u : 0u) | (r.has_keys ? 2u : 0u) | (r.tokens_on_host ? 4u : 0u), &buffer_);
  PutVarint(static_cast<uint64_t>(request.slo.ttft_ns), &buffer_);
  PutVarint(static_cast<uint64_t>(request.slo.tbt_ns), &buffer_);
  PutVarint(static_cast<uint64_t>(request.slo.jct_ns), &buffer_);
  PutString(request.slo_class, &buffer_);
  PutVarint(r.client, &buffer_);
  const std::vector<Hash128>& keys = r.choices.front().keys;
  PutVarint(keys.size(), &buffer_);
  for (const Hash128& key : keys) PutHash(key, &buffer_);
  if (const PlannedPlace& place = request.planned; place.position >= 0) {
    buffer_.push_back(static_cast<uint8_t>(TraceTag::kPlace));
    PutVarint(static_cast<uint64_t>(place.position), &buffer_);
    PutVarint(static_cast<uint64_t>(std::max(0, place.kv_tokens)), &buffer_);
    if (place.end != PlanEnd::kNone) {
      buffer_.push_back(static_cast<uint8_t>(TraceTag::kScanned));
      buffer_.push_back(static_cast<uint8_t>(place.end));
      PutVarint(static_cast<uint64_t>(std::max(0, place.density)), &buffer_);
      PutVarint(static_cast<uint64_t>(std::max(0, place.step_tokens)), &buffer_);
    }
  }
  if (r.stored_blocks > 0 || r.stored_end != CacheEnd::kUnknown) {
    buffer_.push_back(static_cast<uint8_t>(TraceTag::kStored));
    PutVarint(static_cast<uint64_t>(r.stored_blocks), &buffer_);
    buffer_.push_back(static_cast<uint8_t>(r.stored_end));
  }
  if (request.id.empty() || request.id.size() > kLongestRequestId) return;
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kRequestId));
  PutString(request.id, &buffer_);
}

void TraceWriter::Imported(const ImportedSequence& sequence) {
  Touch();
  const SequenceSnapshot& s = sequence.snapshot;
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kImported));
  PutVarint(sequence.import, &buffer_);
  for (const int32_t count :
       {s.generated, s.computed_tokens, s.late_gaps, s.cached_tokens, s.preemptions, s.recomputed_tokens})
    PutVarint(static_cast<uint64_t>(count), &buffer_);
  PutVarint((s.scheduled_ns != 0 ? 1u : 0u) | (s.first_token_ns != 0 ? 2u : 0u), &buffer_);
  for (const TimeNs at_ns : {s.scheduled_ns, s.first_token_ns, s.last_token_ns, s.longest_gap_end_ns})
    PutSigned(pass_ns_ - at_ns, &buffer_);
  PutSigned(s.longest_gap_ns, &buffer_);
}

void TraceWriter::Transferred(const TransferCommand& command) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kTransfer));
  buffer_.push_back(static_cast<uint8_t>(command.kind));
  PutVarint(command.handle, &buffer_);
  PutVarint(command.import, &buffer_);
  PutVarint(static_cast<uint64_t>(command.blocks), &buffer_);
  if (command.kind == TransferKind::kFetched) buffer_.push_back(static_cast<uint8_t>(command.end));
}

void TraceWriter::Predicted(int32_t tokens) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kPredicted));
  PutVarint(static_cast<uint64_t>(tokens), &buffer_);
}

void TraceWriter::SchedulerAsked(std::span<const DurationNs> answers) {
  Touch();
  if (answers.empty()) return;
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kStepTimes));
  PutVarint(answers.size(), &buffer_);
  for (const DurationNs answer : answers) PutSigned(answer, &buffer_);
}

void TraceWriter::Cancel(RequestHandle handle) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kCancel));
  PutVarint(handle, &buffer_);
}

void TraceWriter::Abort() {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kAbort));
}

void TraceWriter::Key(RequestHandle handle, int32_t choice, int32_t block, const Hash128& key) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kKey));
  PutVarint(handle, &buffer_);
  PutVarint(static_cast<uint64_t>(choice), &buffer_);
  PutVarint(static_cast<uint64_t>(block), &buffer_);
  PutHash(key, &buffer_);
}

// Writes only items whose result differs from the plan. `stops_` and accepted drafts are in item order.
void TraceWriter::StepEnded(const StepPlan& plan, const StepResult& result, bool ok) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kResult));
  PutVarint(static_cast<uint64_t>(plan.step), &buffer_);
  PutSigned(pass_ns_ - result.start_ns, &buffer_);
  PutSigned(pass_ns_ - result.end_ns, &buffer_);
  buffer_.push_back(ok ? 1 : result.device_failed ? 2 : 0);
  const auto put = [this](size_t index, ItemStatus status, int32_t accepted, int32_t tokens, int32_t stopped_at) {
    PutVarint(index + 1, &buffer_);
    buffer_.push_back(static_cast<uint8_t>(status));
    PutSigned(accepted, &buffer_);
    PutSigned(tokens, &buffer_);
    PutVarint(static_cast<uint64_t>(stopped_at), &buffer_);
  };
  if (ok && result.as_planned && plan.draft_tokens == 0) {
    for (const Stop& stop : stops_) {
      const auto index = static_cast<size_t>(stop.item);
      put(index, ItemStatus::kOk, plan.items[index].count, 1, stop.token + 1);
    }
  } else if (ok) {
    size_t next_stop = 0, next_draft = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const StepItem& item = plan.items[i];
      const int32_t planned = item.sample ? 1 : 0;
      ItemResult r{.accepted = item.count, .num_tokens = planned};
      if (!result.as_planned) {
        r = result.items[i];
      } else if (item.draft_tokens > 0) {
        r.num_tokens = 1 + result.accepted_drafts[next_draft++];
        r.accepted = item.count - item.draft_tokens + r.num_tokens - 1;
      }
      int32_t stopped_at = 0;
      if (next_stop < stops_.size() && stops_[next_stop].item == static_cast<int32_t>(i))
        stopped_at = stops_[next_stop++].token + 1;
      if (r.status == ItemStatus::kOk && r.accepted == item.count && r.num_tokens == planned && stopped_at == 0)
        continue;
      put(i, r.status, r.accepted, r.num_tokens, stopped_at);
    }
  }
  if (ok) PutVarint(0, &buffer_);
  stops_.clear();
}

void TraceWriter::Drafted(const DraftTask& answered) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kProposal));
  PutVarint(static_cast<uint64_t>(answered.slot), &buffer_);
  PutVarint(answered.tokens->size(), &buffer_);
  buffer_.push_back(answered.chance);
  buffer_.push_back(static_cast<uint8_t>(answered.kind));
}

void TraceWriter::StepPlanned(const StepPlan& plan, uint64_t plan_hash) {
  Touch();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kPlan));
  PutFixed64(plan_hash, &buffer_);
  PutVarint(static_cast<uint64_t>(plan.num_tokens), &buffer_);
  PutVarint(plan.items.size(), &buffer_);
  PutVarint(static_cast<uint64_t>(plan.num_decodes), &buffer_);
  PutVarint(plan.preempts.size(), &buffer_);
}

void TraceWriter::EndPass() {
  if (buffer_.size() >= kBufferBytes || (!buffer_.empty() && pass_ns_ - last_hand_over_ns_ >= kSecond)) HandOver();
}

void TraceWriter::HandOver() {
  last_hand_over_ns_ = pass_ns_;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (truncated_ || backlog_bytes_ + buffer_.size() > kBacklogBytes) {
      truncated_ = true;
      buffer_.clear();
      return;
    }
    backlog_bytes_ += buffer_.size();
    handed_over_ += static_cast<int64_t>(buffer_.size());
    full_.push_back(std::move(buffer_));
    buffer_ = TraceBytes();
    if (!spare_.empty()) {
      buffer_ = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  buffer_.clear();
  wake_.notify_one();
}

void TraceWriter::Write() {
  std::vector<TraceBytes> mine;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return closing_ || !full_.empty(); });
      if (full_.empty()) return;
      mine.swap(full_);
    }
    size_t bytes = 0;
    bool failed = false;
    for (TraceBytes& chunk : mine) {
      bytes += chunk.size();
      failed = std::fwrite(chunk.data(), 1, chunk.size(), file_) != chunk.size() || failed;
      chunk.clear();
    }
    failed = std::fflush(file_) != 0 || failed;
    std::lock_guard<std::mutex> lock(mutex_);
    failed_ = failed_ || failed;
    backlog_bytes_ -= bytes;
    for (TraceBytes& chunk : mine) {
      if (spare_.size() < 4) spare_.push_back(std::move(chunk));
    }
    mine.clear();
  }
}

Status TraceWriter::Close() {
  if (file_ == nullptr) return Status();
  buffer_.push_back(static_cast<uint8_t>(TraceTag::kEnd));
  HandOver();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  const bool close_failed = std::fclose(file_) != 0;
  file_ = nullptr;
  if (failed_ || close_failed) return DataLoss("the trace could not be written completely (disk full?)");
  if (truncated_) return DataLoss("the trace was cut off: the disk was too slow");
  return Status();
}

}  // namespace tactus::core
