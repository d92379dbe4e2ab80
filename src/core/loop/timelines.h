// The schedule of every live sequence, and of the last ended ones, as a timeline of causes (include/tactus/timeline.h).
// The loop reports events to it; it decides nothing, and no policy uses it.
//
// Invariants: each nanosecond of a sequence from arrival to end belongs to one cause. A sequence with an item in every
// step costs nothing: its time is accounted for when something changes. Only arrivals of requests allocate. Memory is
// bounded: at most kMostSegments segments per sequence, and kKeptSequences ended sequences.
//
// Thread rule: Find and Live on any thread; all else on the engine thread, within a Pass. A spin flag, held for a whole
// pass, serialises them, so that Find waits for a pass and never for a step. A flag instead of a mutex, because a pass
// takes a microsecond. Find is rare except for viewers of live events, who ask once for each new request.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/step.h"
#include "core/interfaces/sequence_columns.h"
#include "core/loop/intake.h"
#include "core/sched/plan.h"
#include "tactus/timeline.h"

namespace tactus::core {

struct RequestLine;
struct SequenceLine;

class Timelines {
 public:
  static constexpr int32_t kKeptSequences = 1024;  // ended sequences
  static constexpr size_t kMostSegments = 32;      // beyond it short neighbours are merged

  // The current state of a running sequence.
  struct Running {
    bool in_flight = false;
    StepId last_step = -1;     // the last step with an item of it
    TimeNs last_token_ns = 0;  // time of its last token
    DurationNs longest_gap_ns = 0;
    TimeNs longest_gap_end_ns = 0;
    int32_t generated = 0;
  };
  class Sequences {
   public:
    virtual Running RunningOf(SlotId slot) const = 0;

   protected:
    ~Sequences() = default;
  };

  // `kept`: ended sequences that Find finds, kKeptSequences at most. `sequences` outlives it.
  Timelines(int32_t slot_capacity, int32_t kept, const Sequences* sequences);
  ~Timelines();

  // Scope of one pass of the loop, until End.
  class Pass {
   public:
    Pass(Timelines* timelines, TimeNs now_ns, StepId next_step) : timelines_(timelines) {
      timelines->Enter();
      timelines->now_ns_ = now_ns;
      timelines->next_step_ = next_step;
    }
    Pass(const Pass&) = delete;
    ~Pass() { End(); }
    void End() {
      if (timelines_ != nullptr) timelines_->Leave();
      timelines_ = nullptr;
    }

   private:
    Timelines* timelines_;
  };
  void StepSubmitted() { ++next_step_; }

  RequestLine* Arrived(const PreparedRequest& request);
  // `others_ahead`: other sequences wait already.
  void SequenceArrived(RequestLine* request, SlotId slot, int32_t choice, bool held, bool others_ahead);
  // The sequence was migrated in. `first_token_ns` 0: it has no token; `computed`: positions computed at the other
  // replica.
  void Imported(SlotId slot, TimeNs first_token_ns, int32_t preemptions, int32_t computed);
  // The sequence is held until its prompt's KV has been read.
  void WaitsForDisk(SlotId slot) { SetOpen(slot, Cause::kDisk); }
  void Unheld(SlotId slot);
  // The cached part of the request's prompt.
  static void Matched(RequestLine* request, const CacheMatch& match);
  // A plan begins. The sequences that `changes` put into the queue have waited for it.
  void PlanBegins(std::span<const SequenceChange> changes) {
    if (!changes.empty()) Planning(changes);
  }
  // A plan has been made and applied, with or without a step. `waiting`: sequences that still wait.
  void Planned(const PlanBuilder& builder, size_t waiting) {
    if (waiting > 0 || started_ || !builder.refused().empty()) Look(builder, waiting);
  }
  // The sequence has its first item after waiting. `generated`: it has output tokens already.
  void Started(SlotId slot, int32_t first_position, bool generated);
  // A running sequence has an item again, but had none in the step before.
  void Resumed(SlotId slot);
  // A chunk of the sequence has ended; `step_tokens`: tokens of the whole step.
  void ChunkEnded(SlotId slot, const StepItem& item, int64_t step_tokens);
  // An item of the sequence has ended now without a token.
  void ShareEnded(SlotId slot);
  void FirstToken(SlotId slot);
  // Call before the change of the sequence table. `computed`: positions computed so far.
  void Preempted(SlotId slot, int32_t computed);
  void Ended(SlotId slot, FinishReason finish);
  // All its sequences have ended. Returns the objectives that it missed.
  std::array<Miss, kNumObjectives> RequestEnded(RequestLine* request, FinishReason finish);

  std::vector<RequestTimeline> Find(const TimelineQuery& query) const;
  std::vector<RequestHandle> Live() const;  // the requests that have not ended

 private:
  class Turn;
  // The cause for which waiting sequences that plans do not consider have waited since `since_ns`.
  struct Door {
    TimeNs since_ns = 0;
    StepId step = 0;
    Cause cause = Cause::kQueue;
  };

  void Enter() const {
    while (busy_.exchange(true, std::memory_order_acquire)) Yield();
  }
  void Leave() const { busy_.store(false, std::memory_order_release); }
  static void Yield();
  void Planning(std::span<const SequenceChange> changes);
  void Look(const PlanBuilder& builder, size_t waiting);
  void SetOpen(SlotId slot, Cause cause);
  SequenceLine& line(SlotId slot) { return *by_slot_[static_cast<size_t>(slot)]; }
  void Close(SequenceLine* line) const;
  void CloseUnseen(SequenceLine* line) const;
  void CloseRunning(SequenceLine* line) const;
  void Refused(SlotId slot, Cause cause);
  void SetDoor(Cause cause);
  void Recycle(RequestLine* request);
  RequestTimeline Show(const RequestLine& request) const;

  const Sequences& sequences_;
  const int32_t most_kept_;
  mutable std::atomic<bool> busy_{false};
  TimeNs now_ns_ = 0;
  StepId next_step_ = 0;
  // Since the last plan in which a sequence started, oldest first; doors_[0] is that plan.
  std::array<Door, 8> doors_;
  size_t num_doors_ = 1;
  bool started_ = false;  // the current plan starts a sequence

  std::vector<SequenceLine*> by_slot_;  // up to the highest slot that was ever taken, with room for all
  std::deque<SequenceLine> sequence_pool_;
  std::deque<RequestLine> request_pool_;
  std::vector<SequenceLine*> free_sequences_;
  std::vector<RequestLine*> free_requests_;
  std::vector<RequestLine*> live_;
  std::deque<RequestLine*> ended_;  // oldest first
  int32_t kept_sequences_ = 0;
};

}  // namespace tactus::core
