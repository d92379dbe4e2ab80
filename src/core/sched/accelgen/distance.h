// AccelGen's choice among requests (Alg. 2): the one whose demand for compute and KV is nearest to what is left of
// both. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tactus::core {

// Tokens of compute, tokens of KV (whole blocks).
struct Resources {
  int64_t compute = 0;
  int64_t memory = 0;
};

class DistanceChoice {
 public:
  explicit DistanceChoice(size_t capacity);
  // Removes all candidates and sets the unit of each axis: {1, 1} for distances in tokens, capacities for shares.
  void Reset(Resources unit);
  // `id` is the caller's and ascends: among equally near candidates the first added is taken.
  void Add(int32_t id, Resources demand);
  // Removes and returns the candidate that fits `left` and minimises (left.compute - compute)^2 + (left.memory -
  // memory)^2, each axis in its unit; -1: none fits. Candidates that do not fit are dropped: `left` never grows.
  int32_t TakeNearest(Resources left);

 private:
  double per_compute_ = 1, per_memory_ = 1;
  struct Candidate {
    double compute, memory;
    int32_t id;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace tactus::core
