#include "compute/config/blocks.h"

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

}  // namespace

std::vector<TensorDecl> AttentionBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors = {
      Matrix(Role::kQ, q_width(), hidden, Split::kRows), Matrix(Role::kK, kv_width(), hidden, Split::kRows),
      Matrix(Role::kV, kv_width(), hidden, Split::kRows), Matrix(Role::kO, hidden, q_width(), Split::kCols)};
  if (qk_norm) {
    tensors.push_back(Norm(Role::kQNorm, head_dim));
    tensors.push_back(Norm(Role::kKNorm, head_dim));
  }
  if (qkv_bias) {
    tensors.push_back(Vector(Role::kQBias, q_width(), Split::kRows));
    tensors.push_back(Vector(Role::kKBias, kv_width(), Split::kRows));
    tensors.push_back(Vector(Role::kVBias, kv_width(), Split::kRows));
  }
  if (o_bias) tensors.push_back(Vector(Role::kOBias, hidden, Split::kNone));
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
  return tensors;
}

std::vector<TensorDecl> LayerBlock::Tensors(int64_t hidden) const {
  std::vector<TensorDecl> tensors;
  if (norm.weight != Role::kNone) tensors.push_back(Norm(norm.weight, hidden));
  const std::vector<TensorDecl> inner = std::visit([&](const auto& b) { return b.Tensors(hidden); }, block);
  tensors.insert(tensors.end(), inner.begin(), inner.end());
  return tensors;
}

const AttentionBlock* AttentionOf(const Layer& layer) {
  for (const LayerBlock& b : layer) {
    if (const auto* attention = std::get_if<AttentionBlock>(&b.block)) return attention;
  }
  return nullptr;
}

}  // namespace tactus::compute
