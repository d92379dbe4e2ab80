// Chooses the next request of a job to start, and the place that the scheduler receives for it: the common mechanism by
// which a runner feeds its engine and a simulation its replicas.
//
//   sample --> provisional plan, while the sample runs --> plan by what the sample has measured
//
// Sample: requests that start first, so that their answers' lengths are known early. It is drawn only if the order
// depends on unknown lengths. Its requests have no place, and the scheduler puts them before those that have one.
//
// Provisional plan: it orders the requests that start while most of the sample still runs. It is made with max_tokens
// as each unknown length, and is soon replaced. The caller therefore keeps few sequences waiting meanwhile
// (most_waiting).
//
// Plan: the requests not handed out yet are planned again whenever half of the sample's unfinished requests have ended.
// It does not wait for the whole sample, whose longest answers may take as long as a small job. The sample starts
// together, so a request of it that still runs counts as longer than those that have ended.
//
// If the scheduler chooses between the ends of the plan (PlanOrder::kBlendDualScan), requests are handed out from the
// end that has fewer unfinished ones: the queue then holds some of both, whichever end the scheduler prefers.
//
// Thread rule: one thread. Deterministic: the same job, options and lengths, received at the same moments, give the
// same starts. Invariants: every request to run is handed out exactly once, and no other.
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
  SampleOptions sample;        // share 0: none; unknown lengths then count as max_tokens
  Clock* stopwatch = nullptr;  // measures planning; null: nothing is measured
};

struct Start {
  int32_t request = 0;
  PlannedPlace place;
};

// Marks a request of this run; other values mark one of another run or shard.
inline constexpr int32_t kToRun = -1;

// The most sequences that a caller keeps waiting while JobFeed::provisional(): enough for the next step.
inline constexpr int32_t kProvisionalWaiting = 8;
// The same if the scheduler scans the plan's ends: enough of both for the next step. Requests that wait longer have the
// densities of an outdated plan.
inline constexpr int32_t kScannedWaiting = 128;

class JobFeed {
 public:
  // `tree`: of these prompts, whose keys are not needed any more. `elsewhere`: [request] kToRun, or the tokens that it
  // has generated in another run, 0: not known. Precondition: cost.Check().
  JobFeed(std::shared_ptr<const PromptSet> prompts, PrefixTree tree, const BatchCostModel& cost,
          const FeedOptions& options, std::vector<int32_t> elsewhere);

  // None: all have been handed out.
  std::optional<Start> Next();
  // Hands this request out, out of turn and without a place, because it goes with another one. Precondition: not handed
  // out.
  void Take(int32_t request);
  bool handed_out(int32_t request) const { return state_[Index(request)] != State::kWaits; }
  // The request has ended, after `output_tokens`; 0: it failed, which does not count as a length. Call once for each.
  void OnDone(int32_t request, int32_t output_tokens);

  bool sampling() const { return sample_left_ > 0; }
  // Most of the sample still runs: further requests follow a plan that is soon replaced.
  bool provisional() const { return sample_at_ == sample_.size() && sample_left_ > sample_size() / 16; }
  // The most sequences that a caller keeps waiting in its engine's queue; 0: only the queue's own limit (--max-queue).
  int32_t most_waiting() const { return provisional() ? kProvisionalWaiting : end_of_.empty() ? 0 : kScannedWaiting; }
  int32_t size() const { return to_run_; }  // requests to run
  int32_t sample_size() const { return static_cast<int32_t>(sample_.size()); }
  int32_t left() const { return left_; }  // not handed out
  const PromptSet& prompts() const { return *prompts_; }
  DurationNs planning_ns() const { return planning_ns_; }  // by the stopwatch
  // Share of the job's work that is done, by its cost: 0 to 1.
  double done_share() const { return work_s_ > 0 ? done_s_ / work_s_ : 0; }
  // Lower bound on the run's time, by the costs and estimates of the last plan, with optimal sharing and no overlap; 0:
  // no plan was made yet. An approximation; Summary computes it exactly.
  double bound_s() const { return bound_s_; }
  // Summary of all requests to run, with the lengths known so far and estimates for the rest.
  PlanSummary Summary(const OverlapFit& overlap) const;

 private:
  enum class State : uint8_t { kWaits, kStarted, kDone, kElsewhere };

  static size_t Index(int32_t request) { return static_cast<size_t>(request); }
  void MakePlan();
  std::vector<int32_t> Estimate();
  void CountWork(const std::vector<int32_t>& outputs);
  int32_t KvTokensAt(int32_t position) const;
  double StepTokens() const;
  // The next request from one of the plan's two ends, with the values that the scheduler chooses by.
  Start NextOfBothEnds();
  double SecondsOf(int32_t request, int32_t output_tokens) const;

  const std::shared_ptr<const PromptSet> prompts_;
  const BatchCostModel cost_;
  const FeedOptions options_;
  PrefixTree tree_;                // until the plan takes it
  std::vector<int32_t> measured_;  // [request] tokens generated; 0: not known
  std::vector<State> state_;       // [request]
  std::vector<int32_t> sample_;    // run first
  size_t sample_at_ = 0;
  int32_t sample_left_ = 0;     // of the sample, not ended
  int32_t sample_longest_ = 0;  // longest answer of the sample so far, in tokens
  int32_t plan_again_at_ = 0;   // value of sample_left_
  bool any_measured_ = false;
  bool stale_ = true;                // the plan does not use all that is known
  bool lengths_are_limits_ = false;  // the plan was made before anything was measured

  std::optional<Plan> plan_;  // none until planned; owns the tree
  std::optional<StartBalance> balance_;
  std::vector<int32_t> order_;  // positions, in start order
  size_t at_ = 0;
  int32_t left_at_ = 0, right_at_ = -1;  // positions: how far the scan of each end has come
  std::vector<PlanEnd> end_of_;          // [request] end that it came from; empty: ends are not scanned
  std::array<int32_t, 3> of_end_{};      // [PlanEnd] handed out, not ended
  // StartBalance of what this plan and earlier ones have handed out, without earlier plans by max_tokens.
  double ahead_s_ = 0;
  int32_t placed_ = 0;  // number of requests that received a place
  int32_t to_run_ = 0, left_ = 0;
  double bound_s_ = 0;
  double work_s_ = 0, done_s_ = 0;  // of all requests to run, expected; of what is done
  DurationNs planning_ns_ = 0;
};

}  // namespace tactus::offline
