#include "sim/simulator/migrations.h"

#include <algorithm>
#include <utility>

namespace tactus::sim {
namespace {

constexpr int32_t kSpareBlocks = 8;                    // minimum reserve for tokens computed during the move
constexpr DurationNs kShortStepNs = 5 * kMillisecond;  // assumed shortest decode step

}  // namespace

DurationNs Migrations::TimeOf(int64_t tokens) const {
  const double bytes = static_cast<double>(tokens * config_.token_bytes);
  return config_.latency_ns + static_cast<DurationNs>(bytes / config_.bytes_per_s * 1e9);
}

int32_t Migrations::Coming(int32_t replica) const {
  return static_cast<int32_t>(std::count_if(
      moves_.begin(), moves_.end(), [replica](const Move& m) { return m.to == replica && m.stage != Stage::kOver; }));
}

void Migrations::Decide(std::span<const fleet::ReplicaView> replicas, const std::vector<bool>& draining) {
  for (const fleet::MovePair& pair : fleet::PairReplicas(replicas, draining)) {
    const bool busy = std::any_of(moves_.begin(), moves_.end(), [&](const Move& m) {
      return m.stage != Stage::kOver && (m.from == pair.from || m.to == pair.to || m.to == pair.from);
    });
    if (!busy) Begin(pair, replicas[static_cast<size_t>(pair.to)].free_kv_tokens);
  }
}

void Migrations::Begin(const fleet::MovePair& pair, int64_t room_tokens) {
  host_.loop(pair.from).Movable(&running_);
  movable_.clear();
  // With the length of its whole prompt, even if that is still being computed: a room for the current size would be
  // outgrown during the move.
  for (const auto& s : running_) movable_.push_back({s.handle, s.priority, s.known});
  const int32_t chosen = fleet::ChooseToMove(movable_, room_tokens);
  if (chosen < 0) return;
  const core::StepLoop::RunningSequence& sequence = running_[static_cast<size_t>(chosen)];
  while (!moves_.empty() && moves_.front().stage == Stage::kOver) moves_.pop_front();
  Move& move = moves_.emplace_back();
  move.from = pair.from;
  move.to = pair.to;
  move.handle = sequence.handle;
  move.tokens = sequence.tokens;
  move.blocks = BlocksOf(sequence.known + TimeOf(sequence.tokens) / kShortStepNs) + kSpareBlocks;
  host_.loop(move.to).Transfer({.kind = core::TransferKind::kReserve,
                                .blocks = move.blocks,
                                .answer = [this, &move](core::TransferAnswer answer) {
                                  if (!answer.status.ok()) return GiveUp(&move, &Figures::no_room);
                                  move.import = answer.import;
                                  move.stage = Stage::kFirstRound;
                                  move.due_ns = clock_.NowNs() + TimeOf(move.tokens);
                                }});
  host_.wake(move.to);
}

void Migrations::AdvanceTo(TimeNs now_ns) {
  for (Move& move : moves_) {
    if (move.due_ns <= now_ns) Go(&move);
  }
}

TimeNs Migrations::NextNs() const {
  TimeNs next = kNever;
  for (const Move& move : moves_) next = std::min(next, move.due_ns);
  return next;
}

void Migrations::Go(Move* move) {
  move->due_ns = kNever;
  if (move->stage == Stage::kFirstRound) {
    move->stage = Stage::kPausing;
    host_.loop(move->from)
        .Transfer({.kind = core::TransferKind::kPause,
                   .handle = move->handle,
                   .answer = [this, move](core::TransferAnswer answer) {
                     if (!answer.status.ok()) return GiveUp(move, &Figures::ended);
                     move->snapshot = std::move(answer.snapshot);
                     move->stage = Stage::kLastRound;
                     const int64_t rest = std::max(0, move->snapshot.computed_tokens - move->tokens);
                     move->due_ns = clock_.NowNs() + TimeOf(rest);
                   }});
    host_.wake(move->from);
    return;
  }
  // Simulations have no cancels and the sequence is paused, so it still exists.
  core::StepLoop& from = host_.loop(move->from);
  // A preempted sequence moves without KV, as between servers, and is recomputed at the destination.
  const int32_t tokens = move->snapshot.computed_tokens;
  const bool fits = BlocksOf(tokens) <= move->blocks;
  RequestHandle arrived = 0;
  if (fits) {
    arrived = host_.arrive(move->from, move->handle, move->to,
                           {.snapshot = std::move(move->snapshot), .import = move->import, .generated_keys = {}});
  }
  from.Transfer(
      {.kind = arrived != 0 ? core::TransferKind::kLeave : core::TransferKind::kResume, .handle = move->handle});
  host_.wake(move->from);
  if (arrived == 0) return GiveUp(move, fits ? &Figures::refused : &Figures::outgrew);
  host_.wake(move->to);
  ++figures_.moved;
  figures_.without_kv += tokens == 0;
  figures_.tokens += tokens;
  move->stage = Stage::kOver;
}

void Migrations::GiveUp(Move* move, Cause why) {
  ++figures_.failed;
  ++(figures_.*why);
  move->stage = Stage::kOver;
  move->due_ns = kNever;
  if (move->import == 0) return;
  host_.loop(move->to).Transfer({.kind = core::TransferKind::kDrop, .import = move->import});
  host_.wake(move->to);
}

}  // namespace tactus::sim
