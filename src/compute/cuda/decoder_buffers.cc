#include "compute/cuda/decoder_buffers.h"

#include <algorithm>

namespace tactus::compute::cuda {
namespace {

struct Widen {
  BufferWidths& w;
  void Inner(int64_t n) { w.inner = std::max(w.inner, n), w.x = std::max(w.x, n); }
  void operator()(const AttentionBlock& a) {
    w.q = std::max(w.q, a.q_width());
    w.kv = std::max(w.kv, a.kv_width());
    w.group = std::max(w.group, a.heads / std::max<int64_t>(a.kv_heads, 1));
    w.head_dim = std::max(w.head_dim, a.head_dim);
    w.x = std::max(w.x, a.q_width());
  }
  void operator()(const GatedFeedForwardBlock& f) { Inner(f.inner); }
  void operator()(const FeedForwardBlock& f) { Inner(f.inner); }
  void operator()(const LayerInputBlock& f) { Inner(f.inner); }
  void operator()(const LowRankBlock& b) { Inner(b.rank); }
  void operator()(const StreamsBlock&) {}
  void operator()(const ExpertsBlock& e) {
    w.experts = std::max(w.experts, e.experts);
    w.expert_rows = std::max<int64_t>(w.expert_rows, e.router.chosen);
    w.inner = std::max(w.inner, e.router.chosen * e.expert.inner);
    w.shared_inner = std::max(w.shared_inner, e.shared_inner);
    w.x = std::max(w.x, e.shared_inner);
  }
};

}  // namespace

BufferWidths::BufferWidths(const ModelConfig& c)
    : hidden(c.hidden_size), x(c.hidden_size), layer_inputs(c.layer_inputs_width()), streams(c.streams) {
  for (const Layer& layer : c.layers) {
    for (const LayerBlock& b : layer) std::visit(Widen{*this}, b.block);
  }
}

bool KeepsInputs(const ModelConfig& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [](const Layer& layer) {
    return std::any_of(layer.begin(), layer.end(), [](const LayerBlock& b) { return b.parallel || b.joint.exists(); });
  });
}

}  // namespace tactus::compute::cuda
