#include "tactus/timeline.h"

#include <iterator>

namespace tactus {
namespace {

constexpr const char* kCauseNames[] = {"intake",  "in_flight", "queue",       "places",  "budget",    "kv",
                                       "sibling", "preempted", "passed_over", "prefill", "recompute", "decode"};
static_assert(std::size(kCauseNames) == kNumCauses);

}  // namespace

const char* CauseName(Cause cause) {
  return kCauseNames[static_cast<size_t>(cause)];
}

const char* ObjectiveName(Objective objective) {
  constexpr const char* kNames[] = {"ttft", "tbt", "jct"};
  return kNames[static_cast<size_t>(objective)];
}

}  // namespace tactus
