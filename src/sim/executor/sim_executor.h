// The executor of simulations: a step takes the time of a StepTimeModel, multiplied by step noise (step_noise.h), on a
// virtual clock; its result lists the sequences whose last token came. With several pipeline stages up to that many
// steps are in flight, each stage runs one at a time, and the stages' idle time is recorded by cause.
// Which draft tokens are accepted depends on the seed, the request and their position, not on the schedule.
// Thread rule: engine thread only. No allocation per step. A request without a stated length (Expect) ends at its
// max_tokens.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/sim_request.h"
#include "base/step_time_model.h"
#include "results/obs/histogram.h"
#include "sim/executor/step_noise.h"

namespace tactus::cost {
class CostModel;
}  // namespace tactus::cost

namespace tactus::sim {

// Why a pipeline stage was idle before a step reached it (Sarathi, section 3.2; the last two are ours).
enum class BubbleCause : uint8_t {
  kPrefills,       // PB1: consecutive steps with different prompt tokens
  kPrefillDecode,  // PB2: one has prompt tokens, the other has none
  kContexts,       // PB3: only decodes, of different number or context
  kCommunication,  // activations were in transit between stages
  kStarved,        // fewer steps in flight than stages: no step could be planned
};
inline constexpr size_t kNumBubbleCauses = 5;
const char* BubbleCauseName(BubbleCause cause);
using IdleByCause = std::array<DurationNs, kNumBubbleCauses>;

struct StageFigures {
  DurationNs busy_ns = 0;
  IdleByCause bubble_ns{};
  DurationNs bubbles() const;
};

struct SimExecutorFigures {
  std::vector<StageFigures> stages;
  // Per sequence (pp > 1): idle time of all stages before the steps that contained it, without kStarved; summed by
  // cause. None with one stage: a histogram is large, and a fleet has many executors.
  std::optional<results::Histogram> request_bubble_ns;
  IdleByCause request_bubble_sum_ns{};
  DurationNs step_ns = 0;  // sum over all steps, like the next two
  int64_t steps = 0, items = 0;
  double flops = 0, bytes = 0;  // with a meter
  // The largest value of each that occurred, to compare with the cost model's measured range.
  int64_t most_tokens = 0, most_decodes = 0, most_decode_context_tokens = 0, most_logit_rows = 0;
  ChunkShape most_chunk;
};

struct SimExecutorConfig {
  const StepTimeModel* step_time = nullptr;
  Clock* clock = nullptr;
  int32_t max_slots = 0;
  int32_t max_in_flight = 1;  // steps; at least one per stage. Those beyond the stages wait for the step before them
  bool can_chain = false;     // ExecutorTraits::can_chain
  StepNoise noise = {};
  double draft_acceptance = 0;             // acceptance probability of a draft token if those before it are accepted;
                                           // 0: none is
  uint64_t seed = 0;                       // determines which drafts are accepted; the same for all replicas
  double slowness = 1;                     // factor on the time of every step
  bool together = false;                   // steps run together with those of other replicas: Begin starts them
  const cost::CostModel* meter = nullptr;  // for flops and bytes; may be null
  // Called when a step is submitted, with its times; may be empty.
  std::function<void(const StepPlan&, TimeNs start_ns, TimeNs end_ns)> observer = {};
};

class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(const SimExecutorConfig& config);

  ExecutorTraits traits() const override;
  void Submit(const StepPlan& plan) override;
  bool Poll(StepResult* result) override;
  void SetWakeup(std::function<void()>) override {}
  TimeNs NextReadyNs() const override { return count_ == 0 ? kNever : ring_[head_].end_ns; }

  // The request with this handle ends as `request` states, until Forget. Call before the step that starts it.
  void Expect(RequestHandle handle, const SimRequest& request);
  void Forget(RequestHandle handle) { known_.erase(handle); }

  bool busy() const { return count_ > 0; }
  // With `together`: whether a step waits for Begin; its shape, and the factors on its time. The time counts as the
  // stage's busy time; where a replica without a step computes its experts, its stage counts as idle.
  bool waits() const { return count_ > 0 && ring_[head_].end_ns == kNever; }
  bool runs(TimeNs now_ns) const { return count_ > 0 && !waits() && ring_[head_].end_ns > now_ns; }
  const StepShape& shape() const { return shape_; }
  double noise() const { return noise_; }
  double slowness() const { return config_.slowness; }
  void Begin(TimeNs start_ns, DurationNs took_ns);
  // Adds the bubbles of sequences still in their slots to the histogram; call once, at the end.
  void Close();
  const SimExecutorFigures& figures() const { return figures_; }

 private:
  struct InFlight {
    const StepPlan* plan = nullptr;
    TimeNs start_ns = 0, end_ns = 0;
  };
  // Determines the causes of bubbles.
  struct Load {
    int64_t prefill_tokens = 0;
    int64_t decodes = 0;
  };
  // What the simulation knows about a request.
  struct Known {
    uint64_t text =
        0;  // decides which draft positions are accepted: its number in the workload, the same on every replica
    int32_t last_position = std::numeric_limits<int32_t>::max();  // the item that reaches this position samples the
                                                                  // last token
  };
  struct SlotState {
    Known known;
    DurationNs bubble_ns = 0;
    RequestHandle request = 0;  // pp > 1 only: the owner of these bubbles
  };

  void StartSequences(const StepPlan& plan);
  void Began(const InFlight& step);
  DurationNs Varied(DurationNs ns) const;
  void RunStages(const StepPlan& plan, const StepShape& shape, InFlight* step);
  static BubbleCause CauseOf(const Load& a, const Load& b);
  IdleByCause FirstIdle(DurationNs idle_ns, DurationNs sending_ns, const Load& awaited) const;
  IdleByCause NextIdle(const IdleByCause& late, DurationNs idle_ns, DurationNs longer_ns, DurationNs sending_ns,
                       const Load& load) const;
  void AddBubbles(size_t stage, const IdleByCause& idle);
  void Measure(const StepShape& shape, const StepPlan& plan);
  int32_t AcceptedDrafts(const StepItem& item) const;

  const SimExecutorConfig config_;
  const size_t num_stages_;
  std::vector<InFlight> ring_;
  size_t head_ = 0, count_ = 0;
  std::vector<ChunkShape> chunks_;
  StepShape shape_;                                 // of the last step
  std::unordered_map<RequestHandle, Known> known_;  // looked up, never iterated
  std::vector<SlotState> slots_;                    // up to the highest slot ever started, with room for all
  std::vector<TimeNs> stage_free_ns_;               // [stages]
  std::vector<DurationNs> stage_took_ns_;           // [stages], of the previous step
  std::vector<Load> loads_;                         // of the last `stages` steps, a ring indexed by step
  Load before_;                                     // of the previous step
  IdleByCause step_bubble_ns_{};                    // of the step being submitted, like the next
  double noise_ = 1;                                // factor on its times
  int64_t submitted_ = 0;
  SimExecutorFigures figures_;
};

}  // namespace tactus::sim
