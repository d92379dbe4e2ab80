#include "offline/plan/output_lengths.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace tactus::offline {
namespace {

// A child of the root, with its number of requests of unknown length.
struct Top {
  int32_t node = 0;
  int32_t requests = 0;
  int32_t sampled = 0;
};

uint64_t DrawOf(uint64_t seed, int32_t request) {
  const auto bits = Philox4x32({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                               {static_cast<uint32_t>(request), 0, 0, 0});
  return uint64_t{bits[1]} << 32 | bits[0];
}

// Calls visit(request) for each request of unknown length below the node.
template <class Visit>
void ForEachUnknown(const PrefixTree& tree, const PromptSet& prompts, int32_t node, Visit visit) {
  for (int32_t i = node; i < tree[node].end; ++i) {
    if (tree[i].is_leaf() && !prompts.output_is_known(tree[i].request)) visit(tree[i].request);
  }
}

}  // namespace

std::vector<int32_t> ChooseSample(const PrefixTree& tree, const PromptSet& prompts, const SampleOptions& options) {
  const auto before = [&](int32_t a, int32_t b) {
    const uint64_t x = DrawOf(options.seed, a), y = DrawOf(options.seed, b);
    return x != y ? x < y : a < b;
  };
  // The share of the whole job, drawn without regard to the tree: tops of one request each are sampled like any other.
  std::vector<int32_t> sample;
  ForEachUnknown(tree, prompts, 0, [&](int32_t request) { sample.push_back(request); });
  if (sample.empty()) return sample;
  const double wanted = std::ceil(options.share * static_cast<double>(sample.size()));
  const auto count = static_cast<size_t>(std::clamp(wanted, 1.0, static_cast<double>(sample.size())));
  std::nth_element(sample.begin(), sample.begin() + static_cast<ptrdiff_t>(count - 1), sample.end(), before);
  sample.resize(count);
  const int32_t last_drawn = sample.back();

  // Then add requests to tops with too few, the largest top first, at most as many as were drawn.
  std::vector<Top> tops;
  tree.ForEachChild(0, [&](int32_t child) {
    Top top{.node = child};
    ForEachUnknown(tree, prompts, child, [&](int32_t request) {
      ++top.requests;
      if (!before(last_drawn, request)) ++top.sampled;
    });
    const int32_t least = std::min(top.requests, options.least_per_top);
    if (top.requests > 1 && top.sampled < least) tops.push_back(top);
  });
  std::stable_sort(tops.begin(), tops.end(), [](const Top& a, const Top& b) { return a.requests > b.requests; });
  auto extra = std::max(static_cast<int32_t>(count), options.least_per_top);
  std::vector<int32_t> requests;
  for (const Top& top : tops) {
    if (extra <= 0) break;
    requests.clear();
    ForEachUnknown(tree, prompts, top.node, [&](int32_t request) { requests.push_back(request); });
    std::sort(requests.begin(), requests.end(), before);
    const int32_t more = std::min(extra, std::min(top.requests, options.least_per_top) - top.sampled);
    sample.insert(sample.end(), requests.begin() + top.sampled, requests.begin() + top.sampled + more);
    extra -= more;
  }
  std::sort(sample.begin(), sample.end());
  return sample;
}

std::vector<int32_t> EstimateOutputs(const PrefixTree& tree, const PromptSet& prompts,
                                     const std::vector<int32_t>& measured) {
  struct Samples {
    int64_t tokens = 0;
    int32_t ended = 0, running = 0;
  };
  const auto measured_of = [&](int32_t request) {
    return measured.empty() ? 0 : measured[static_cast<size_t>(request)];
  };
  std::vector<Samples> samples(static_cast<size_t>(tree.size()));
  for (int32_t i = tree.size(); i-- > 0;) {
    const TreeNode& node = tree[i];
    Samples& own = samples[static_cast<size_t>(i)];
    if (node.is_leaf() && !prompts.output_is_known(node.request)) {
      const int32_t tokens = measured_of(node.request);
      own = {std::abs(tokens), tokens > 0, tokens < 0};
    }
    if (node.parent < 0) continue;
    Samples& parent = samples[static_cast<size_t>(node.parent)];
    parent.tokens += own.tokens;
    parent.ended += own.ended;
    parent.running += own.running;
  }
  std::vector<int32_t> outputs(static_cast<size_t>(prompts.size()), 0);
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TreeNode& node = tree[i];
    Samples& own = samples[static_cast<size_t>(i)];
    const bool has_ended = node.is_leaf() && own.ended > 0;
    // A running request does not estimate its own length.
    const bool silent = own.ended == 0 && (own.running == 0 || node.is_leaf());
    if (silent && node.parent >= 0) own = samples[static_cast<size_t>(node.parent)];
    if (!node.is_leaf()) continue;
    const int32_t most = prompts.max_output_tokens(node.request);
    int32_t& output = outputs[static_cast<size_t>(node.request)];
    if (prompts.output_is_known(node.request) || own.ended == 0) {
      output = most;
    } else if (has_ended) {
      output = static_cast<int32_t>(own.tokens);
    } else {
      const double mean = static_cast<double>(own.tokens) / own.ended;
      const int64_t least = std::max(1, -measured_of(node.request));
      output = static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(std::llround(mean), least), most));
    }
  }
  return outputs;
}

}  // namespace tactus::offline
