// The schedule of every sequence as a timeline of causes (include/tactus/timeline.h): of those that live, and of the
// last ones that ended. The loop tells it what happens; it decides nothing, and no policy knows of it.
//
// Invariants: from its arrival to its end each nanosecond of a sequence belongs to one cause. A sequence that is in
// every step costs nothing: its time is accounted for when something changes. Nothing allocates but when a request
// arrives. Memory is bounded: a sequence keeps at most kMostSegments segments, and kKeptSequences that ended are kept.
//
// Thread rule: Find on any thread; all else on the engine thread, in a pass (Pass). One flag orders them, which a pass
// takes once, so that who asks waits for a pass and never for a step. A flag and no mutex: a pass is a microsecond, and
// hardly ever does anybody ask.
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
  static constexpr int32_t kKeptSequences = 1024;  // that have ended
  static constexpr size_t kMostSegments = 32;      // beyond it short neighbours become one

  // What the loop knows of a running sequence at the moment.
  struct Running {
    bool in_flight = false;
    StepId last_step = -1;     // the last that it had a share of
    TimeNs last_token_ns = 0;  // when its last token came
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

  // `sequences` outlives it.
  Timelines(int32_t slot_capacity, const Sequences* sequences);
  ~Timelines();

  // One pass of the loop, from its beginning to End.
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
  // `others_ahead`: sequences wait already.
  void SequenceArrived(RequestLine* request, SlotId slot, int32_t choice, bool held, bool others_ahead);
  // It has run elsewhere until now. `first_token_ns` 0: without a token; `computed`: positions that it had there.
  void Imported(SlotId slot, TimeNs first_token_ns, int32_t preemptions, int32_t computed);
  // It is held until its prompt's KV is there.
  void WaitsForDisk(SlotId slot) { SetOpen(slot, Cause::kDisk); }
  void Unheld(SlotId slot);
  // What was cached of the request's prompt.
  static void Matched(RequestLine* request, const CacheMatch& match);
  // The sequences that these changes put into the queue have waited for the plan that is about to be made.
  void PlanBegins(std::span<const SequenceChange> changes) {
    if (!changes.empty()) Planning(changes);
  }
  // A plan has been made and applied, step or not. `waiting`: sequences that still do.
  void Planned(const PlanBuilder& builder, size_t waiting) {
    if (waiting > 0 || started_ || !builder.refused().empty()) Look(builder, waiting);
  }
  // Its first share of a step since it waited. `generated`: it has tokens already.
  void Started(SlotId slot, int32_t first_position, bool generated);
  // A running sequence gets a share again, and was not in the step before.
  void Resumed(SlotId slot);
  // A share of a step that computed a prompt has ended; `step_tokens`: of the step.
  void ChunkEnded(SlotId slot, const StepItem& item, int64_t step_tokens);
  // A share of a step ended now without a token.
  void ShareEnded(SlotId slot);
  void FirstToken(SlotId slot);
  // `computed`: positions that it had. Before the sequence table knows.
  void Preempted(SlotId slot, int32_t computed);
  void Ended(SlotId slot, FinishReason finish);
  // All its sequences have ended. What it missed, of what it stated.
  std::array<Miss, kNumObjectives> RequestEnded(RequestLine* request, FinishReason finish);

  std::vector<RequestTimeline> Find(const TimelineQuery& query) const;

 private:
  class Turn;
  // Since when waiting sequences that are not looked at wait for the same.
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
  mutable std::atomic<bool> busy_{false};
  TimeNs now_ns_ = 0;
  StepId next_step_ = 0;
  // Since the last plan in which a sequence started, oldest first; the first is that plan.
  std::array<Door, 8> doors_;
  size_t num_doors_ = 1;
  bool started_ = false;  // a sequence, in the plan that is being applied

  std::vector<SequenceLine*> by_slot_;  // [slot_capacity]
  std::deque<SequenceLine> sequence_pool_;
  std::deque<RequestLine> request_pool_;
  std::vector<SequenceLine*> free_sequences_;
  std::vector<RequestLine*> free_requests_;
  std::vector<RequestLine*> live_;
  std::deque<RequestLine*> ended_;  // oldest first
  int32_t kept_sequences_ = 0;
};

}  // namespace tactus::core
