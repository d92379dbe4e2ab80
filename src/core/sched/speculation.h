// Decides how many drafts (guesses of the next tokens) of its decodes a composed step verifies. Part of the engine
// under any policies: they fill the step, and this uses what they left.
//
// The rule weighs gain against cost. A step's worth is its tokens: a token of a prompt or a decode counts 1, the j-th
// draft of a sequence counts the chance that it and all before it are right, p^j. Drafts are taken so that worth per
// predicted time is highest. In a step bound by memory bandwidth a further token is nearly free, and many are taken; in
// one bound by compute it costs its share, and none with p < 1 is. The predicted time that drafts add counts 1.5 times:
// a model error must not make the step slower. Certain drafts (a grammar allows one token) are always taken: they have
// to be computed anyway.
//
// Errors of the model are corrected. If it underestimates steps with drafts: measured over predicted time of steps
// without prompts is tracked, separately with and without drafts, and the prediction for steps with drafts is
// multiplied by the ratio of the two. So that both are known, a step now and then takes no drafts; and a high ratio
// slowly decays, so that drafts are tried again. If it overestimates them: a step of at most four tokens tries two
// drafts that are more likely right than not, the first eight times and then in one step of 64, whatever is predicted.
//
// Making drafts costs time, too. So each plan states the least chance at which a draft is taken
// (StepPlan::least_chance), and the draft source makes no less likely ones for the next step.
//
// Without a step-time model: drafts with p^j of at least 1/2, while the step has at most 16 tokens.
//
// Deterministic: a function of the views so far, the plan and the model's answers. Thread rule: engine thread only;
// allocates at construction only.
#pragma once

#include <array>
#include <vector>

#include "core/sched/plan.h"

namespace tactus::core {

class Speculation {
 public:
  explicit Speculation(const SchedulerLimits& limits);
  // Call once the step is composed; changes only the drafts of its decodes.
  void Complete(PlanBuilder* plan);

 private:
  struct Candidate {
    int32_t item = 0;
    int32_t most = 0;   // drafts
    double chance = 0;  // of each draft
    double next = 0;    // worth of the next draft
    int32_t taken = 0, best = 0;
  };
  struct ByWorth {  // equal worth: the first item first
    const std::vector<Candidate>& candidates;
    bool operator()(int32_t a, int32_t b) const {
      const double x = candidates[static_cast<size_t>(a)].next, y = candidates[static_cast<size_t>(b)].next;
      return x != y ? x < y : a > b;
    }
  };
  // Measured over predicted time of steps without prompts, recent ones weighted more.
  struct Measured {
    double ratio = 0;
    int64_t steps = 0;
    void Add(double measured_over_predicted);
  };
  struct Prediction {
    StepId step = -1;  // -1: none
    double ns = 0;
    bool guessed = false;
  };
  void Learn(const StepView& view);
  double GuessedOverPlain() const;
  // Fills candidates_ and takes the certain drafts; returns the number of those.
  int64_t FindCandidates(const PlanBuilder& plan);
  // Takes the draft of highest worth; returns its worth, 0 if there is none.
  double TakeNext();
  void Keep();
  void TakeByTime(const StepView& view, const StepPlan& plan, int64_t sure, int64_t most);
  double TimeWith(const StepPlan& plan);
  // The least chance at which a draft of one of the plan's decodes pays, with room for `left` tokens; above 1: even a
  // certain one does not.
  double LeastChance(const StepPlan& plan, int64_t left);

  const StepTimeModel* const step_time_;
  std::vector<Candidate> candidates_;
  std::vector<int32_t> heap_;       // candidates with a draft left, by its worth
  std::vector<ChunkShape> chunks_;  // scratch
  Measured plain_, guessed_;
  int64_t guessed_since_plain_ = 0;         // steps
  int64_t plain_since_guessed_ = 0;         // steps
  std::array<Prediction, 16> predictions_;  // of the last steps, a ring by step
};

}  // namespace tactus::core
