// Fields that a router reads from a request's body to choose a replica. The replica validates the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "fleet/balance/balancer.h"

namespace tactus::fleet {

inline constexpr int32_t kChunkBytes = 256;    // prompt text per key
inline constexpr double kBytesPerToken = 4.0;  // of prompt text, until usage has been measured

struct RequestView {
  std::string model;  // empty: not stated
  bool stream = false;
  int64_t choices = 1;        // number of answers: n for each of its prompts
  int64_t prompt_bytes = 0;   // of text
  int32_t prompt_tokens = 0;  // if the prompt is token ids; otherwise 0
  // One key for each kChunkBytes of the prompt, a hash of all text up to there; keyed by `secret`, so that clients
  // cannot construct collisions. cache_salt is included.
  std::vector<Hash128> keys;

  // Assumes `bytes_per_token` of text. The request refers to this view.
  RouteRequest Route(double bytes_per_token) const;
};

// Bodies that are not JSON objects have no prompt. Any thread.
RequestView ViewRequest(std::string_view body, const Hash128& secret);

}  // namespace tactus::fleet
