#include "tactus/timeline.h"

#include <iterator>

namespace tactus {
namespace {

constexpr const char* kCauseNames[] = {"intake",    "in_flight", "queue",     "places",      "budget",
                                       "kv",        "sibling",   "preempted", "passed_over", "prefill",
                                       "recompute", "decode",    "elsewhere", "disk"};
static_assert(std::size(kCauseNames) == kNumCauses);

}  // namespace

bool IsPromptOf(std::string_view id, std::string_view request_id) {
  if (!id.starts_with(request_id)) return false;
  id.remove_prefix(request_id.size());
  return id.size() > 1 && id.front() == '-' && id.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

const char* CauseName(Cause cause) {
  return kCauseNames[static_cast<size_t>(cause)];
}

const char* CacheEndName(CacheEnd end) {
  constexpr const char* kNames[] = {"end_of_prompt", "unknown", "evicted",         "damaged",
                                    "no_room",       "late",    "prompt_logprobs", "caching_off"};
  return kNames[static_cast<size_t>(end)];
}

const char* ObjectiveName(Objective objective) {
  constexpr const char* kNames[] = {"ttft", "tbt", "jct"};
  return kNames[static_cast<size_t>(objective)];
}

}  // namespace tactus
