// How many requests any schedule at all could keep: an upper bound to measure schedulers by, where the oracle
// (sim/oracle.h) is a good result that is not proven to be the best.
//
// The relaxation. A request that keeps its objectives needs machine time inside certain spans. Its prompt's tokens are
// computed between its arrival and the latest first token that it allows; its i-th decode not before i - 1 other
// decodes have run after the prompt, and not after the i-th gap that it allows, or so that the rest still ends in time.
// Every step takes at least a StepFloor, so each token, each token of KV that is read and each pair of a query and a
// key has a least time. The fixed part of a floor (reading the weights) is shared by those in the step: all of them
// together hold no more KV than there is, and are no more than --max-num-seqs, so a sequence with x tokens of KV is
// charged at least the share x / memory of it, and at least 1 / max_num_seqs. What requests are charged for one step
// adds up to no more than the step's time. So over any span of time [s, t], and under any one way of charging, the kept
// requests' charges that must fall into the span are at most t - s for each replica. That is a row of a packing
// problem, and a bound of it (packing_bound.h) is a bound for every schedule: order, step sizes, chunks, preemption,
// which replica and what is known in advance are all left free. Only some spans are looked at, which makes the bound
// weaker and never wrong.
//
// What is left out, so that the bound may be above what is possible: that a step cannot be interrupted, that few
// sequences share a step's fixed time where others miss, KV that is held between a sequence's own steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/step_time_model.h"
#include "tactus/request.h"

namespace tactus::sim {

// A request that states objectives, as it reaches the engine.
struct AskedRequest {
  int64_t arrival_ns = 0;
  int64_t prompt_tokens = 0;  // >= 1
  int64_t output_tokens = 1;  // that end its answer
  int64_t shared_tokens = 0;  // of the prompt: another request may have computed them
  Slo slo;
};

struct KeptBoundMachine {
  const StepTimeModel* step_time = nullptr;
  int64_t kv_tokens = 0;     // of a replica
  int32_t max_num_seqs = 1;  // in a step
  int64_t context = 1;       // tokens of a sequence
  double replicas = 1;       // of the speed of step_time, together
  double quickest = 1;       // times as long a step, at the quickest of them
};

// Rows of the packing problem are found round by round, until none is broken any more.
struct KeptBoundProgress {
  int32_t round = 0, most_rounds = 0;
};

// `keep_going` is asked many times in each round and may be null. Nothing: it has said no.
std::optional<int64_t> MostKept(std::span<const AskedRequest> requests, const KeptBoundMachine& machine,
                                const std::function<bool(const KeptBoundProgress&)>& keep_going = {});

}  // namespace tactus::sim
