#include "compute/config/block_work.h"

#include <algorithm>
#include <cmath>

namespace tactus::compute {
namespace {

int64_t KvOf(const AttentionBlock& a) {
  return a.stores_kv() ? 2 * a.kv_width() : 0;
}
template <class Other>
int64_t KvOf(const Other&) {
  return 0;
}

// Inputs of the activation, and its output.
int64_t InnerOf(const AttentionBlock&) {
  return 0;
}
int64_t InnerOf(const GatedFeedForwardBlock& f) {
  return 3 * f.inner;
}
int64_t InnerOf(const FeedForwardBlock& f) {
  return 2 * f.inner;
}
int64_t InnerOf(const LayerInputBlock& f) {
  return 3 * f.inner;
}
int64_t InnerOf(const LowRankBlock& b) {
  return b.rank;
}
int64_t InnerOf(const StreamsBlock& b) {
  return b.streams * b.streams;
}
int64_t InnerOf(const ExpertsBlock& e) {
  return 3 * e.inner_total();
}

AttentionBlock ShareOf(AttentionBlock a, int64_t ranks, int64_t) {
  a.heads /= ranks;
  a.kv_heads = std::max<int64_t>(1, a.kv_heads / ranks);
  return a;
}
ExpertsBlock ShareOf(ExpertsBlock e, int64_t ranks, int64_t expert_ranks) {
  e.experts = (e.experts + expert_ranks - 1) / expert_ranks;
  e.expert.inner /= ranks;
  e.shared_inner /= ranks;
  return e;
}
// Every rank has the whole.
LowRankBlock ShareOf(const LowRankBlock& b, int64_t, int64_t) {
  return b;
}
StreamsBlock ShareOf(const StreamsBlock& b, int64_t, int64_t) {
  return b;
}
template <class FeedForward>
FeedForward ShareOf(FeedForward f, int64_t ranks, int64_t) {
  f.inner /= ranks;
  return f;
}

}  // namespace

double ExpectedExperts(double experts, double share, double tokens) {
  return experts * (1 - std::pow(1 - share, tokens));
}

double BlockWork::ElementsRead(double tokens) const {
  if (expert == 0) return static_cast<double>(every_token);
  const auto n = static_cast<double>(experts);
  return static_cast<double>(every_token) +
         ExpectedExperts(n, static_cast<double>(chosen) / n, tokens) * static_cast<double>(expert);
}

BlockWork WorkOf(const Block& block, int64_t hidden) {
  BlockWork work;
  work.kv = std::visit([](const auto& b) { return KvOf(b); }, block);
  work.inner = std::visit([](const auto& b) { return InnerOf(b); }, block);
  if (const auto* experts = std::get_if<ExpertsBlock>(&block)) {
    work.experts = experts->experts;
    work.chosen = experts->router.chosen;
  }
  for (const TensorDecl& t : std::visit([&](const auto& b) { return b.Tensors(hidden); }, block)) {
    if (!IsMatrix(t.role)) continue;
    if (t.expert < 0) work.every_token += t.elements();
    if (t.expert == 0) work.expert += t.elements();  // experts are alike
  }
  return work;
}

BlockWork WorkOf(const Layer& layer, int64_t hidden) {
  BlockWork sum;
  for (const LayerBlock& b : layer) {
    const BlockWork work = WorkOf(b.block, hidden);
    sum.every_token += work.every_token;
    sum.kv += work.kv;
    sum.inner = std::max(sum.inner, work.inner);
    if (work.expert == 0) continue;  // a layer has one mixture of experts at most
    sum.expert = work.expert, sum.experts = work.experts, sum.chosen = work.chosen;
  }
  return sum;
}

Layer ShareOf(const Layer& layer, int64_t ranks, int64_t expert_ranks) {
  Layer share = layer;
  for (LayerBlock& b : share) {
    b.block = std::visit([&](const auto& block) { return Block(ShareOf(block, ranks, expert_ranks)); }, b.block);
  }
  return share;
}

int64_t ActiveParameters(const ModelConfig& config) {
  int64_t unused = 0;
  for (const Layer& layer : config.layers) {
    const ExpertsBlock* const e = ExpertsOf(layer);
    if (e == nullptr) continue;
    int64_t expert = 0;
    for (const TensorDecl& t : e->expert.Tensors(config.hidden_size)) expert += t.elements();
    unused += (e->experts - e->router.chosen) * expert;
  }
  return config.NumParameters() - unused;
}

std::vector<LayerGroup> GroupLayers(const std::vector<Layer>& layers) {
  std::vector<LayerGroup> groups;
  for (size_t l = 0; l < layers.size(); ++l) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& g) { return g.layer == layers[l]; });
    if (group == groups.end()) group = groups.insert(groups.end(), {layers[l], {}});
    group->at.push_back(static_cast<int64_t>(l));
  }
  return groups;
}

}  // namespace tactus::compute
