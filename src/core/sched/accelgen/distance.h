// AccelGen's choice among requests (Alg. 2): whose demand for compute and KV lies nearest to what is left of both.
// Pure.
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
  // Empty, with the unit of each axis: {1, 1} for the plain distance in tokens, capacities for one in shares.
  void Reset(Resources unit);
  // `id` is the caller's and ascends: of equally near candidates the first added is taken.
  void Add(int32_t id, Resources demand);
  // Takes out the candidate that fits `left` and minimises (left.compute - compute)^2 + (left.memory - memory)^2, each
  // axis in its unit; -1: none fits. One that does not fit is dropped: what is left never grows.
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
