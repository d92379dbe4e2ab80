// What a router reads of a request's body: enough to choose a replica, no more. Whether the request is a good one its
// replica says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "fleet/balance/balancer.h"

namespace tactus::fleet {

inline constexpr int32_t kChunkBytes = 256;    // of prompt text that a key stands for
inline constexpr double kBytesPerToken = 4.0;  // of prompt text, until usage has told better

struct RequestView {
  std::string model;  // empty: it names none
  bool stream = false;
  int64_t choices = 1;        // that it asks for: n of each of its prompts
  int64_t prompt_bytes = 0;   // of text
  int32_t prompt_tokens = 0;  // where the prompt is token ids; else 0
  // Of each kChunkBytes of the prompt from its beginning on, each over all before it; keyed by `secret`, so that no
  // client can make two prompts meet. cache_salt is part of them.
  std::vector<Hash128> keys;

  // `bytes_per_token` of text. The request refers to this view.
  RouteRequest Route(double bytes_per_token) const;
};

// Bodies that are no JSON object have no prompt. Any thread.
RequestView ViewRequest(std::string_view body, const Hash128& secret);

}  // namespace tactus::fleet
