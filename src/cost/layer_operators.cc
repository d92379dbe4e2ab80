#include "cost/layer_operators.h"

#include <algorithm>

namespace tactus::cost {
namespace {

using compute::AttentionBlock, compute::ExpertsBlock, compute::FeedForwardBlock, compute::GatedFeedForwardBlock,
    compute::LayerBlock;

// Norms that add the last block's output to the residual stream, norms of an output alone, sums that no norm includes,
// and all-reduces: one for each row of parallel blocks, which one sum combines.
struct BetweenBlocks {
  int32_t norms = 0, post_norms = 0, sums = 0, all_reduces = 0;
};

// Whether ranks have parts of the block's sum, which they add.
bool IsDivided(const LayerBlock& b, int64_t hidden) {
  const std::vector<compute::TensorDecl> tensors = b.Tensors(hidden);
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const compute::TensorDecl& t) { return t.split == compute::Split::kCols; });
}

BetweenBlocks Between(const compute::Layer& layer, int64_t hidden) {
  BetweenBlocks n;
  const LayerBlock* before = nullptr;
  bool reduced = false;  // the row of parallel blocks has its all-reduce
  for (const LayerBlock& b : layer) {
    const bool same_norm = b.parallel && before != nullptr && b.norm == before->norm;
    if (b.norm.exists() && !same_norm) ++(b.joint.exists() ? n.post_norms : n.norms);
    if (b.post.exists()) ++(b.norm.exists() ? n.post_norms : n.norms);
    if (b.joint.exists()) ++n.post_norms, ++n.sums;
    if (b.parallel) ++n.sums;
    reduced = b.parallel && reduced;
    if (!reduced && IsDivided(b, hidden)) {
      ++n.all_reduces;
      reduced = true;
    }
    before = &b;
  }
  return n;
}

class Operators {
 public:
  explicit Operators(const LayerSetting& setting)
      : s_(setting), o_(*setting.times), hidden_bytes_(static_cast<double>(setting.hidden) * kActivationBytes) {}

  void Add(const AttentionBlock& a) {
    const double q_bytes = static_cast<double>(a.q_width()) * kActivationBytes;
    const double kv_bytes = static_cast<double>(a.kv_width()) * kActivationBytes;  // of K, or of V
    const int64_t kv_products = !a.stores_kv() ? 0 : a.k_is_v ? 1 : 2;
    Product("QKV product", a.q_width() + kv_products * a.kv_width(), s_.hidden);
    Product("output product", s_.hidden, a.q_width());
    if (a.rope != compute::RopeChoice::kNone) Small(&rest_, "RoPE", Elementwise::kRope, 2 * (q_bytes + kv_bytes));
    if (a.qk_norm != compute::QkNorm::kNone) Small(&rest_, "QK norm", Elementwise::kNorm, 2 * (q_bytes + kv_bytes));
    if (!a.stores_kv()) return;
    Small(&rest_, "KV write", Elementwise::kKvWrite, 2 * kv_bytes * (1 + s_.kv_bytes / kActivationBytes));
  }
  void Add(const GatedFeedForwardBlock& f) { Gated(f.inner, "gate and up products", "down product", "activation"); }
  void Add(const FeedForwardBlock& f) {
    Product("up product", f.inner, s_.hidden);
    Product("down product", s_.hidden, f.inner);
    Small(&rest_, "activation", Elementwise::kActivation, 2 * static_cast<double>(f.inner) * kActivationBytes);
  }
  void Add(const compute::LayerInputBlock& f) {
    Product("layer input gate", f.inner, s_.hidden);
    Product("layer input product", s_.hidden, f.inner);
    Small(&rest_, "layer input activation", Elementwise::kActivation,
          3 * static_cast<double>(f.inner) * kActivationBytes);
  }
  void Add(const compute::LowRankBlock& b) {
    Product("low-rank product", b.rank, s_.hidden);
    Product("low-rank output product", s_.hidden, b.rank);
    Small(&rest_, "low-rank norm", Elementwise::kNorm, 3 * hidden_bytes_);
  }
  // The streams are read and written once, the blocks' stream twice.
  void Add(const compute::StreamsBlock& b) {
    all_.push_back({"stream router", "linear", true, false, o_.Gemm(s_.router, b.streams, s_.hidden)});
    Small(&rest_, "stream router norm", Elementwise::kNorm, 2 * hidden_bytes_);
    Small(&rest_, "streams", Elementwise::kAdd, 2 * static_cast<double>(b.streams + 1) * hidden_bytes_);
  }
  void Add(const ExpertsBlock& e) {
    const ExpertsShape shape{e.experts, e.router.chosen, s_.hidden, e.expert.inner, s_.ep, ExpectedMaximum(s_.ep)};
    if (e.router_norm.exists()) Small(&rest_, "router norm", Elementwise::kNorm, 2 * hidden_bytes_);
    all_.push_back({"router", "linear", true, false, o_.Gemm(s_.router, e.experts, s_.hidden)});
    all_.push_back({"experts", "linear", true, true, o_.Experts(s_.format, shape)});
    if (e.shared_inner > 0)
      Gated(e.shared_inner, "shared gate and up products", "shared down product", "shared activation");
    if (s_.ep == 1) return;
    // The tokens of all replicas are gathered, with an index and a weight of 4 bytes for each chosen expert, and their
    // sums scattered.
    const double choice_bytes = 8 * static_cast<double>(e.router.chosen);
    rest_.push_back({"exchange of experts' tokens", "communication", false, true,
                     [times = &o_, bytes = (hidden_bytes_ + choice_bytes / 2) * s_.ep, ep = s_.ep,
                      tp = s_.tp](int64_t t) { return times->ExchangeNs(static_cast<double>(t) * bytes, ep, tp); }});
  }

  std::vector<LayerOperator> Take(const BetweenBlocks& n) {
    // A norm reads the residual stream and the last operator's output and writes both the sum and its norm.
    Small(&all_, "norms", Elementwise::kNorm, 4 * hidden_bytes_, n.norms);
    if (n.post_norms > 0) Small(&all_, "norms of outputs", Elementwise::kNorm, 2 * hidden_bytes_, n.post_norms);
    if (n.sums > 0) Small(&all_, "residual sum", Elementwise::kAdd, 3 * hidden_bytes_, n.sums);
    all_.insert(all_.end(), rest_.begin(), rest_.end());
    if (s_.tp > 1) {
      all_.push_back(
          {"all-reduces", "communication", false, false,
           [times = &o_, bytes = hidden_bytes_, tp = s_.tp, n = n.all_reduces, launch_ns = s_.all_reduce_launch_ns](
               int64_t t) { return n * (times->AllReduceNs(static_cast<double>(t) * bytes, tp) + launch_ns); }});
    }
    return std::move(all_);
  }

 private:
  void Product(const char* name, int64_t n, int64_t k) {
    all_.push_back({name, "linear", true, false, o_.Gemm(s_.format, n, k)});
  }
  void Small(std::vector<LayerOperator>* to, const char* name, Elementwise op, double bytes_per_token,
             int32_t times = 1) const {
    to->push_back({name, "elementwise", false, false, [o = &o_, op, bytes_per_token, times](int64_t t) {
                     return times * o->ElementwiseNs(op, static_cast<double>(t) * bytes_per_token);
                   }});
  }
  void Gated(int64_t inner, const char* up, const char* down, const char* activation) {
    Product(up, 2 * inner, s_.hidden);
    Product(down, s_.hidden, inner);
    Small(&rest_, activation, Elementwise::kActivation, 3 * static_cast<double>(inner) * kActivationBytes);
  }

  const LayerSetting& s_;
  const OperatorTimes& o_;
  const double hidden_bytes_;
  std::vector<LayerOperator> all_, rest_;
};

}  // namespace

std::vector<LayerOperator> OperatorsOf(const compute::Layer& layer, const LayerSetting& setting) {
  Operators operators(setting);
  for (const LayerBlock& b : layer) std::visit([&](const auto& block) { operators.Add(block); }, b.block);
  return operators.Take(Between(layer, setting.hidden));
}

}  // namespace tactus::cost
