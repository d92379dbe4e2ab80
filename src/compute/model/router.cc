#include "compute/model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/config/config.h"

namespace tactus::compute {
namespace {

constexpr float kClosed = -std::numeric_limits<float>::infinity();
constexpr float kSparseMixerReach = 0.02f;  // twice the published models' router_jitter_noise

// The number of the largest of scores[0, count); NaN is smaller than everything.
int32_t Largest(const float* scores, int64_t count) {
  int32_t best = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (scores[i] > scores[best] || (std::isnan(scores[best]) && !std::isnan(scores[i])))
      best = static_cast<int32_t>(i);
  }
  return best;
}

// Scores of experts outside the best groups become the lowest.
void CloseGroups(const RouterSpec& spec, int64_t experts, float* scores) {
  if (spec.chosen_groups >= spec.groups) return;
  const int64_t size = experts / spec.groups;
  float sums[kMaxExperts];
  for (int64_t g = 0; g < spec.groups; ++g) {
    float first = kClosed, second = kClosed;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (scores[i] > first) {
        second = first;
        first = scores[i];
      } else if (scores[i] > second) {
        second = scores[i];
      }
    }
    sums[g] = size > 1 ? first + second : first;
  }
  bool open[kMaxExperts] = {};
  for (int32_t n = 0; n < spec.chosen_groups; ++n) {
    const int32_t best = Largest(sums, spec.groups);
    open[best] = true;
    sums[best] = std::numeric_limits<float>::quiet_NaN();
  }
  for (int64_t i = 0; i < experts; ++i) {
    if (!open[i / size]) scores[i] = kClosed;
  }
}

// scores = what the router makes of its logits.
void Score(const RouterSpec& spec, int64_t experts, const float* logits, float* scores) {
  if (spec.score == RouterScore::kSigmoid) {
    for (int64_t i = 0; i < experts; ++i) scores[i] = Sigmoid(logits[i]);
  } else if (spec.score == RouterScore::kSoftmax) {
    const float most = logits[Largest(logits, experts)];
    float sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += scores[i] = std::exp(logits[i] - most);
    for (int64_t i = 0; i < experts; ++i) scores[i] /= sum;
  } else {
    std::copy(logits, logits + experts, scores);
  }
}

// Softmax of logits[most] among the experts with a near logit that `closed` is not; closed < 0: all are open.
float SparseMixerWeight(int64_t experts, const float* logits, int32_t most, int32_t closed) {
  float sum = 0;
  for (int64_t i = 0; i < experts; ++i) {
    const float reach = std::max(std::fabs(logits[i]), logits[most]);
    if (i == closed || (logits[most] - logits[i]) / reach > kSparseMixerReach) continue;
    sum += std::exp(logits[i] - logits[most]);
  }
  return 1.0f / sum;
}

void SortByExpert(int32_t count, int32_t* chosen, float* weights) {
  for (int32_t i = 1; i < count; ++i) {
    for (int32_t j = i; j > 0 && chosen[j] < chosen[j - 1]; --j) {
      std::swap(chosen[j], chosen[j - 1]);
      std::swap(weights[j], weights[j - 1]);
    }
  }
}

}  // namespace

int64_t RouteScratchBytes(int64_t experts) {
  return 2 * experts * static_cast<int64_t>(sizeof(float));
}

void Route(const RouterSpec& spec, int64_t experts, const float* logits, const float* choice_bias,
           const float* expert_scale, float* scratch, int32_t* chosen, float* weights) {
  float* const scores = scratch;
  float* const choice = scratch + experts;
  Score(spec, experts, logits, scores);
  for (int64_t i = 0; i < experts; ++i) choice[i] = scores[i] + (choice_bias != nullptr ? choice_bias[i] : 0.0f);
  CloseGroups(spec, experts, choice);
  for (int32_t n = 0; n < spec.chosen; ++n) {
    chosen[n] = Largest(choice, experts);
    weights[n] = spec.score == RouterScore::kSparseMixer
                     ? SparseMixerWeight(experts, logits, chosen[n], n > 0 ? chosen[n - 1] : -1)
                     : scores[chosen[n]];
    choice[chosen[n]] = std::numeric_limits<float>::quiet_NaN();
  }
  if (spec.score == RouterScore::kChosenSoftmax) {
    const float most = weights[0];
    float sum = 0;
    for (int32_t n = 0; n < spec.chosen; ++n) sum += weights[n] = std::exp(weights[n] - most);
    for (int32_t n = 0; n < spec.chosen; ++n) weights[n] /= sum;
  }
  for (int32_t n = 0; n < spec.chosen && spec.score == RouterScore::kChosenSigmoid; ++n) {
    weights[n] = Sigmoid(weights[n]);
  }
  SortByExpert(spec.chosen, chosen, weights);
  float sum = 0;
  for (int32_t n = 0; n < spec.chosen; ++n) sum += weights[n];
  const float factor = spec.renormalise ? spec.scale / std::max(sum, 1e-20f) : spec.scale;
  for (int32_t n = 0; n < spec.chosen; ++n) {
    weights[n] *= expert_scale != nullptr ? factor * expert_scale[chosen[n]] : factor;
  }
}

}  // namespace tactus::compute
