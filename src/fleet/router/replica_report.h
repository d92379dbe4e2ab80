// What a replica says of itself, read from what it answers: the state of a Tactus server (docs/routing.md), the metrics
// of a vLLM server, or that there is a server at all. Answers are not believed: a figure that cannot be is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fleet/balance/fleet.h"
#include "tactus/status.h"

namespace tactus::fleet {

// How a replica is asked, from who tells most to who tells least.
enum class ReplicaKind { kUnknown, kTactus, kVllm, kPlain };
const char* NameOf(ReplicaKind kind);

struct ReplicaReport {
  bool ready = true;
  std::string why;                        // it is not ready, in its own word
  std::string model, version;             // empty: it does not say
  std::vector<std::string> other_models;  // names that it answers to beside `model`
  ReplicaState state;
  int64_t waiting_requests = 0;
};

// Of GET /fleet/state. kInvalidArgument names the field.
Result<ReplicaReport> ParseTactusState(std::string_view body);
// Of GET /metrics. `prompt_tokens`: of a request on average, since vLLM tells only how many requests wait.
Result<ReplicaReport> ParseVllmMetrics(std::string_view body, double prompt_tokens);
// The models' names of GET /v1/models; one at least.
Result<std::vector<std::string>> ParseModelNames(std::string_view body);

}  // namespace tactus::fleet
