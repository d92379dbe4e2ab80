// The choice of experts and the grouping of tokens by expert.
#include "compute/cuda/kernels/experts.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/router_math.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kSparseMixerReach = 0.02f;  // as Route's

struct RouteArgs {
  const float *logits, *choice_bias, *expert_scale;
  int32_t* chosen;
  float* weights;
  int64_t tokens;
  int32_t experts, groups, chosen_groups, count;
  float scale;
  RouterScore score;
  bool renormalise;
};

TACTUS_DEVICE float Infinity() {
  return __int_as_float(0x7f800000);
}
TACTUS_DEVICE float NotANumber() {
  return __int_as_float(0x7fffffff);
}
TACTUS_DEVICE int Lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// One token, by one warp. Every function is called by all lanes; what it writes to shared memory all lanes may read.
struct Router {
  const RouteArgs& a;
  Global<const float> logits;      // of all tokens
  int64_t first;                   // the token's
  Shared<float> scores, choice;    // [experts]
  Shared<float> sums, weights;     // [groups], [count]
  Shared<int32_t> open;            // [groups]
  Shared<int32_t> chosen, places;  // [count]

  // The number of the largest of values[0, n), the lowest of equals; NaN is smaller than everything.
  TACTUS_DEVICE int Largest(const Shared<float>& values, int n) const {
    float best = NotANumber();
    int at = 0x7fffffff;
    const auto take = [&](float value, int index) {
      const bool none = best != best, nan = value != value;
      const bool greater = nan || none ? none && !nan : value > best;
      const bool equal = nan || none ? none && nan : value == best;
      if (greater || (equal && index < at)) {
        best = value;
        at = index;
      }
    };
    for (int i = Lane(); i < n; i += 32) {
      const float value = values[i];
      take(value, i);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) take(__shfl_xor_sync(kAll, best, d), __shfl_xor_sync(kAll, at, d));
    return at;
  }

  // The sum of values[0, n) in ascending order.
  TACTUS_DEVICE float Sum(const Shared<float>& values, int n) const {
    float sum = 0.0f;
    for (int i = 0; i < n && Lane() == 0; ++i) {
      const float value = values[i];
      sum = Add(sum, value);
    }
    return __shfl_sync(kAll, sum, 0);
  }

  TACTUS_DEVICE void Score() const {
    for (int i = Lane(); i < a.experts; i += 32) {
      const float logit = logits[first + i];
      scores[i] = a.score == RouterScore::kSigmoid ? SigmoidOf(logit) : logit;
    }
    __syncwarp();
    if (a.score != RouterScore::kSoftmax) return;
    const float most = scores[Largest(scores, a.experts)];
    __syncwarp();
    for (int i = Lane(); i < a.experts; i += 32) {
      const float logit = scores[i];
      scores[i] = RoundedExp(Add(logit, -most));
    }
    __syncwarp();
    const float sum = Sum(scores, a.experts);
    __syncwarp();
    for (int i = Lane(); i < a.experts; i += 32) {
      const float value = scores[i];
      scores[i] = Div(value, sum);
    }
    __syncwarp();
  }

  TACTUS_DEVICE void ScoreGroups(int size) const {
    for (int g = Lane(); g < a.groups; g += 32) {
      float best = -Infinity(), second = -Infinity();
      for (int i = g * size; i < (g + 1) * size; ++i) {
        const float value = choice[i];
        if (value > best) {
          second = best;
          best = value;
        } else if (value > second) {
          second = value;
        }
      }
      sums[g] = size > 1 ? Add(best, second) : best;
      open[g] = 0;
    }
    __syncwarp();
  }

  // The choice of experts outside the best groups becomes the lowest.
  TACTUS_DEVICE void CloseGroups() const {
    if (a.chosen_groups >= a.groups) return;
    const int size = a.experts / a.groups;
    ScoreGroups(size);
    for (int n = 0; n < a.chosen_groups; ++n) {
      const int best = Largest(sums, a.groups);
      __syncwarp();
      if (Lane() == 0) {
        open[best] = 1;
        sums[best] = NotANumber();
      }
      __syncwarp();
    }
    for (int i = Lane(); i < a.experts; i += 32) {
      const int is_open = open[i / size];
      if (is_open == 0) choice[i] = -Infinity();
    }
    __syncwarp();
  }

  // Softmax of an expert's logit among the experts with a near logit that `closed` is not. Overwrites the scores.
  TACTUS_DEVICE float SparseMixerWeight(int expert, int closed) const {
    const float most = logits[first + expert];
    for (int i = Lane(); i < a.experts; i += 32) {
      const float logit = logits[first + i], size = fabsf(logit);
      const float reach = size < most ? most : size;
      const bool far = i == closed || Div(Add(most, -logit), reach) > kSparseMixerReach;
      scores[i] = far ? 0.0f : RoundedExp(Add(logit, -most));
    }
    __syncwarp();
    const float weight = Div(1.0f, Sum(scores, a.experts));
    __syncwarp();
    return weight;
  }

  TACTUS_DEVICE void Choose() const {
    for (int i = Lane(); i < a.experts; i += 32) {
      const float score = scores[i];
      choice[i] = a.choice_bias == nullptr ? score : Add(score, Global<const float>(a.choice_bias)[i]);
    }
    __syncwarp();
    CloseGroups();
    int last = -1;
    for (int n = 0; n < a.count; ++n) {
      const int expert = Largest(choice, a.experts);
      float weight = 0.0f;
      if (a.score == RouterScore::kSparseMixer) {
        weight = SparseMixerWeight(expert, last);
      } else {
        weight = scores[expert];
      }
      __syncwarp();
      if (Lane() == 0) {
        chosen[n] = expert;
        weights[n] = weight;
        choice[expert] = NotANumber();
      }
      __syncwarp();
      last = expert;
    }
  }

  // What becomes of the chosen logits.
  TACTUS_DEVICE void ScoreChosen() const {
    if (a.score != RouterScore::kChosenSoftmax && a.score != RouterScore::kChosenSigmoid) return;
    const bool softmax = a.score == RouterScore::kChosenSoftmax;
    const float most = weights[0];
    __syncwarp();
    for (int n = Lane(); n < a.count; n += 32) {
      const float logit = weights[n];
      weights[n] = softmax ? RoundedExp(Add(logit, -most)) : SigmoidOf(logit);
    }
    __syncwarp();
    if (!softmax) return;
    const float sum = Sum(weights, a.count);
    __syncwarp();
    for (int n = Lane(); n < a.count; n += 32) {
      const float value = weights[n];
      weights[n] = Div(value, sum);
    }
    __syncwarp();
  }

  // Writes the choices in the order of their experts. The scores become the weights in this order.
  TACTUS_DEVICE void Write(int64_t token) const {
    for (int n = Lane(); n < a.count; n += 32) {
      const int expert = chosen[n];
      const float weight = weights[n];
      int place = 0;
      for (int m = 0; m < a.count; ++m) {
        const int other = chosen[m];
        if (other < expert || (other == expert && m < n)) ++place;
      }
      scores[place] = weight;
      places[n] = place;
    }
    __syncwarp();
    const float sum = Sum(scores, a.count);
    const float factor = a.renormalise ? Div(a.scale, sum < 1e-20f ? 1e-20f : sum) : a.scale;
    for (int n = Lane(); n < a.count; n += 32) {
      const int expert = chosen[n], place = places[n];
      const float weight = weights[n];
      const float own = a.expert_scale == nullptr ? factor : Mul(factor, Global<const float>(a.expert_scale)[expert]);
      Global<int32_t>(a.chosen)[token * a.count + place] = expert;
      Global<float>(a.weights)[token * a.count + place] = Mul(weight, own);
    }
  }
};

// Parts of a warp's shared memory, in values of 4 bytes.
struct RouteLayout {
  int experts, groups, count;  // multiples of 4
  __host__ __device__ explicit RouteLayout(const RouteArgs& a)
      : experts((a.experts + 3) / 4 * 4), groups((a.groups + 3) / 4 * 4), count((a.count + 3) / 4 * 4) {}
  __host__ __device__ int Bytes() const { return 4 * (2 * experts + 2 * groups + 3 * count); }
};

__global__ void __launch_bounds__(kThreads) RouteRows(RouteArgs a) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (token >= a.tokens) return;
  const RouteLayout layout(a);
  int at = warp * layout.Bytes();
  const auto floats = [&](int values) {
    at += 4 * values;
    return DynamicShared<float>(at - 4 * values, values);
  };
  const auto numbers = [&](int values) {
    at += 4 * values;
    return DynamicShared<int32_t>(at - 4 * values, values);
  };
  const Shared<float> scores = floats(layout.experts), choice = floats(layout.experts);
  const Shared<float> sums = floats(layout.groups), weights = floats(layout.count);
  const Shared<int32_t> open = numbers(layout.groups), chosen = numbers(layout.count), places = numbers(layout.count);
  const Router router = {
      a, Global<const float>(a.logits), token * a.experts, scores, choice, sums, weights, open, chosen, places};
  router.Score();
  router.Choose();
  router.ScoreChosen();
  router.Write(token);
}

struct GroupArgs {
  const int32_t* chosen;
  const float* weights;
  int32_t *first, *token, *row;
  float* row_weights;
  int32_t rows, per_token, experts;
};

// A warp makes the rows of an expert: it counts the choices of experts before it, then finds its own in order.
__global__ void __launch_bounds__(kThreads) GroupRows(GroupArgs a) {
  const int expert = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32, lane = Lane();
  if (expert >= a.experts) return;
  const Global<const int32_t> chosen(a.chosen);
  int before = 0;
#pragma unroll 4
  for (int i = lane; i < a.rows; i += 32) before += chosen[i] < expert ? 1 : 0;
#pragma unroll
  for (int d = 16; d > 0; d /= 2) before += __shfl_xor_sync(kAll, before, d);
  const Global<int32_t> first(a.first), token(a.token), row(a.row);
  if (lane == 0) first[expert] = before;
  if (lane == 0 && expert == a.experts - 1) first[a.experts] = a.rows;
  int next = before;
#pragma unroll 4
  for (int base = 0; base < a.rows; base += 32) {
    const int i = base + lane;
    const bool own = i < a.rows && chosen[i] == expert;
    const unsigned votes = __ballot_sync(kAll, own);
    if (own) {
      const int place = next + __popc(votes & ((1u << lane) - 1));
      token[place] = i / a.per_token;
      row[i] = place;
      if (a.row_weights != nullptr) Global<float>(a.row_weights)[place] = Global<const float>(a.weights)[i];
    }
    next += __popc(votes);
  }
}

}  // namespace

void RouteTokens(Stream& s, const RouterSpec& spec, int64_t experts, const float* logits, const float* choice_bias,
                 const float* expert_scale, int64_t tokens, const ExpertRowsView& view) {
  RouteArgs args{};
  args.logits = logits;
  args.choice_bias = choice_bias;
  args.expert_scale = expert_scale;
  args.chosen = view.chosen;
  args.weights = view.weights;
  args.tokens = tokens;
  args.experts = static_cast<int32_t>(experts);
  args.groups = spec.groups;
  args.chosen_groups = spec.chosen_groups;
  args.count = spec.chosen;
  args.scale = spec.scale;
  args.score = spec.score;
  args.renormalise = spec.renormalise;
  Launch("RouteRows", s, RouteRows, dim3(static_cast<unsigned>((tokens + kWarps - 1) / kWarps)), kThreads,
         kWarps * RouteLayout(args).Bytes(), args);
  const GroupArgs group = {view.chosen,
                           view.weights,
                           view.first,
                           view.token,
                           view.row,
                           view.row_weights,
                           static_cast<int32_t>(tokens * spec.chosen),
                           spec.chosen,
                           args.experts};
  Launch("GroupRows", s, GroupRows, dim3(static_cast<unsigned>((experts + kWarps - 1) / kWarps)), kThreads, 0, group);
}

}  // namespace tactus::compute::cuda
