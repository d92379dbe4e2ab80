// Which request of a job starts next, and which place the scheduler is told for it: the one mechanism by which a runner
// feeds its engine and a simulation its replicas.
//
//   sample --> provisional plan, while the sample runs --> plan by what the sample has measured
//
// The sample is drawn where the order depends on lengths that are not known. It has no place, so that it goes before
// what has one. What is handed out beside it goes by a provisional plan, of max_tokens; the caller keeps few of those
// waiting (`provisional`). The rest is planned again whenever the part of the sample that still runs has halved: its
// longest answers may take as long as a small job. They began together, so one that still runs is longer than those
// that have ended. What was handed out is never planned again.
//
// Where the scheduler chooses between the ends of the plan (PlanOrder::kBlendDualScan), what is handed out comes from
// the end of which fewer requests have not ended: the queue holds some of both, whichever the scheduler takes more of.
//
// Thread rule: one thread. Deterministic: the same job, options and lengths, told at the same moments, give the same
// starts. Invariants: every request that is to run is handed out exactly once, none other is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "offline/plan/output_lengths.h"
#include "offline/plan/plan.h"
#include "offline/plan/plan_summary.h"
#include "offline/plan/start_order.h"

namespace tactus::offline {

struct FeedOptions {
  PlanOptions plan;
  SampleOptions sample;        // share 0: none; what is not known counts as max_tokens
  Clock* stopwatch = nullptr;  // of planning; null: nothing is measured
};

struct Start {
  int32_t request = 0;
  PlannedPlace place;
};

// Of a request that another run or another shard does; kToRun: it is to run.
inline constexpr int32_t kToRun = -1;

// How many sequences a caller keeps waiting while JobFeed::provisional(): enough for the next step.
inline constexpr int32_t kProvisionalWaiting = 8;
// And where the scheduler scans the plan's ends: enough of both for the next step. What waits for longer goes by the
// densities of an older plan.
inline constexpr int32_t kScannedWaiting = 128;

class JobFeed {
 public:
  // `tree`: of these prompts, whose keys are not needed any more. `elsewhere`: [request] kToRun, or how many tokens it
  // has generated in another run, 0: not known. Precondition: cost.Check().
  JobFeed(std::shared_ptr<const PromptSet> prompts, PrefixTree tree, const BatchCostModel& cost,
          const FeedOptions& options, std::vector<int32_t> elsewhere);

  // None: all have been handed out.
  std::optional<Start> Next();
  // Hands this one out, whosever turn it is: it goes with another one, without a place. Precondition: it was not.
  void Take(int32_t request);
  bool handed_out(int32_t request) const { return state_[Index(request)] != State::kWaits; }
  // It has ended, after so many tokens; 0: it failed, which says nothing of lengths. Once for each.
  void OnDone(int32_t request, int32_t output_tokens);

  bool sampling() const { return sample_left_ > 0; }
  // Most of the sample runs still: what comes next goes by a plan that is soon made anew.
  bool provisional() const { return sample_at_ == sample_.size() && sample_left_ > sample_size() / 16; }
  // How many sequences a caller keeps waiting; 0: as many as its queue takes.
  int32_t most_waiting() const { return provisional() ? kProvisionalWaiting : end_of_.empty() ? 0 : kScannedWaiting; }
  int32_t size() const { return to_run_; }  // requests that are to run
  int32_t sample_size() const { return static_cast<int32_t>(sample_.size()); }
  int32_t left() const { return left_; }  // not handed out
  const PromptSet& prompts() const { return *prompts_; }
  DurationNs planning_ns() const { return planning_ns_; }  // by the stopwatch
  // How much of the job's work is done, by its cost: 0 to 1.
  double done_share() const { return work_s_ > 0 ? done_s_ / work_s_ : 0; }
  // What runs takes at least, by the costs and estimates of the last plan, with as much shared as can be and nothing
  // overlapped; 0: nothing was planned yet. Summary says it exactly.
  double bound_s() const { return bound_s_; }
  // Of all that is to run, with the lengths that are known by now, estimates for the rest.
  PlanSummary Summary(const OverlapFit& overlap) const;

 private:
  enum class State : uint8_t { kWaits, kStarted, kDone, kElsewhere };

  static size_t Index(int32_t request) { return static_cast<size_t>(request); }
  void MakePlan();
  std::vector<int32_t> Estimate();
  void CountWork(const std::vector<int32_t>& outputs);
  int32_t KvTokensAt(int32_t position) const;
  double StepTokens() const;
  // The next of the plan's two ends, and what the scheduler chooses by.
  Start NextOfBothEnds();
  double SecondsOf(int32_t request, int32_t output_tokens) const;

  const std::shared_ptr<const PromptSet> prompts_;
  const BatchCostModel cost_;
  const FeedOptions options_;
  PrefixTree tree_;                // until it is planned
  std::vector<int32_t> measured_;  // [request] tokens generated; 0: not known
  std::vector<State> state_;       // [request]
  std::vector<int32_t> sample_;    // to be run first
  size_t sample_at_ = 0;
  int32_t sample_left_ = 0;     // of it, not ended
  int32_t sample_longest_ = 0;  // tokens, of what has ended
  int32_t plan_again_at_ = 0;   // sample_left_
  bool any_measured_ = false;
  bool stale_ = true;                // the plan is not that of what is known
  bool lengths_are_limits_ = false;  // the plan was made before anything was measured

  std::optional<Plan> plan_;  // has the tree then
  std::optional<StartBalance> balance_;
  std::vector<int32_t> order_;  // positions, in the order in which they start
  size_t at_ = 0;
  int32_t left_at_ = 0, right_at_ = -1;  // positions: where the scan of either end has come to
  std::vector<PlanEnd> end_of_;          // [request] that it was handed out from; empty: ends are not scanned
  std::array<int32_t, 3> of_end_{};      // [PlanEnd] handed out, not ended
  double ahead_s_ = 0;                   // the balance of what has been handed out by plans of estimates
  int32_t placed_ = 0;                   // have been given a place
  int32_t to_run_ = 0, left_ = 0;
  double bound_s_ = 0;
  double work_s_ = 0, done_s_ = 0;  // of all that is to run, expected; of what is done
  DurationNs planning_ns_ = 0;
};

}  // namespace tactus::offline
