// AccelGen (section 4.4): a request takes KV chunk by chunk; preemption resolves shortages. Ours, so that preemptions
// stay rare:
//
// - A start leaves free (but does not reserve) what the rest of its prompt will need, and a block for each running
//   sequence, which will need one within a block's worth of steps. An urgent prompt leaves only the former free.
// - It also leaves free what the running prompts that can be kept will need. Else half-done prompts take the KV from
//   each other.
// - A preempted sequence reserves all that it must compute again, so that recomputation is never lost halfway.
// - A request that has missed its objective is the first to lose its KV, so it starts only if the running ones can
//   continue for a while.
//
// Without --accelgen-missed behind, an urgent prompt starts if its first chunk fits, late or not, and leaves nothing
// free for running prompts.
#include <algorithm>
#include <array>

#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

// Tokens that each running sequence can grow before a request that starts after it has missed loses its KV again.
constexpr int64_t kAheadTokens = 256;

class MultiResource final : public Admission {
 public:
  explicit MultiResource(const SchedulerLimits& limits)
      : slack_(limits), keep_free_(KeepFreeBlocks(limits)), block_size_(limits.block_size) {}
  void Describe(ChoiceTraits*) const override {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const override {
    const int32_t all = view.seq.known_committed[slot];
    const Standing& s = StandingOf(view, slot);
    const int64_t each = s.gives_way ? BlocksFor(kAheadTokens) : 1;
    const int64_t for_running = std::max(keep_free_, each * static_cast<int64_t>(view.running.size()));
    if (s.preemptions > 0) return {all, for_running};
    const int64_t rest = BlocksFor(all - first_chunk_end);
    const bool urgent = s.slack_ns <= s.longest_step_ns;
    if (slack_.missed_rule() != MissedRule::kBehind) {
      return urgent ? KvDemand{first_chunk_end, keep_free_} : KvDemand{first_chunk_end, for_running + rest};
    }
    const bool late = s.slack_ns < 0;
    return {first_chunk_end, (urgent && !late ? keep_free_ : for_running) + rest + WantedByPrompts(view)};
  }

 private:
  // Blocks that the running prompts that can be kept will take beyond those held before this step. A preempted one has
  // reserved them already.
  int64_t WantedByPrompts(const StepView& view) const {
    if (view.num_prefilling == 0) return 0;
    if (wanted_.step == view.step && wanted_.now_ns == view.now_ns && wanted_.running == view.running.size() &&
        wanted_.prompts == view.num_prefilling) {
      return wanted_.blocks;
    }
    wanted_ = {view.step, view.now_ns, view.running.size(), view.num_prefilling, 0};
    for (const SlotId slot : view.running) {
      if (view.seq.state[slot] != SeqState::kPrefill || view.seq.preemptions[slot] > 0) continue;
      if (slack_.GivesWay(view, slot)) continue;
      wanted_.blocks += BlocksFor(view.seq.goal_tokens[slot]) - BlocksFor(view.seq.computed_planned[slot]);
    }
    return wanted_.blocks;
  }
  int64_t BlocksFor(int64_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }

  // State of a sequence at its last query. A composition queries each candidate several times, for chunks of different
  // lengths; all inputs of the state are compared.
  struct Standing {
    StepId step = -1;
    TimeNs now_ns = 0;
    int64_t arrival = -1;
    DurationNs longest_step_ns = 0;
    DurationNs slack_ns = 0;
    SlotId slot = kNoSlot;
    int32_t preemptions = 0;
    bool gives_way = false;
  };
  const Standing& StandingOf(const StepView& view, SlotId slot) const {
    const DurationNs longest_step_ns = slack_.Window(view).longest_step_ns;
    const int64_t arrival = view.seq.arrival_order[slot];
    const int32_t preemptions = view.seq.preemptions[slot];
    Standing& s = last_[static_cast<size_t>(slot) % last_.size()];
    if (s.slot == slot && s.step == view.step && s.now_ns == view.now_ns && s.arrival == arrival &&
        s.longest_step_ns == longest_step_ns && s.preemptions == preemptions) {
      return s;
    }
    const DurationNs slack_ns = preemptions > 0 ? 0 : slack_.SlackNs(view, slot);
    s = {view.step, view.now_ns, arrival, longest_step_ns, slack_ns, slot, preemptions, slack_.GivesWay(view, slot)};
    return s;
  }

  struct Wanted {  // by the running prompts of a step
    StepId step = -1;
    TimeNs now_ns = 0;
    size_t running = 0;
    int32_t prompts = 0;  // running prompts
    int64_t blocks = 0;
  };

  const SlackModel slack_;
  const int64_t keep_free_;
  const int32_t block_size_;
  mutable Wanted wanted_;
  mutable std::array<Standing, 128> last_;  // by slot modulo its size
};

}  // namespace

std::unique_ptr<Admission> MakeMultiResource(const SchedulerLimits& limits) {
  return std::make_unique<MultiResource>(limits);
}

}  // namespace tactus::core
