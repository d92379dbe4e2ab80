// How many of the guesses at what follows its decodes a composed step verifies. It is the engine's, whatever the
// policies: they fill the step, and this uses what they left.
//
// The rule is gain against cost. A step's worth is its tokens: each token of a prompt and of a decode one, the j-th
// guess of a sequence the chance that it and all before it are right, p^j. Guesses are taken so that worth per
// predicted time is highest. In a step that waits for memory a token more costs next to nothing, and many are taken; in
// one that computes all the time it costs its share, and none with p < 1 is. What a guess adds to the step's time
// counts half as much again as predicted: a model's error must not make the step slower. Guesses that are sure (a
// grammar leaves no choice) are always taken: they have to be computed, now or later.
//
// A model that flatters steps with guesses is found out: measured over predicted time of steps without prompts is kept,
// of those that verified some and of those that did not, and what a step with guesses is predicted to take is
// multiplied by the ratio of the two. So that both are known, a step now and then takes none; and what is held against
// guesses is slowly forgotten, so that they are tried again. A model that makes them dearer than they are is found out
// too: a step of at most four tokens tries two that are likelier than not, the first eight times and then one step in
// 64, whatever is predicted.
//
// Guesses cost who makes them, too. So each plan says how likely a guess must be to be taken (StepPlan::least_chance),
// and who makes them makes no less likely ones for the next step.
//
// Without a step-time model: those whose p^j is at least 1/2, while the step has at most 16 tokens.
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
  // Once the step is composed; changes nothing but the drafts of its decodes.
  void Complete(PlanBuilder* plan);

 private:
  struct Candidate {
    int32_t item = 0;
    int32_t most = 0;   // guesses
    double chance = 0;  // of each
    double next = 0;    // what the next one is worth
    int32_t taken = 0, best = 0;
  };
  struct ByWorth {  // of equal ones the first item's goes first
    const std::vector<Candidate>& candidates;
    bool operator()(int32_t a, int32_t b) const {
      const double x = candidates[static_cast<size_t>(a)].next, y = candidates[static_cast<size_t>(b)].next;
      return x != y ? x < y : a > b;
    }
  };
  // Of steps without prompts: measured over predicted, later ones counting more.
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
  // Fills candidates_, what is sure taken; how much that is.
  int64_t FindCandidates(const PlanBuilder& plan);
  // Takes the guess that is worth most; what it is worth, 0 when there is none.
  double TakeNext();
  void Keep();
  void TakeByTime(const StepView& view, const StepPlan& plan, int64_t sure, int64_t most);
  double TimeWith(const StepPlan& plan);
  // From where on a guess beside one of its decodes pays, with room for `left` tokens; above 1: even a sure one does
  // not.
  double LeastChance(const StepPlan& plan, int64_t left);

  const StepTimeModel* const step_time_;
  std::vector<Candidate> candidates_;
  std::vector<int32_t> heap_;       // of those that have a guess left, by what it is worth
  std::vector<ChunkShape> chunks_;  // scratch
  Measured plain_, guessed_;
  int64_t guessed_since_plain_ = 0;         // steps
  int64_t plain_since_guessed_ = 0;         // steps
  std::array<Prediction, 16> predictions_;  // of the last steps, a ring by step
};

}  // namespace tactus::core
