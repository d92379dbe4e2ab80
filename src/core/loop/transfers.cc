#include "core/loop/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tactus::core {
namespace {

constexpr int64_t kMostBytesOfPass = int64_t{2} << 20;  // a fraction of a millisecond of copying

TransferAnswer Failed(Status why) {
  TransferAnswer answer;
  answer.status = std::move(why);
  return answer;
}

void Answer(const std::function<void(TransferAnswer)>& to, TransferAnswer answer) {
  if (to) to(std::move(answer));
}

}  // namespace

Transfers::Transfers(const LoopContext& context, LiveRequests* live, ImportReservations* reservations,
                     const StepsInFlight* steps, std::function<bool()> copies_wait)
    : parts_(context.parts),
      live_(*live),
      reservations_(*reservations),
      steps_(*steps),
      copies_wait_(std::move(copies_wait)) {}

void Transfers::Take(TransferCommand command) {
  switch (command.kind) {
    case TransferKind::kRead:
      reads_.push_back(std::move(command));
      return;
    case TransferKind::kPause:
      return Pause(&command);
    case TransferKind::kResume:
    case TransferKind::kLeave:
      return End(&command);
    case TransferKind::kReserve:
      if (command.handle == 0) return Reserve(&command);
      wait_for_room_.push_back(std::move(command));
      return;
    case TransferKind::kDrop:
      if (reservations_.Drop(command.import)) Tell(command);
      return Answer(command.answer, {});
    case TransferKind::kFetched:
      return Fetched(command);
    case TransferKind::kReadEntered:
      read_entered_ = std::move(command);
      return;
    case TransferKind::kWithdraw:
      return Withdraw(command.handle);
  }
}

void Transfers::Tell(const TransferCommand& command) const {
  if (parts_.tap != nullptr) parts_.tap->Transferred(command);
}

void Transfers::Fetched(const TransferCommand& command) {
  if (live_.Fetched(command) || reservations_.Drop(command.import)) Tell(command);
}

bool Transfers::ReserveForWaiting() {
  bool any = false;
  for (; !wait_for_room_.empty(); wait_for_room_.pop_front()) {
    TransferCommand& command = wait_for_room_.front();
    if (!live_.WaitsForKv(command.handle)) {  // it has ended, or the prefix cache had its KV
      Answer(command.answer, Failed(NotFound("the request does not wait for KV")));
      any = true;
      continue;
    }
    if (!TryReserve(&command)) break;
    any = true;
  }
  return any;
}

Result<SlotId> Transfers::Find(RequestHandle handle) const {
  const RequestRecord* request = live_.Find(handle);
  if (request == nullptr) return NotFound("the request has ended");
  if (request->in.choices.size() != 1) {
    return InvalidArgument(
        fmt::format("a request with {} choices does not move; only those with one do", request->in.choices.size()));
  }
  const SlotId s = request->in.choices[0].slot;
  if (s == kNoSlot || live_.sequences().columns().state[s] == SeqState::kFinished)
    return NotFound("the request has ended");
  if (request->in.request->prompt_logprobs) return InvalidArgument("a request that echoes logprobs does not move");
  return s;
}

std::vector<Transfers::Paused>::iterator Transfers::FindPaused(RequestHandle handle) {
  return std::find_if(paused_.begin(), paused_.end(), [handle](const Paused& p) { return p.handle == handle; });
}

void Transfers::Pause(TransferCommand* command) {
  const Result<SlotId> s = Find(command->handle);
  if (!s.ok()) return Answer(command->answer, Failed(s.status()));
  if (FindPaused(command->handle) != paused_.end())
    return Answer(command->answer, Failed(InvalidArgument("the sequence is paused already")));
  if (live_.sequences().columns().state[*s] == SeqState::kHeld) {
    return Answer(command->answer, Failed(Status(StatusCode::kUnavailable,
                                                 "the request waits for its KV from --kv-cache-dir; try again")));
  }
  Tell(*command);
  live_.sequences().Pause(*s);
  paused_.push_back({command->handle, *s, std::move(command->answer)});
}

void Transfers::End(TransferCommand* command) {
  const auto paused = FindPaused(command->handle);
  if (paused == paused_.end() || !Find(command->handle).ok())
    return Answer(command->answer, Failed(NotFound("the request has ended")));
  Tell(*command);
  const SlotId s = paused->slot;
  Answer(paused->answer, Failed(Status(StatusCode::kCancelled, "the pause ended before it was answered")));
  paused_.erase(paused);
  if (command->kind == TransferKind::kLeave) live_.Finish(s, FinishReason::kMigrated, nullptr, -1);
  live_.DropItem(s);  // the item that Pause counted
  Answer(command->answer, {});
}

TransferAnswer Transfers::NoRoomFor(const TransferCommand& command) const {
  return Failed(Status(StatusCode::kResourceExhausted,
                       fmt::format("{} host blocks are needed and {} of {} are free (--swap-space)", command.blocks,
                                   parts_.kv->swap_blocks_free(), parts_.kv->swap_blocks_total())));
}

void Transfers::Reserve(TransferCommand* command) {
  if (!TryReserve(command)) Answer(command->answer, NoRoomFor(*command));
}

void Transfers::Withdraw(RequestHandle handle) {
  std::erase_if(wait_for_room_, [&](TransferCommand& command) {
    if (command.handle != handle) return false;
    Answer(command.answer, NoRoomFor(command));
    return true;
  });
}

bool Transfers::TryReserve(TransferCommand* command) {
  Reserved r;
  r.answer.import = command->import;
  if (!reservations_.Reserve(&r.answer.import, command->blocks, &r.answer.host_blocks)) return false;
  Tell(*command);
  if (!command->answer) return true;
  r.after = steps_.next_step() - 1;
  r.tell = std::move(command->answer);
  reserved_.push_back(std::move(r));
  return true;
}

bool Transfers::Settle() {
  if (paused_.empty() && reserved_.empty()) return false;
  bool any = false;
  for (size_t i = 0; i < paused_.size();) {
    Paused& p = paused_[i];
    if (!Find(p.handle).ok()) {  // cancelled, failed or aborted since
      Answer(p.answer, Failed(NotFound("the request has ended")));
      live_.DropItem(p.slot);
      paused_.erase(paused_.begin() + static_cast<std::ptrdiff_t>(i));
      any = true;
      continue;
    }
    if (p.answer && live_.sequences().items_in_flight(p.slot) == 1) {
      TransferAnswer answer;
      answer.snapshot = live_.SnapshotOf(p.slot);
      std::exchange(p.answer, nullptr)(std::move(answer));
      any = true;
    }
    ++i;
  }
  const StepId oldest = steps_.next_step() - steps_.count();  // the oldest step in flight
  std::erase_if(reserved_, [&](Reserved& r) {
    if (oldest <= r.after || copies_wait_()) return false;
    any = true;
    r.tell(std::move(r.answer));
    return true;
  });
  return any;
}

bool Transfers::Read() {
  if (AnswerEntered()) return true;  // the next pass executes the other reads
  if (reads_.empty()) return false;
  const int64_t block_bytes = std::max<int64_t>(1, parts_.executor->kv_block_bytes());
  for (int64_t left = std::max<int64_t>(1, kMostBytesOfPass / block_bytes); left > 0 && !reads_.empty();) {
    TransferCommand command = std::move(reads_.front());
    reads_.pop_front();
    command.blocks = static_cast<int32_t>(std::min<int64_t>(command.blocks, left));
    const int64_t before = blocks_read_;
    ReadOne(&command);
    left -= std::max<int64_t>(1, blocks_read_ - before);
  }
  return true;
}

bool Transfers::AnswerEntered() {
  if (!read_entered_) return false;
  TransferAnswer answer = ReadEntered(read_entered_->blocks, read_entered_->wanted);
  if (answer.blocks == 0) return answer.more;
  const auto tell = std::move(read_entered_->answer);
  read_entered_.reset();
  Answer(tell, std::move(answer));
  return true;
}

TransferAnswer Transfers::ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted) {
  constexpr int kMostUnwanted = 4096;  // per pass
  const int64_t block_bytes = std::max<int64_t>(1, parts_.executor->kv_block_bytes());
  const int64_t most = std::min<int64_t>(blocks, std::max<int64_t>(1, kMostBytesOfPass / block_bytes));
  TransferAnswer answer;
  KvCache::Entered entered;
  for (int unwanted = 0; answer.blocks < most && unwanted < kMostUnwanted && parts_.kv->TakeEntered(&entered);) {
    if (!wanted(entered.key)) {
      answer.more = ++unwanted == kMostUnwanted;
      continue;
    }
    const size_t at = answer.bytes.size();
    if (at == 0) answer.bytes.reserve(static_cast<size_t>(most * block_bytes));
    answer.bytes.resize(at + static_cast<size_t>(block_bytes));
    parts_.executor->ReadKvBlock(entered.block, answer.bytes.data() + at);
    answer.keys.push_back(entered.key);
    ++answer.blocks;
  }
  return answer;
}

bool Transfers::ReadOne(TransferCommand* command) {
  const Result<SlotId> s = Find(command->handle);
  if (!s.ok()) {
    Answer(command->answer, Failed(s.status()));
    return false;
  }
  TransferAnswer answer;
  const SequenceTable& table = live_.sequences();
  if (table.holds_kv(*s)) {
    const int32_t computed = table.columns().computed_committed[*s];
    int32_t end = parts_.kv->FinishedBlocks(*s, computed);
    const auto paused = FindPaused(command->handle);
    // No step writes a paused sequence: its last, partial block is stable too.
    if (paused != paused_.end() && !paused->answer)
      end = (computed + parts_.kv->block_size() - 1) / parts_.kv->block_size();
    answer.blocks = std::clamp(end - command->first_block, 0, command->blocks);
    const auto bytes = static_cast<size_t>(parts_.executor->kv_block_bytes());
    answer.bytes.resize(static_cast<size_t>(answer.blocks) * bytes);
    for (int32_t i = 0; i < answer.blocks; ++i) {
      parts_.executor->ReadKvBlock(parts_.kv->Table(*s)[static_cast<size_t>(command->first_block + i)],
                                   answer.bytes.data() + static_cast<size_t>(i) * bytes);
    }
    blocks_read_ += answer.blocks;
  }
  Answer(command->answer, std::move(answer));
  return true;
}

}  // namespace tactus::core
