// The executor of simulations: a step takes as long as a StepTimeModel says, times a factor where steps vary
// (step_noise.h), on a virtual clock, and answers "as planned" with the sequences whose last token came. With several
// pipeline stages up to that many steps are in flight, each stage works on one at a time, and what stages stand idle is
// accounted by cause.
//
// Which guesses are right follows from the seed, the request and their position, whatever the schedule.
//
// Thread rule: engine thread only. Nothing allocates per step. A request whose length was not stated (Expect) ends by
// its max_tokens.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/sim_request.h"
#include "base/step_time_model.h"
#include "results/obs/histogram.h"
#include "sim/step_noise.h"

namespace tactus::cost {
class CostModel;
}  // namespace tactus::cost

namespace tactus::sim {

// Why a pipeline stage stood idle before a step reached it (Sarathi, section 3.2; the last two are ours).
enum class BubbleCause : uint8_t {
  kPrefills,       // PB1: neighbouring steps with different prompt tokens
  kPrefillDecode,  // PB2: one has prompt tokens, the other has none
  kContexts,       // PB3: only decodes, of different number or context
  kCommunication,  // activations were under way between stages
  kStarved,        // fewer steps in flight than stages: nothing could be planned
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
  // Per sequence (pp > 1): idle time of all stages before the steps that it was in, without kStarved; by cause, summed.
  results::Histogram request_bubble_ns;
  IdleByCause request_bubble_sum_ns{};
  DurationNs step_ns = 0;  // sum over all steps, as are the next two
  int64_t steps = 0, items = 0;
  double flops = 0, bytes = 0;  // with a meter
  // The largest of each that was asked for: what a cost model's range is compared with.
  int64_t most_tokens = 0, most_decodes = 0, most_decode_context_tokens = 0, most_logit_rows = 0;
  ChunkShape most_chunk;
};

struct SimExecutorConfig {
  const StepTimeModel* step_time = nullptr;
  Clock* clock = nullptr;
  int32_t max_slots = 0;
  StepNoise noise = {};
  double draft_acceptance = 0;             // the chance that a guess is right if those before it are; 0: takes none
  uint64_t seed = 0;                       // of which guesses are right; of all replicas the same
  double slowness = 1;                     // every step takes so many times as long
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

  // The request with this handle ends as it says, until Forget. Before the step that starts it.
  void Expect(RequestHandle handle, const SimRequest& request);
  void Forget(RequestHandle handle) { known_.erase(handle); }

  bool busy() const { return count_ > 0; }
  // Takes the bubbles of sequences that have not been replaced yet into the histogram; call once, at the end.
  void Close();
  const SimExecutorFigures& figures() const { return figures_; }

 private:
  struct InFlight {
    const StepPlan* plan = nullptr;
    TimeNs start_ns = 0, end_ns = 0;
  };
  // What the causes of bubbles are told from.
  struct Load {
    int64_t prefill_tokens = 0;
    int64_t decodes = 0;
  };
  // What is known of a request.
  struct Known {
    uint64_t text =
        0;  // whose guesses are right at which positions: its number in the workload, the same at any replica
    int32_t last_position = std::numeric_limits<int32_t>::max();  // the item that reaches it samples the last token
  };
  struct SlotState {
    Known known;
    DurationNs bubble_ns = 0;
    RequestHandle request = 0;  // pp > 1 only: whose bubbles these are
  };

  void StartSequences(const StepPlan& plan);
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
  std::unordered_map<RequestHandle, Known> known_;  // looked up, never gone through
  std::vector<SlotState> slots_;                    // [max_slots]
  std::vector<TimeNs> stage_free_ns_;               // [stages]
  std::vector<DurationNs> stage_took_ns_;           // [stages], of the step before
  std::vector<Load> loads_;                         // of the last `stages` steps, a ring by step
  Load before_;                                     // of the step before
  IdleByCause step_bubble_ns_{};                    // of the step being submitted, as is the next
  double factor_ = 1;                               // that its times are multiplied by
  int64_t submitted_ = 0;
  SimExecutorFigures figures_;
};

}  // namespace tactus::sim
