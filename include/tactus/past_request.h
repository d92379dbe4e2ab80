// A request that has ended, without its text: what a simulation needs to repeat it, and how it went.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tactus/request.h"

namespace tactus {

struct PastRequest {
  int64_t arrival_ns = 0;  // by the engine's clock
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int32_t priority = 0;
  Slo slo;
  std::string slo_class;
  FinishReason finish = FinishReason::kNone;
  bool refused = false;                                   // by the gate
  bool late = false;                                      // an objective was missed
  int64_t ttft_ns = -1, e2e_ns = 0, longest_gap_ns = -1;  // -1: no token, no gap
  int32_t gaps = 0, late_gaps = 0;
  // One per leading whole block of kTextBlockTokens tokens of the prompt: equal leading ids mean equal text.
  std::vector<int64_t> text_ids;
};

inline constexpr int32_t kTextBlockTokens = 512;

}  // namespace tactus
