// An upper bound on how many requests any schedule can serve within their objectives. The oracle (sim/oracle/oracle.h)
// gives a good schedule, but no proof that it is the best. The relaxation. A request within its objectives needs
// machine time in certain spans. Its prompt must be computed between its arrival and its latest allowed first token.
// Its i-th decode runs after i - 1 other decodes, and before the i-th allowed gap ends and early enough for the rest of
// the answer. Every step takes at least a StepFloor, so each token, each KV token read and each query-key pair has a
// minimum time. The fixed part of a floor (reading the weights) is shared by the sequences of the step: together they
// hold at most the KV memory and number at most --max-num-seqs, so a sequence with x tokens of KV is charged at least
// the share x / memory, and at least 1 / max_num_seqs. The charges of one step sum to at most the step's time. So over
// any time span [s, t], under any one way of charging, the charges that must fall into the span sum to at most t - s
// per replica. That is a row of a packing problem, and its bound (packing_bound.h) holds for every schedule: any order,
// step sizes, chunks, preemption, replica choice and knowledge of the future. Only some spans are considered, which
// makes the bound looser but never wrong. Not modelled, so the bound may be above the optimum: steps cannot be
// interrupted; when requests miss, fewer sequences share a step's fixed time; KV stays allocated between a sequence's
// steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/step_time_model.h"
#include "tactus/request.h"

namespace tactus::sim {

// A request with objectives, as submitted to the engine.
struct AskedRequest {
  int64_t arrival_ns = 0;
  int64_t prompt_tokens = 0;  // >= 1
  int64_t output_tokens = 1;  // tokens of the complete answer
  int64_t shared_tokens = 0;  // prompt tokens that another request may have computed
  Slo slo;
};

struct KeptBoundMachine {
  const StepTimeModel* step_time = nullptr;
  int64_t kv_tokens = 0;     // capacity of one replica
  int32_t max_num_seqs = 1;  // sequences per step
  int64_t context = 1;       // longest sequence in tokens
  double replicas = 1;       // number of replicas, weighted by speed
  double quickest = 1;       // slowness of the fastest replica: factor on its step times
};

// Progress: rows of the packing problem are added in rounds until none is violated.
struct KeptBoundProgress {
  int32_t round = 0, most_rounds = 0;
};

// `keep_going` is called many times per round and may be null. Absent: it returned false.
std::optional<int64_t> MostKept(std::span<const AskedRequest> requests, const KeptBoundMachine& machine,
                                const std::function<bool(const KeptBoundProgress&)>& keep_going = {});

}  // namespace tactus::sim
