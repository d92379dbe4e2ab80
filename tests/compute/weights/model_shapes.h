// Models made by hand for tests: the shape of a Llama and what stands around its layers.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <variant>

#include "compute/config/architecture.h"

namespace tactus::test {

// The first block of its kind in a layer; throws where there is none.
template <class BlockKind>
BlockKind& BlockIn(compute::Layer& layer) {
  for (compute::LayerBlock& b : layer) {
    if (auto* block = std::get_if<BlockKind>(&b.block)) return *block;
  }
  throw std::runtime_error("the layer has no block of this kind");
}
template <class BlockKind>
const BlockKind& BlockIn(const compute::ModelConfig& c, size_t layer = 0) {
  return BlockIn<BlockKind>(const_cast<compute::Layer&>(c.layers.at(layer)));
}
inline const compute::AttentionBlock& AttentionIn(const compute::ModelConfig& c, size_t layer = 0) {
  return BlockIn<compute::AttentionBlock>(c, layer);
}
inline const compute::GatedFeedForwardBlock& FeedForwardIn(const compute::ModelConfig& c, size_t layer = 0) {
  return BlockIn<compute::GatedFeedForwardBlock>(c, layer);
}

// Settings of a family where none is stated.
class NoFields final : public compute::FamilyFields {
 public:
  bool gguf() const override { return false; }
  std::optional<double> Number(compute::FieldKey) override { return std::nullopt; }
  std::optional<bool> Flag(compute::FieldKey) override { return std::nullopt; }
  std::optional<std::string> Text(compute::FieldKey) override { return std::nullopt; }
  std::optional<bool> FlagOrNumber(compute::FieldKey) override { return std::nullopt; }
  compute::Presence PresenceOf(compute::FieldKey) override { return compute::Presence::kAbsent; }
  std::vector<double> Numbers(compute::FieldKey) override { return {}; }
  std::vector<double> Reals(compute::FieldKey) override { return {}; }
  std::vector<std::string> Texts(compute::FieldKey) override { return {}; }
  bool HasTensor(compute::Role, int64_t) override { return true; }
  void Refuse(compute::FieldKey, const std::string& what) override { status_ = Status(StatusCode::kDataLoss, what); }
  const Status& status() const override { return status_; }

 private:
  Status status_;
};

// A configuration as readers make it, from fields that a test may change first.
struct HandMadeModel {
  compute::ModelConfig config;
  compute::StatedShape shape;

  // Where the shape is invalid, what could be made of it.
  compute::ModelConfig Make() const {
    compute::ModelConfig c = config;
    (void)Validate(&c);
    return c;
  }
  Status Validate() const {
    compute::ModelConfig c = config;
    return Validate(&c);
  }

 private:
  Status Validate(compute::ModelConfig* c) const {
    c->architecture = "llama";
    NoFields fields;
    return compute::MakeLayers(*compute::FindArchitecture("llama"), fields, shape, c);
  }
};

}  // namespace tactus::test
