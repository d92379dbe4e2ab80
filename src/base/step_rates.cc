#include "base/step_rates.h"

#include <algorithm>
#include <vector>

namespace tactus {

StepRates RatesOf(const StepTimeModel& times, int32_t step_tokens) {
  constexpr int64_t kDecodes = 32, kShort = 512, kLong = 2048;  // contexts
  constexpr int32_t kChunk = 128;                               // short chunks with little attention
  const std::vector<ChunkShape> chunks(static_cast<size_t>(std::max(1, step_tokens / kChunk)), {.tokens = kChunk});
  const double prompt_ns = static_cast<double>(times.StepTimeNs({.chunks = chunks}));
  const auto decodes_ns = [&](int64_t context) {
    return static_cast<double>(
        times.StepTimeNs({.decodes = kDecodes, .decode_context_tokens = kDecodes * context, .logit_rows = kDecodes}));
  };
  const double more_ns = std::max(0.0, decodes_ns(kLong) - decodes_ns(kShort));
  return {.prompt_token_s = prompt_ns * 1e-9 / static_cast<double>(kChunk * chunks.size()),
          .kv_token_s = more_ns * 1e-9 / static_cast<double>(kDecodes * (kLong - kShort))};
}

}  // namespace tactus
