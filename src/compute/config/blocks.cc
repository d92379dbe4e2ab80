#include "compute/config/blocks.h"

#include <bit>
#include <cmath>

namespace tactus::compute {
namespace {

TensorDecl Matrix(Role role, int64_t rows, int64_t cols, Split split) {
  return {role, rows, cols, false, split};
}
TensorDecl Vector(Role role, int64_t size, Split split) {
  return {role, size, 1, false, split};
}
TensorDecl Norm(Role role, int64_t size) {
  return {role, size, 1, true, Split::kNone};
}

Role ExpertRole(Role role) {
  switch (role) {
    case Role::kGate:
      return Role::kExpertGate;
    case Role::kUp:
      return Role::kExpertUp;
    case Role::kDown:
      return Role::kExpertDown;
    case Role::kGateBias:
      return Role::kExpertGateBias;
    case Role::kUpBias:
      return Role::kExpertUpBias;
    case Role::kDownBias:
      return Role::kExpertDownBias;
    default:
      return Role::kNone;  // a gated feed-forward block has no other tensors
  }
}

}  // namespace

std::vector<TensorDecl> AttentionBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {Matrix(Role::kQ, q_width(), hidden, Split::kRows)};
  if (stores_kv()) tensors.push_back(Matrix(Role::kK, kv_width(), hidden, Split::kRows));
  if (stores_kv() && !k_is_v) tensors.push_back(Matrix(Role::kV, kv_width(), hidden, Split::kRows));
  tensors.push_back(Matrix(Role::kO, hidden, q_width(), Split::kCols));
  if (qk_norm == QkNorm::kHeads || qk_norm == QkNorm::kWidth) {
    const bool heads_alike = qk_norm == QkNorm::kHeads;
    tensors.push_back(Norm(Role::kQNorm, heads_alike ? head_dim : q_width()));
    if (stores_kv()) tensors.push_back(Norm(Role::kKNorm, heads_alike ? head_dim : kv_width()));
  }
  if (qkv_bias) {
    tensors.push_back(Vector(Role::kQBias, q_width(), Split::kRows));
    if (stores_kv()) tensors.push_back(Vector(Role::kKBias, kv_width(), Split::kRows));
    if (stores_kv() && !k_is_v) tensors.push_back(Vector(Role::kVBias, kv_width(), Split::kRows));
  }
  if (o_bias) tensors.push_back(Vector(Role::kOBias, hidden, Split::kNone));
  if (sinks) tensors.push_back(Vector(Role::kSinks, heads, Split::kRows));
  const int64_t total = q_width() + 2 * kv_width();
  for (TensorDecl& t : tensors) {
    if (t.role == Role::kQ || t.role == Role::kQBias) t.fused = {0, total, kv_heads};
    if (t.role == Role::kK || t.role == Role::kKBias) t.fused = {q_width(), total, kv_heads};
    if (t.role == Role::kV || t.role == Role::kVBias) t.fused = {q_width() + kv_width(), total, kv_heads};
  }
  return tensors;
}

std::vector<TensorDecl> GatedFeedForwardBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {Matrix(Role::kGate, inner, hidden, Split::kRows),
                                     Matrix(Role::kUp, inner, hidden, Split::kRows),
                                     Matrix(Role::kDown, hidden, inner, Split::kCols)};
  if (bias) {
    tensors.push_back(Vector(Role::kGateBias, inner, Split::kRows));
    tensors.push_back(Vector(Role::kUpBias, inner, Split::kRows));
    tensors.push_back(Vector(Role::kDownBias, hidden, Split::kNone));
  }
  for (TensorDecl& t : tensors) {
    if (t.role == Role::kGate || t.role == Role::kGateBias) t.fused = {0, 2 * inner, 1};
    if (t.role == Role::kUp || t.role == Role::kUpBias) t.fused = {inner, 2 * inner, 1};
  }
  return tensors;
}

std::vector<TensorDecl> FeedForwardBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {Matrix(Role::kUp, inner, hidden, Split::kRows),
                                     Matrix(Role::kDown, hidden, inner, Split::kCols)};
  if (bias) {
    tensors.push_back(Vector(Role::kUpBias, inner, Split::kRows));
    tensors.push_back(Vector(Role::kDownBias, hidden, Split::kNone));
  }
  return tensors;
}

std::vector<TensorDecl> ExpertsBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {Matrix(Role::kRouter, experts, hidden, Split::kNone)};
  if (router.bias) tensors.push_back(Vector(Role::kRouterBias, experts, Split::kNone));
  if (router.choice_bias) tensors.push_back(Vector(Role::kChoiceBias, experts, Split::kNone));
  if (router.expert_scale) tensors.push_back(Norm(Role::kExpertScale, experts));
  for (const TensorDecl& t : NormTensors(router_norm, hidden)) tensors.push_back(t);
  if (shared_inner > 0) {
    tensors.push_back(Matrix(Role::kSharedGate, shared_inner, hidden, Split::kRows));
    tensors.push_back(Matrix(Role::kSharedUp, shared_inner, hidden, Split::kRows));
    tensors.push_back(Matrix(Role::kSharedDown, hidden, shared_inner, Split::kCols));
    for (TensorDecl& t : tensors) {
      if (t.role == Role::kSharedGate) t.fused = {0, 2 * shared_inner, 1};
      if (t.role == Role::kSharedUp) t.fused = {shared_inner, 2 * shared_inner, 1};
    }
    if (shared_weight) tensors.push_back(Matrix(Role::kSharedWeight, 1, hidden, Split::kNone));
  }
  for (int64_t e = 0; e < experts; ++e) {
    for (TensorDecl t : expert.Tensors(hidden)) {
      t.role = ExpertRole(t.role);
      t.expert = e;
      t.fused.groups = expert.inner;
      tensors.push_back(t);
    }
  }
  return tensors;
}

std::vector<TensorDecl> LayerInputBlock::Tensors(int64_t hidden) const {
  return {Matrix(Role::kInputGate, inner, hidden, Split::kRows), Matrix(Role::kInputDown, hidden, inner, Split::kCols)};
}

std::vector<TensorDecl> LowRankBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {Matrix(Role::kLowRankLeft, rank, hidden, Split::kNone),
                                     Matrix(Role::kLowRankRight, hidden, rank, Split::kNone)};
  for (const TensorDecl& t : NormTensors(norm, hidden)) tensors.push_back(t);
  return tensors;
}

// The two halves of a layer share the router, which the first declares.
std::vector<TensorDecl> StreamsBlock::Tensors(int64_t hidden) const {
  if (step == StreamStep::kCorrect) {
    return {Matrix(Role::kCorrect, streams, streams, Split::kNone), Norm(Role::kStreamScale, hidden)};
  }
  std::vector<TensorDecl> tensors = {Matrix(Role::kStreamRouter, streams, hidden, Split::kNone),
                                     Matrix(Role::kPredict, streams * streams, streams, Split::kNone)};
  for (const TensorDecl& t : NormTensors(norm, hidden)) tensors.push_back(t);
  return tensors;
}

std::vector<TensorDecl> NormTensors(const NormSpec& norm, int64_t size) {
  std::vector<TensorDecl> tensors;
  if (norm.weight != Role::kNone) tensors.push_back(Norm(norm.weight, size));
  if (norm.bias != Role::kNone) tensors.push_back(Vector(norm.bias, size, Split::kNone));
  return tensors;
}

std::vector<float> AlibiSlopes(int64_t heads) {
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t i = 1; i <= whole; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(whole))));
  }
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(static_cast<float>(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(whole))));
  }
  return slopes;
}

std::vector<TensorDecl> LayerBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = NormTensors(norm, hidden);
  for (const auto& more : {std::visit([&](const auto& b) { return b.Tensors(hidden); }, block),
                           NormTensors(post, hidden), NormTensors(joint, hidden)}) {
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  if (scale != Role::kNone) tensors.push_back(Norm(scale, 1));
  return tensors;
}

const AttentionBlock* AttentionOf(const Layer& layer) {
  for (const LayerBlock& b : layer) {
    if (const auto* attention = std::get_if<AttentionBlock>(&b.block)) return attention;
  }
  return nullptr;
}

const ExpertsBlock* ExpertsOf(const Layer& layer) {
  for (const LayerBlock& b : layer) {
    if (const auto* experts = std::get_if<ExpertsBlock>(&b.block)) return experts;
  }
  return nullptr;
}

int64_t StreamsOf(const Layer& layer) {
  for (const LayerBlock& b : layer) {
    if (const auto* streams = std::get_if<StreamsBlock>(&b.block)) return streams->streams;
  }
  return 1;
}

}  // namespace tactus::compute
