#include "cost/registry.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

TEST(Registry, KnowsEveryNameThatUsersType) {
  for (const char* name : {"mistral-7b", "yi-34b", "llama-2-7b", "llama-2-70b", "codellama-34b", "llama-13b",
                           "llama-3-8b", "llama-3-70b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "falcon-180b",
                           "opt-13b", "opt-175b", "gpt-3", "qwen-72b", "internlm-20b"}) {
    EXPECT_TRUE(FindModel(name).ok()) << name;
  }
  for (const char* name :
       {"a30", "a40", "a100", "a6000", "h100", "h200", "b200", "l4", "l40s", "rtx4090", "rtxpro6000"}) {
    EXPECT_TRUE(FindDevice(name).ok()) << name;
  }
}

// The published sizes, which no column of the table states: a wrong width or layer count shows here.
TEST(Registry, ParametersAreThoseOfTheModelsNames) {
  const struct {
    const char* name;
    double billions;
  } kPublished[] = {{"mistral-7b", 7.24},    {"yi-34b", 34.4},        {"llama-2-7b", 6.74}, {"llama-2-70b", 69.0},
                    {"codellama-34b", 33.7}, {"llama-13b", 13.0},     {"llama-3-8b", 8.03}, {"llama-3-70b", 70.6},
                    {"llama-3.1-8b", 8.03},  {"llama-3.1-70b", 70.6}, {"qwen3-32b", 32.8},  {"falcon-180b", 179.5},
                    {"opt-13b", 12.9},       {"opt-66b", 66},         {"opt-175b", 175},    {"gpt-3", 175},
                    {"qwen-72b", 72.3},      {"internlm-20b", 20.1},  {"qwen2-7b", 7.6},    {"bloom-176b", 176},
                    {"llama-33b", 32.5},     {"llama-2-13b", 13.0},   {"phi-2", 2.78}};
  std::set<std::string> checked;
  for (const auto& [name, billions] : kPublished) {
    const Result<ModelSpec> m = FindModel(name);
    ASSERT_TRUE(m.ok()) << name;
    EXPECT_NEAR(static_cast<double>(m->Parameters()) / 1e9, billions, 0.01 * billions) << name;
    checked.insert(name);
  }
  for (const ModelSpec& m : Models()) EXPECT_TRUE(checked.count(m.name)) << m.name << " has no published size here";
}

TEST(Registry, DeviceFiguresAreInRange) {
  for (const DeviceSpec& d : Devices()) {
    EXPECT_GT(d.bf16_flops, 5e13) << d.name;
    EXPECT_LT(d.bf16_flops, 5e15) << d.name;
    EXPECT_GT(d.bandwidth, 2e11) << d.name;
    EXPECT_LT(d.bandwidth, 2e13) << d.name;
    EXPECT_GT(d.memory_bytes, int64_t{16} << 30) << d.name;
    EXPECT_TRUE(d.fp8_flops == 0 || d.fp8_flops >= 1.9 * d.bf16_flops) << d.name;
    EXPECT_TRUE(d.group > 1 || d.link == "pcie") << d.name;
    EXPECT_FALSE(d.help.empty()) << d.name;
  }
}

TEST(Registry, UnknownNamesListTheKnownOnes) {
  const Status device = FindDevice("h1000").status();
  EXPECT_EQ(device.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(device.message().find("'h1000'"), std::string::npos);
  EXPECT_NE(device.message().find("rtxpro6000"), std::string::npos);
  const Status model = FindModel("llama-9").status();
  EXPECT_EQ(model.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(model.message().find("internlm-20b"), std::string::npos);
  EXPECT_EQ(FindModel("/no/such/folder").status().code(), StatusCode::kNotFound);
}

TEST(Registry, ReadsAConfigFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "cost_registry" / "small-llama";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";
  for (const std::filesystem::path& path : {folder, folder / "config.json"}) {
    const Result<ModelSpec> m = FindModel(path.string());
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(m->layers, 16);
    EXPECT_EQ(m->kv_heads, 8);
    EXPECT_EQ(m->head_dim, 64);
    EXPECT_TRUE(m->tied);
    EXPECT_EQ(m->context, 131072);
    EXPECT_NEAR(static_cast<double>(m->Parameters()), 1.236e9, 0.01e9);  // Llama 3.2 1B
    EXPECT_EQ(m->name, "small-llama");
  }
}

}  // namespace
}  // namespace tactus::cost
