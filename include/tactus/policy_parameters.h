// The knobs of individual scheduling policies, each declared once: flags of the group "Policies", values in
// SchedulerLimits, entries of a trace's header. docs/policies.md says what each does and where its default comes from.
#pragma once

#include <cstdint>
#include <string>

#include "tactus/option_fields.h"

namespace tactus {

struct PolicyParameters {
  double tbt_headroom = 0.9;            // of --tbt-slo, for a step's predicted time when there are pipeline stages
  double larry_lambda = 0.1;            // 1/s; infinity is fcfs
  double trail_c = 0.8;                 // of the victim's predicted output; 0: no sequence is preempted for an arrival
  int64_t ltr_starvation_steps = 2048;  // steps in the queue after which a sequence goes first
  int64_t ltr_quantum_steps = 32;       // steps of its own that it then keeps that precedence
  int64_t pia_bin_tokens = 50;          // width of a group of predicted output lengths
  double accelgen_ttft_s = 2.0;         // objective of a request that states none
  double accelgen_tbt_s = 0.1875;       // objective of a request that states none: reading speed
  double accelgen_gamma_s = 0.75;
  std::string accelgen_distance = "euclidean";
  std::string accelgen_era = "completed";
  int64_t accelgen_long_prompt = 4096;
  int64_t accelgen_pivot = 0;  // 0: from the step-time model, else 512
  bool pad = false;            // batches of composition request-level are computed up to the longest
  int64_t mlfq_queues = 5;
  int64_t mlfq_quantum_tokens = 16;  // of the highest queue; doubles from queue to queue
  DurationText mlfq_promotion{120'000'000'000};

  template <class V>
  void VisitFields(V& v) {
    v.Group("Policies");
    v.Field("tbt-headroom", tbt_headroom,
            {.min = 0.01,
             .max = 1,
             .help = "budget profile: the share of --tbt-slo that a step's predicted time may take when there are "
                     "pipeline stages"});
    v.Field("larry-lambda", larry_lambda,
            {.unit = "1/s",
             .min = 0,
             .infinite = true,
             .help = "order larry: what a second of waiting is worth against a whole KV memory; inf: first come, first "
                     "served"});
    v.Field("trail-c", trail_c,
            {.min = 0,
             .max = 1,
             .help = "preemption by-rank-recompute: a running sequence may give way to an arriving one before this "
                     "share of its predicted output is done; 0: never"});
    v.Field("ltr-starvation-steps", ltr_starvation_steps,
            {.unit = "steps",
             .min = 1,
             .max = 1 << 30,
             .help = "order rank: a sequence that has waited for so many steps goes first"});
    v.Field("ltr-quantum-steps", ltr_quantum_steps,
            {.unit = "steps",
             .min = 1,
             .max = 1 << 30,
             .help = "order rank: for so many of its own steps it is then spared from preemption"});
    v.Field("pia-bin", pia_bin_tokens,
            {.unit = "tokens",
             .min = 1,
             .max = 1 << 20,
             .help = "order grouped: predicted outputs in the same bin of this width share a batch"});
    v.Field("accelgen-ttft", accelgen_ttft_s,
            {.unit = "s",
             .min = 0.001,
             .max = 1e6,
             .help = "slack: time to first token allowed to a request that states no objective"});
    v.Field("accelgen-tbt", accelgen_tbt_s,
            {.unit = "s",
             .min = 0.0001,
             .max = 1e6,
             .help = "slack: time between tokens allowed to a request that states no objective; reading speed"});
    v.Field("accelgen-gamma", accelgen_gamma_s,
            {.unit = "s",
             .min = 0,
             .max = 1e6,
             .help = "slack-fill: requests whose slack is within this of the least are chosen among by distance"});
    v.Field("distance", accelgen_distance,
            {.choices = "euclidean|normalised",
             .help = "slack-fill: distance in tokens, or in shares of the budget and of the KV memory"});
    v.Field("era", accelgen_era,
            {.choices = "completed|prefilled|off",
             .help = "slack-fill: a long prompt starts only when those that run are so far, unless it is urgent"});
    v.Field("accelgen-long-prompt", accelgen_long_prompt,
            {.unit = "tokens", .min = 1, .max = 1 << 30, .help = "slack-fill: prompts of so many tokens are long"});
    v.Field("accelgen-pivot", accelgen_pivot,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 20,
             .help = "step size at which throughput saturates; 0: from the step-time model, else 512"});
    v.Field("pad", pad,
            {.help = "composition request-level: a batch costs what its longest sequence costs, times its size, until "
                     "it has ended"});
    v.Field("mlfq-queues", mlfq_queues,
            {.unit = "queues", .min = 1, .max = 16, .help = "order mlfq: number of queues"});
    v.Field(
        "mlfq-quantum", mlfq_quantum_tokens,
        {.unit = "tokens",
         .min = 1,
         .max = 1 << 14,
         .help =
             "order mlfq: output tokens until a sequence leaves the highest queue; twice as many in each queue below"});
    v.Field("mlfq-promotion", mlfq_promotion,
            {.unit = "duration",
             .help = "order mlfq: a sequence that has waited for so long moves up to the highest queue"});
  }
};

}  // namespace tactus
