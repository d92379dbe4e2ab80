#include "compute/weights/weight_builder.h"

#include <algorithm>
#include <array>

namespace tactus::compute {
namespace {

struct MatrixRole {
  std::string_view TensorNames::* name;
  int64_t rows, cols;
};
struct VectorRole {
  std::string_view TensorNames::* name;
  const float* LayerWeights::* values;
  int64_t size;
  bool present, is_norm;
};

// In the order of MatricesOf.
std::array<MatrixRole, kLayerMatrices> MatrixRolesOf(const ModelConfig& c) {
  using N = TensorNames;
  const int64_t hidden = c.hidden_size, inter = c.intermediate_size;
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  return {{
      {&N::wq, q, hidden},
      {&N::wk, kv, hidden},
      {&N::wv, kv, hidden},
      {&N::wo, hidden, q},
      {&N::w_gate, inter, hidden},
      {&N::w_up, inter, hidden},
      {&N::w_down, hidden, inter},
  }};
}

}  // namespace

Status BuildWeights(const ModelConfig& c, const TensorNames& names, WeightSource& source, ModelWeights* weights) {
  using L = LayerWeights;
  using N = TensorNames;
  const int64_t hidden = c.hidden_size, inter = c.intermediate_size;
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const auto matrices = MatrixRolesOf(c);
  const VectorRole vectors[] = {
      {&N::attn_norm, &L::attn_norm, hidden, true, true},
      {&N::ffn_norm, &L::ffn_norm, hidden, true, true},
      {&N::q_norm, &L::q_norm, c.head_dim, c.qk_norm, true},
      {&N::k_norm, &L::k_norm, c.head_dim, c.qk_norm, true},
      {&N::bq, &L::bq, q, c.qkv_bias, false},
      {&N::bk, &L::bk, kv, c.qkv_bias, false},
      {&N::bv, &L::bv, kv, c.qkv_bias, false},
      {&N::bo, &L::bo, hidden, c.o_bias, false},
      {&N::b_gate, &L::b_gate, inter, c.mlp_bias, false},
      {&N::b_up, &L::b_up, inter, c.mlp_bias, false},
      {&N::b_down, &L::b_down, hidden, c.mlp_bias, false},
  };
  TACTUS_ASSIGN_OR_RETURN(weights->embedding, source.Matrix(std::string(names.embedding), c.vocab_size, hidden));
  weights->lm_head = weights->embedding;
  if (!c.tie_embeddings) {
    TACTUS_ASSIGN_OR_RETURN(weights->lm_head, source.Matrix(std::string(names.lm_head), c.vocab_size, hidden));
  }
  TACTUS_ASSIGN_OR_RETURN(weights->final_norm, source.Vector(std::string(names.final_norm), hidden, true));
  weights->layers.resize(static_cast<size_t>(c.num_layers));
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    LayerWeights& w = weights->layers[static_cast<size_t>(layer)];
    const auto views = MatricesOf(w);
    for (size_t i = 0; i < kLayerMatrices; ++i) {
      const MatrixRole& role = matrices[i];
      TACTUS_ASSIGN_OR_RETURN(*views[i], source.Matrix(LayerTensorName(names.*role.name, layer), role.rows, role.cols));
    }
    for (const VectorRole& role : vectors) {
      if (!role.present) continue;
      TACTUS_ASSIGN_OR_RETURN(w.*role.values,
                              source.Vector(LayerTensorName(names.*role.name, layer), role.size, role.is_norm));
    }
  }
  return source.Finish(weights);
}

std::vector<MatrixPlace> MatrixPlaces(const ModelConfig& c, const TensorNames& names, ModelWeights* weights) {
  const auto roles = MatrixRolesOf(c);
  std::vector<MatrixPlace> places;
  places.push_back({std::string(names.embedding), &weights->embedding, true});
  for (int64_t l = 0; l < c.num_layers; ++l) {
    const auto views = MatricesOf(weights->layers[static_cast<size_t>(l)]);
    for (size_t i = 0; i < kLayerMatrices; ++i)
      places.push_back({LayerTensorName(names.*roles[i].name, l), views[i], false});
  }
  if (!c.tie_embeddings) places.push_back({std::string(names.lm_head), &weights->lm_head, true});
  return places;
}

std::string FormatText(const std::vector<std::pair<DType, int64_t>>& counts) {
  auto sorted = counts;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::string text;
  for (const auto& [dtype, count] : sorted) {
    if (!text.empty()) text += ", ";
    text += std::string(InfoOf(dtype).name) + " (" + std::to_string(count) + ")";
  }
  return text;
}

}  // namespace tactus::compute
