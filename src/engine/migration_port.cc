#include "engine/migration_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <utility>

#include "base/on_exit.h"

namespace tactus::engine {
namespace {

// Waits for one answer of the loop. After a timeout `undo_` is called with the late answer.
class Await {
 public:
  void Give(core::TransferAnswer answer) {
    bool late = false;
    {
      std::lock_guard lock(mutex_);
      late = given_up_;
      answer_ = std::move(answer);
    }
    came_.notify_all();
    if (late && undo_) undo_(*answer_);
  }
  Result<core::TransferAnswer> Take(DurationNs timeout_ns) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return answer_.has_value(); })) {
      given_up_ = true;
      return Status(StatusCode::kDeadlineExceeded,
                    fmt::format("the engine did not answer within {} ms", timeout_ns / kMillisecond));
    }
    if (!answer_->status.ok()) return answer_->status;
    return std::move(*answer_);
  }
  std::function<void(const core::TransferAnswer&)> undo_;  // set before this is shared with the loop

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<core::TransferAnswer> answer_;
  bool given_up_ = false;
};

class Port final : public MigrationPort {
 public:
  Port(MigrationFormat format, const MigrationParts& parts) : format_(std::move(format)), parts_(parts) {}

  const MigrationFormat& format() const override { return format_; }

  Result<KvBytes> Read(RequestHandle handle, int32_t first_block, int32_t blocks, int64_t timeout_ns) override {
    TACTUS_ASSIGN_OR_RETURN(
        const core::TransferAnswer answer,
        Ask({.kind = core::TransferKind::kRead, .handle = handle, .first_block = first_block, .blocks = blocks},
            timeout_ns));
    return KvBytes{answer.blocks, std::string(reinterpret_cast<const char*>(answer.bytes.data()), answer.bytes.size())};
  }

  Result<MovingSequence> Pause(RequestHandle handle, int64_t timeout_ns) override {
    auto answer = Ask({.kind = core::TransferKind::kPause, .handle = handle}, timeout_ns);
    if (!answer.ok()) {
      if (answer.status().code() == StatusCode::kDeadlineExceeded) Resume(handle);
      return answer.status();
    }
    OnExit resume([&] { Resume(handle); });
    MovingSequence moving = Moving(answer->snapshot);
    resume.Cancel();
    return moving;
  }
  void Resume(RequestHandle handle) override {
    parts_.loop->Transfer({.kind = core::TransferKind::kResume, .handle = handle});
  }
  Status Leave(RequestHandle handle, int64_t timeout_ns) override {
    return Ask({.kind = core::TransferKind::kLeave, .handle = handle}, timeout_ns).status();
  }

  Result<uint64_t> Reserve(uint64_t reservation, int32_t blocks, int64_t timeout_ns) override;
  Status Write(uint64_t reservation, int32_t first_block, std::string_view bytes) override;
  Result<RequestHandle> Arrive(uint64_t reservation, MovingSequence sequence,
                               std::shared_ptr<ResponseSink> sink) override;
  void DropReservation(uint64_t reservation) override {
    if (reservation == 0) return;
    {
      std::lock_guard lock(mutex_);
      reservations_.erase(reservation);
    }
    parts_.loop->Transfer({.kind = core::TransferKind::kDrop, .import = reservation});
  }

 private:
  Result<core::TransferAnswer> Ask(core::TransferCommand command, int64_t timeout_ns) {
    auto await = std::make_shared<Await>();
    if (command.kind == core::TransferKind::kReserve && command.import == 0) {
      await->undo_ = [loop = parts_.loop](const core::TransferAnswer& late) {
        if (late.status.ok()) loop->Transfer({.kind = core::TransferKind::kDrop, .import = late.import});
      };
    }
    command.answer = [await](core::TransferAnswer answer) { await->Give(std::move(answer)); };
    parts_.loop->Transfer(std::move(command));
    return await->Take(timeout_ns);
  }
  MovingSequence Moving(const core::SequenceSnapshot& snapshot) const;
  core::ImportedSequence Arriving(const MovingSequence& moving, uint64_t reservation) const;
  Status CheckTokens(const MovingSequence& sequence) const;

  const MigrationFormat format_;
  const MigrationParts parts_;
  std::mutex mutex_;
  std::map<uint64_t, std::vector<BlockId>> reservations_;  // their host blocks
};

MovingSequence Port::Moving(const core::SequenceSnapshot& s) const {
  const TimeNs now_ns = parts_.clock->NowNs();
  MovingSequence m;
  m.request = *s.request;
  m.request.sampling.has_seed = true;  // drawn, if the client gave none
  m.output = s.output;
  m.computed_tokens = s.computed_tokens;
  m.age_ns = now_ns - s.arrival_ns;
  if (s.scheduled_ns != 0) m.scheduled_age_ns = now_ns - s.scheduled_ns;
  if (s.first_token_ns != 0) m.first_token_age_ns = now_ns - s.first_token_ns;
  m.last_token_age_ns = now_ns - s.last_token_ns;
  m.longest_gap_ns = s.longest_gap_ns;
  m.longest_gap_end_age_ns = now_ns - s.longest_gap_end_ns;
  m.late_gaps = s.late_gaps;
  m.cached_tokens = s.cached_tokens;
  m.preemptions = s.preemptions;
  m.recomputed_tokens = s.recomputed_tokens;
  return m;
}

core::ImportedSequence Port::Arriving(const MovingSequence& m, uint64_t reservation) const {
  const TimeNs now_ns = parts_.clock->NowNs();
  // A machine's clock starts at 0 or later, and 0 means never.
  const auto at = [now_ns](int64_t age_ns) { return std::max<TimeNs>(1, now_ns - std::max<int64_t>(0, age_ns)); };
  core::ImportedSequence imported;
  imported.import = reservation;
  core::SequenceSnapshot& s = imported.snapshot;
  s.output = m.output;
  s.generated = static_cast<int32_t>(m.output.size());
  s.computed_tokens = m.computed_tokens;
  s.arrival_ns = at(m.age_ns);
  if (m.scheduled_age_ns >= 0) s.scheduled_ns = at(m.scheduled_age_ns);
  if (m.first_token_age_ns >= 0) s.first_token_ns = at(m.first_token_age_ns);
  s.last_token_ns = at(m.last_token_age_ns);
  s.longest_gap_ns = m.longest_gap_ns;
  s.longest_gap_end_ns = at(m.longest_gap_end_age_ns);
  s.late_gaps = m.late_gaps;
  s.cached_tokens = m.cached_tokens;
  s.preemptions = m.preemptions;
  s.recomputed_tokens = m.recomputed_tokens;
  return imported;
}

Result<uint64_t> Port::Reserve(uint64_t reservation, int32_t blocks, int64_t timeout_ns) {
  size_t so_far = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(reservation);
    if (reservation != 0 && found == reservations_.end())
      return NotFound(fmt::format("there is no reservation {}", reservation));
    if (reservation != 0) so_far = found->second.size();
  }
  const EngineStats stats = parts_.loop->Stats();
  const int64_t wanted = static_cast<int64_t>(so_far) + blocks, unused = stats.kv_blocks_total - stats.kv_blocks_in_use;
  if (blocks < 1 || wanted > unused) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} KV blocks are needed but {} of {} are free; try another replica", wanted, unused,
                              stats.kv_blocks_total));
  }
  const auto answer = Ask({.kind = core::TransferKind::kReserve, .import = reservation, .blocks = blocks}, timeout_ns);
  if (!answer.ok()) {
    // The reservation may still grow by blocks that are unknown here: later writes would go to the wrong blocks.
    if (answer.status().code() == StatusCode::kDeadlineExceeded) DropReservation(reservation);
    return answer.status();
  }
  std::lock_guard lock(mutex_);
  std::vector<BlockId>& all = reservations_[answer->import];
  all.insert(all.end(), answer->host_blocks.begin(), answer->host_blocks.end());
  return answer->import;
}

Status Port::Write(uint64_t reservation, int32_t first_block, std::string_view bytes) {
  const auto size = static_cast<size_t>(format_.block_bytes);
  std::vector<BlockId> blocks;
  {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(reservation);
    if (found == reservations_.end()) return NotFound(fmt::format("there is no reservation {}", reservation));
    const size_t count = bytes.size() / size;
    if (bytes.size() % size != 0 || first_block < 0 ||
        static_cast<size_t>(first_block) + count > found->second.size()) {
      return InvalidArgument(fmt::format("{} bytes from block {} on do not fit a reservation of {} blocks of {} bytes",
                                         bytes.size(), first_block, found->second.size(), size));
    }
    const auto begin = found->second.begin() + first_block;
    blocks.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    parts_.executor->WriteHostBlock(blocks[i], reinterpret_cast<const std::byte*>(bytes.data() + i * size));
  return Status();
}

// Checks what another process sent.
Status Port::CheckTokens(const MovingSequence& sequence) const {
  if (sequence.request.prompt == nullptr) return InvalidArgument("a sequence without a prompt", "prompt");
  for (const int64_t count : {sequence.computed_tokens, sequence.late_gaps, sequence.cached_tokens,
                              sequence.preemptions, sequence.recomputed_tokens}) {
    if (count < 0) return InvalidArgument(fmt::format("a sequence with a count of {}", count));
  }
  const auto known = [this](TokenId id) { return id >= 0 && id < parts_.vocab_size; };
  const auto& bias = sequence.request.sampling.logit_bias;
  if (!std::all_of(sequence.request.prompt->begin(), sequence.request.prompt->end(), known) ||
      !std::all_of(sequence.output.begin(), sequence.output.end(), known) ||
      !std::all_of(bias.begin(), bias.end(), [&](const auto& entry) { return known(entry.first); }) ||
      !std::all_of(sequence.logprobs.begin(), sequence.logprobs.end(), [&](const auto& row) {
        return std::all_of(row.begin(), row.end(), [&](const auto& entry) { return known(entry.token); });
      })) {
    return InvalidArgument(fmt::format("a token id outside the vocabulary [0, {})", parts_.vocab_size));
  }
  return Status();
}

Result<RequestHandle> Port::Arrive(uint64_t reservation, MovingSequence sequence, std::shared_ptr<ResponseSink> sink) {
  TACTUS_RETURN_IF_ERROR(CheckTokens(sequence));
  const int32_t needed = (sequence.computed_tokens + format_.block_size - 1) / format_.block_size;
  {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(reservation);
    const size_t has = found == reservations_.end() ? 0 : found->second.size();
    if (has < static_cast<size_t>(needed))
      return InvalidArgument(fmt::format("{} computed tokens fill {} blocks, and there is room for {}",
                                         sequence.computed_tokens, needed, has));
  }
  auto request = std::make_shared<const Request>(std::move(sequence.request));
  TACTUS_ASSIGN_OR_RETURN(core::PreparedRequest prepared, core::PrepareRequest(request, *parts_.limits));
  TACTUS_RETURN_IF_ERROR(core::AddImported(Arriving(sequence, reservation), *parts_.limits, &prepared));
  void* user = prepared.user = parts_.delivery->Register(request, std::move(sink));
  auto handle = parts_.delivery->TellAgain(user, sequence.output, std::move(sequence.logprobs),
                                           [&] { return parts_.loop->Submit(std::move(prepared)); });
  if (!handle.ok()) {
    parts_.delivery->Forget(user);
    return handle;
  }
  std::lock_guard lock(mutex_);
  reservations_.erase(reservation);
  return handle;
}

}  // namespace

std::unique_ptr<MigrationPort> MakeMigrationPort(MigrationFormat format, const MigrationParts& parts) {
  return std::make_unique<Port>(std::move(format), parts);
}

}  // namespace tactus::engine
