// Parses what a replica reports: the state of a Tactus server (docs/how-to/routing.md), the metrics of a vLLM server,
// or only the models of another server. Answers are not trusted: an impossible figure is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fleet/balance/fleet.h"
#include "tactus/status.h"

namespace tactus::fleet {

// Protocols of replicas, from the most informative to the least.
enum class ReplicaKind { kUnknown, kTactus, kVllm, kPlain };
const char* NameOf(ReplicaKind kind);

struct ReplicaReport {
  bool ready = true;
  std::string why;                        // reason if it is not ready, in the replica's words
  std::string model, version;             // empty: not reported
  std::vector<std::string> other_models;  // further accepted names
  ReplicaState state;
  int64_t waiting_requests = 0;
};

// Parses GET /fleet/state. kInvalidArgument names the field.
Result<ReplicaReport> ParseTactusState(std::string_view body);
// Parses GET /metrics. `prompt_tokens`: average of a request, since vLLM reports only the number of waiting requests.
Result<ReplicaReport> ParseVllmMetrics(std::string_view body, double prompt_tokens);
// Parses the model names of GET /v1/models; at least one.
Result<std::vector<std::string>> ParseModelNames(std::string_view body);

}  // namespace tactus::fleet
