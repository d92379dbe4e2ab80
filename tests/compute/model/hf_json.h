// Small config.json texts for the tests of the reader.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "compute/config/hf_config.h"

namespace tactus::test {

using json = SortedJson;

inline json Base(const std::string& hf_class = "LlamaForCausalLM") {
  return {{"architectures", {hf_class}}, {"hidden_size", 64},       {"num_hidden_layers", 4},
          {"num_attention_heads", 4},    {"intermediate_size", 96}, {"vocab_size", 100}};
}
inline json With(json base, const json& more) {
  base.update(more);
  return base;
}
inline Result<compute::ModelConfig> Parse(const json& j) {
  return compute::ConfigFromJson(j.dump(), "config.json");
}
inline compute::ModelConfig Good(const json& j) {
  Result<compute::ModelConfig> c = Parse(j);
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  return c.ok() ? *c : compute::ModelConfig();
}

}  // namespace tactus::test
