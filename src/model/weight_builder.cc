#include "model/weight_builder.h"

#include <algorithm>

#include <sys/mman.h>

#include "model/weight_storage.h"

namespace tactus {

WeightStorage::~WeightStorage() {
  for (const Region& region : regions_) munmap(region.data, region.size);
}

std::byte* WeightStorage::Allocate(int64_t bytes) {
  constexpr size_t kAlign = 64, kRegion = size_t{1} << 20;   // small tensors share a region
  const size_t size = (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
  if (regions_.empty() || regions_.back().size - regions_.back().used < size) {
    const size_t region_size = std::max(size, kRegion);
    void* data = mmap(nullptr, region_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    regions_.push_back({static_cast<std::byte*>(data), region_size, 0});
  }
  Region& region = regions_.back();
  std::byte* out = region.data + region.used;
  region.used += size;
  return out;
}

namespace {

struct MatrixRole {
  std::string_view TensorNames::*name;
  MatrixView LayerWeights::*view;
  int64_t rows, cols;
};
struct VectorRole {
  std::string_view TensorNames::*name;
  const float* LayerWeights::*values;
  int64_t size;
  bool present, is_norm;
};

}  // namespace

Status BuildWeights(const ModelConfig& c, const TensorNames& names, WeightSource& source, ModelWeights* weights) {
  using L = LayerWeights;
  using N = TensorNames;
  const int64_t hidden = c.hidden_size, inter = c.intermediate_size;
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const MatrixRole matrices[] = {
      {&N::wq, &L::wq, q, hidden},         {&N::wk, &L::wk, kv, hidden},      {&N::wv, &L::wv, kv, hidden},
      {&N::wo, &L::wo, hidden, q},         {&N::w_gate, &L::w_gate, inter, hidden},
      {&N::w_up, &L::w_up, inter, hidden}, {&N::w_down, &L::w_down, hidden, inter},
  };
  const VectorRole vectors[] = {
      {&N::attn_norm, &L::attn_norm, hidden, true, true}, {&N::ffn_norm, &L::ffn_norm, hidden, true, true},
      {&N::q_norm, &L::q_norm, c.head_dim, c.qk_norm, true}, {&N::k_norm, &L::k_norm, c.head_dim, c.qk_norm, true},
      {&N::bq, &L::bq, q, c.qkv_bias, false},             {&N::bk, &L::bk, kv, c.qkv_bias, false},
      {&N::bv, &L::bv, kv, c.qkv_bias, false},            {&N::bo, &L::bo, hidden, c.o_bias, false},
      {&N::b_gate, &L::b_gate, inter, c.mlp_bias, false}, {&N::b_up, &L::b_up, inter, c.mlp_bias, false},
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
    for (const MatrixRole& role : matrices) {
      TACTUS_ASSIGN_OR_RETURN(w.*role.view, source.Matrix(LayerTensorName(names.*role.name, layer), role.rows, role.cols));
    }
    for (const VectorRole& role : vectors) {
      if (!role.present) continue;
      TACTUS_ASSIGN_OR_RETURN(w.*role.values,
                              source.Vector(LayerTensorName(names.*role.name, layer), role.size, role.is_norm));
    }
  }
  return Status();
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

}  // namespace tactus
