// Moves sequences between the replicas of a simulation, with the decisions of fleet/balance/rebalance.h and the
// commands of core/loop/transfer.h, as a fleet of servers does; the transfer time of the bytes is simulated.
// A move has two rounds: first all existing KV while the sequence runs, then the KV computed since while it is paused.
// Thread rule: the simulation's thread. Deterministic.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "core/loop/step_loop.h"
#include "fleet/balance/rebalance.h"
#include "sim/simulator/simulator.h"
#include "tactus/run_result.h"

namespace tactus::sim {

class Migrations {
 public:
  // The interface to the simulation. Replicas by index.
  struct Host {
    std::function<core::StepLoop&(int32_t replica)> loop;
    // Schedules the replica's next pass now.
    std::function<void(int32_t replica)> wake;
    // Hands the sequence over: its request continues at `to`. Returns its handle there; 0: rejected.
    std::function<RequestHandle(int32_t from, RequestHandle handle, int32_t to, core::ImportedSequence imported)>
        arrive;
  };

  Migrations(const SimulationConfig::Migration& config, int32_t block_size, Clock* clock, Host host)
      : config_(config), block_size_(block_size), clock_(*clock), host_(std::move(host)) {}

  // Starts a move for each pair of replicas that should have one and takes part in none. `draining`: as in
  // PairReplicas.
  void Decide(std::span<const fleet::ReplicaView> replicas, const std::vector<bool>& draining);
  // Number of sequences moving to the replica.
  int32_t Coming(int32_t replica) const;
  // Processes the moves that are due.
  void AdvanceTo(TimeNs now_ns);
  TimeNs NextNs() const;

  using Figures = SimulatedFigures::Migrations;
  using Cause = int64_t Figures::*;  // why a sequence stayed
  const Figures& figures() const { return figures_; }

 private:
  enum class Stage : uint8_t { kRoom, kFirstRound, kPausing, kLastRound, kOver };
  struct Move {
    int32_t from = 0, to = 0;
    RequestHandle handle = 0;  // at the source
    Stage stage = Stage::kRoom;
    TimeNs due_ns = kNever;
    core::ImportId import = 0;
    int32_t blocks = 0, tokens = 0;  // reserved blocks; tokens sent in the first round
    core::SequenceSnapshot snapshot;
  };
  void Begin(const fleet::MovePair& pair, int64_t room_tokens);
  void Go(Move* move);
  void GiveUp(Move* move, Cause why);
  DurationNs TimeOf(int64_t tokens) const;
  int32_t BlocksOf(int64_t tokens) const { return static_cast<int32_t>((tokens + block_size_ - 1) / block_size_); }

  const SimulationConfig::Migration config_;
  const int32_t block_size_;
  Clock& clock_;
  const Host host_;
  std::deque<Move> moves_;  // in order of their start; finished ones are removed from the front
  std::vector<core::StepLoop::RunningSequence> running_;  // scratch, like the next
  std::vector<fleet::MovableSequence> movable_;
  Figures figures_;
};

}  // namespace tactus::sim
