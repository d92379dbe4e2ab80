// What `tactus profile` has measured of steps in two parts (--overlap nano), in a profile's remarks. Thread rule: plain
// functions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/overlap_fit.h"
#include "tactus/status.h"

namespace tactus::cost {

struct MeasuredOverlap {
  double interference = kNoOverlap.linear;  // OverlapFit::linear of products beside attention
  int64_t least_split_tokens = 1;           // of a step that is faster in two parts
  bool operator==(const MeasuredOverlap&) const = default;
};

// The times of one step.
struct SplitSample {
  int64_t tokens = 0;
  OverlapTimes times;
};

// The median interference, and the limit on tokens with the least time of all samples: each counts as a share of its
// time in one part. Nothing: no samples.
std::optional<MeasuredOverlap> OverlapOf(std::span<const SplitSample> samples);

// Writes to and reads from a profile's remarks. Nothing: not measured. kDataLoss names an invalid value.
void NoteOverlap(const MeasuredOverlap& overlap, std::map<std::string, std::string>* remarks);
Result<std::optional<MeasuredOverlap>> NotedOverlap(const std::map<std::string, std::string>& remarks);

}  // namespace tactus::cost
