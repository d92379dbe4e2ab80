#include "cost/registry.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

const compute::AttentionBlock& AttentionIn(const ModelSpec& m, size_t layer = 0) {
  return *compute::AttentionOf(m.layers.at(layer));
}

TEST(Registry, DocumentedNamesAreKnown) {
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

// The published sizes, which no column states: a wrong width or layer count fails here.
TEST(Registry, ModelsHaveTheirPublishedSizes) {
  const struct {
    const char* name;
    double billions;
  } kPublished[] = {{"mistral-7b", 7.24},
                    {"yi-34b", 34.4},
                    {"llama-2-7b", 6.74},
                    {"llama-2-70b", 69.0},
                    {"codellama-34b", 33.7},
                    {"llama-13b", 13.0},
                    {"llama-3-8b", 8.03},
                    {"llama-3-70b", 70.6},
                    {"llama-3.1-8b", 8.03},
                    {"llama-3.1-70b", 70.6},
                    {"qwen3-32b", 32.8},
                    {"falcon-180b", 179.5},
                    {"opt-13b", 12.9},
                    {"opt-66b", 66},
                    {"opt-175b", 175},
                    {"gpt-3", 175},
                    {"qwen-72b", 72.3},
                    {"internlm-20b", 20.1},
                    {"qwen2-7b", 7.6},
                    {"bloom-176b", 176},
                    {"llama-33b", 32.5},
                    {"llama-2-13b", 13.0},
                    {"phi-2", 2.78},
                    {"qwen3-30b-a3b", 30.5},
                    {"qwen3-coder-30b-a3b", 30.5},
                    {"qwen3-235b-a22b", 235},
                    {"qwen1.5-moe-a2.7b", 14.3},
                    {"mixtral-8x7b", 46.7},
                    {"gpt-oss-20b", 20.9},
                    {"gpt-oss-120b", 116.8},
                    {"olmoe-1b-7b", 6.92},
                    {"flex-olmo-7x7b", 33},
                    {"glm-4.5-air", 106},
                    {"granite-3.1-1b-a400m", 1.33},
                    {"granite-3.1-3b-a800m", 3.3},
                    {"granite-moe-7b-a1b-shared", 25.49 / 4},  // 25.49 GB of f32
                    {"phi-3.5-moe", 41.9},
                    {"minimax-m2", 229},
                    {"dots.llm1", 142},
                    {"ernie-4.5-21b-a3b", 21.8},
                    {"llama-4-scout-17b-16e", 107.8},  // of 109 its text
                    {"llama-4-maverick-17b-128e", 400.7},
                    {"hunyuan-a13b-instruct", 80.4},
                    {"gemma-2-9b", 9.24},
                    {"gemma-2-27b", 27.2},
                    {"gemma-3-4b", 3.88},
                    {"gemma-3-12b", 11.8},
                    {"gemma-3-27b", 27.0},
                    {"gemma-3n-e2b", 4.46},
                    {"gemma-3n-e4b", 6.87},
                    {"gemma-4-26b-a4b", 25.2},
                    {"gemma-7b", 8.54},
                    {"granite-3.1-8b", 8.17},
                    {"olmo-3-7b", 7.3},
                    {"olmo-3-32b", 32.2},
                    {"phi-4", 14.7},
                    {"smollm3-3b", 3.08},
                    {"olmo-2-7b", 7.3},
                    {"olmo-2-13b", 13.7},
                    {"glm-4-9b", 9.4},
                    {"seed-oss-36b", 36.15},
                    {"exaone-4.0-32b", 32},
                    {"command-r", 35},
                    {"command-r-08-2024", 32.3},
                    {"starcoder2-15b", 15.96},
                    {"gpt-neox-20b", 20.55},
                    {"pythia-6.9b", 6.86},
                    {"pythia-12b", 11.85},
                    {"bloom-7b1", 7.07},
                    {"stablelm-3b", 2.795},
                    {"stablelm-2-1.6b", 1.644}};
  std::set<std::string> checked;
  for (const auto& [name, billions] : kPublished) {
    const Result<ModelSpec> m = FindModel(name);
    ASSERT_TRUE(m.ok()) << name;
    EXPECT_NEAR(static_cast<double>(m->Parameters()) / 1e9, billions, 0.01 * billions) << name;
    checked.insert(name);
  }
  for (const ModelSpec& m : Models()) EXPECT_TRUE(checked.count(m.name)) << m.name << " has no published size here";
}

// The published numbers of parameters that one token uses. gpt-oss states them without the embedding.
TEST(Registry, MixturesHaveTheirPublishedActiveSizes) {
  const struct {
    const char* name;
    double billions;
  } kPublished[] = {{"qwen3-30b-a3b", 3.3},
                    {"qwen3-235b-a22b", 22},
                    {"qwen1.5-moe-a2.7b", 2.7},
                    {"mixtral-8x7b", 12.9},
                    {"gpt-oss-20b", 3.61 + 0.58},
                    {"gpt-oss-120b", 5.13 + 0.58},
                    {"olmoe-1b-7b", 1.3},
                    {"phi-3.5-moe", 6.6},
                    {"dots.llm1", 14},
                    {"llama-4-scout-17b-16e", 17.17},
                    {"llama-4-maverick-17b-128e", 17.17},
                    {"hunyuan-a13b-instruct", 13},
                    {"gemma-4-26b-a4b", 3.8}};
  for (const auto& [name, billions] : kPublished)
    EXPECT_NEAR(static_cast<double>(FindModel(name)->ActiveParameters()) / 1e9, billions, 0.02 * billions) << name;
  EXPECT_EQ(FindModel("llama-3.1-8b")->ActiveParameters(), FindModel("llama-3.1-8b")->Parameters());
}

// A model that is named with its config.json has the layers that its family makes of it.
TEST(Registry, ConfigsInTheTableMakeTheirFamiliesLayers) {
  const ModelSpec oss = *FindModel("gpt-oss-20b");
  EXPECT_EQ(AttentionIn(oss, 0).window, 128);
  EXPECT_EQ(AttentionIn(oss, 1).window, 0);
  EXPECT_EQ(compute::ExpertsOf(oss.layers[5])->router.chosen, 4);
  const ModelSpec glm = *FindModel("glm-4.5-air");
  EXPECT_EQ(compute::ExpertsOf(glm.layers[0]), nullptr);
  EXPECT_EQ(compute::ExpertsOf(glm.layers[1])->shared_inner, 1408);
  const ModelSpec flex = *FindModel("flex-olmo-7x7b");
  EXPECT_EQ(compute::ExpertsOf(flex.layers[0])->experts, 7);
  EXPECT_EQ(compute::ExpertsOf(flex.layers[31])->router.chosen, 5);
  const ModelSpec granite = *FindModel("granite-moe-7b-a1b-shared");
  EXPECT_TRUE(granite.tied);
  EXPECT_EQ(compute::ExpertsOf(granite.layers[39])->shared_inner, 1024);
  EXPECT_EQ(compute::ExpertsOf(granite.layers[39])->router.chosen, 6);
  const ModelSpec gemma = *FindModel("gemma-3-4b");
  EXPECT_TRUE(gemma.tied);
  EXPECT_EQ(AttentionIn(gemma, 4).window, 1024);
  EXPECT_EQ(AttentionIn(gemma, 5).window, 0);
  EXPECT_EQ(AttentionIn(*FindModel("smollm3-3b"), 3).rope, compute::RopeChoice::kNone);
  EXPECT_EQ(FindModel("qwen3-30b-a3b")->context, 40960);
  const ModelSpec maverick = *FindModel("llama-4-maverick-17b-128e");
  EXPECT_EQ(AttentionIn(maverick, 2).chunk, 8192);
  EXPECT_EQ(AttentionIn(maverick, 3).chunk, 0);
  EXPECT_EQ(compute::ExpertsOf(maverick.layers[0]), nullptr);
  EXPECT_EQ(compute::ExpertsOf(maverick.layers[1])->experts, 128);
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
    EXPECT_GE(d.node, d.group) << d.name;
    EXPECT_TRUE(d.network == "infiniband" || d.network == "ethernet") << d.name;
    EXPECT_GE(d.network_hop_ns, 10e3) << d.name;
    EXPECT_FALSE(d.help.empty()) << d.name;
  }
}

// Every column of one row, in the program's units.
TEST(Registry, ColumnsAreReadInTheirUnits) {
  const DeviceSpec d = *FindDevice("h100");
  EXPECT_EQ(d.bf16_flops, 989.4e12);
  EXPECT_EQ(d.fp8_flops, 1978.9e12);
  EXPECT_EQ(d.int8_flops, 1978.9e12);
  EXPECT_FALSE(d.fp4);
  EXPECT_TRUE(FindDevice("b200")->fp4);
  EXPECT_EQ(d.bandwidth, 3350e9);
  EXPECT_EQ(d.memory_bytes, int64_t{81090} * 1024 * 1024);
  EXPECT_EQ(d.sms, 132);
  EXPECT_EQ(d.link_bandwidth, 450e9);
  EXPECT_EQ(d.link, "nvswitch");
  EXPECT_EQ(d.group, 8);
  EXPECT_EQ(d.pcie_bandwidth, 64e9);
  EXPECT_EQ(d.node, 8);
  EXPECT_EQ(d.peer_bandwidth, 0);
  EXPECT_EQ(FindDevice("a40")->peer_bandwidth, 4e9);
  EXPECT_EQ(d.network_bandwidth, 50e9);
  EXPECT_EQ(d.network, "infiniband");
  EXPECT_EQ(d.network_hop_ns, 17e3);
  EXPECT_EQ(d.launch_ns, 2000);
  EXPECT_EQ(d.fit, "h100");
  EXPECT_EQ(d.help, "H100 SXM 80 GB");
  EXPECT_EQ(FindDevice("a100")->fp8_flops, 0) << "'-' means none";
  const ModelSpec m = *FindModel("mistral-7b");
  EXPECT_EQ(m.context, 32768);
  EXPECT_FALSE(m.tied);
  EXPECT_EQ(AttentionIn(m).window, 4096);
  EXPECT_EQ(AttentionIn(m).rope, compute::RopeChoice::kMain);
  EXPECT_EQ(AttentionIn(m).qk_norm, compute::QkNorm::kNone);
  EXPECT_TRUE(std::holds_alternative<compute::GatedFeedForwardBlock>(m.layers[0][1].block));
  EXPECT_FALSE(m.layers[0][1].parallel);
  EXPECT_EQ(AttentionIn(*FindModel("qwen3-32b")).qk_norm, compute::QkNorm::kHeads);
  const ModelSpec opt = *FindModel("opt-13b");
  EXPECT_TRUE(opt.tied);
  EXPECT_EQ(AttentionIn(opt).rope, compute::RopeChoice::kNone);
  EXPECT_TRUE(std::holds_alternative<compute::FeedForwardBlock>(opt.layers[0][1].block));
  EXPECT_TRUE(FindModel("falcon-180b")->layers[0][1].parallel);
}

// Every layer has the window and the norms that its family gives it.
TEST(Registry, ConfigFileSetsWindowAndNorms) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "cost_registry_windows";
  std::filesystem::create_directories(folder);
  const auto read = [&folder](const std::string& type, const std::string& more) {
    std::ofstream(folder / "config.json")
        << R"({"architectures": [")" << type
        << R"("], "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
      "num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5)"
        << more << "}";
    const Result<ModelSpec> m = FindModel(folder.string());
    EXPECT_TRUE(m.ok()) << m.status().message();
    return m.ok() ? *m : ModelSpec();
  };
  const auto windows = [](const ModelSpec& m) {
    std::vector<int32_t> all;
    for (size_t l = 0; l < m.layers.size(); ++l) all.push_back(AttentionIn(m, l).window);
    return all;
  };
  EXPECT_EQ(windows(read("MistralForCausalLM", R"(, "model_type": "mistral", "sliding_window": 256)")),
            std::vector<int32_t>({256, 256, 256, 256}));
  const std::string qwen =
      R"(, "model_type": "qwen2", "sliding_window": 256, "use_sliding_window": true, "max_window_layers": )";
  EXPECT_EQ(windows(read("Qwen2ForCausalLM", qwen + "0")), std::vector<int32_t>({256, 256, 256, 256}));
  const ModelSpec mixed = read("Qwen2ForCausalLM", qwen + "2");
  EXPECT_EQ(windows(mixed), std::vector<int32_t>({0, 0, 256, 256}));
  EXPECT_EQ(AttentionIn(mixed).qk_norm, compute::QkNorm::kNone);
  const ModelSpec qwen3 = read("Qwen3ForCausalLM", R"(, "model_type": "qwen3", "head_dim": 64)");
  EXPECT_EQ(AttentionIn(qwen3).qk_norm, compute::QkNorm::kHeads);
  EXPECT_EQ(qwen3.context, 2048);
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

TEST(Registry, ConfigFileDescribesAModel) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "cost_registry" / "small-llama";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";
  for (const std::filesystem::path& path : {folder, folder / "config.json"}) {
    const Result<ModelSpec> m = FindModel(path.string());
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(m->num_layers(), 16);
    EXPECT_EQ(AttentionIn(*m).kv_heads, 8);
    EXPECT_EQ(AttentionIn(*m).head_dim, 64);
    EXPECT_TRUE(m->tied);
    EXPECT_EQ(m->context, 131072);
    EXPECT_NEAR(static_cast<double>(m->Parameters()), 1.236e9, 0.01e9);  // Llama 3.2 1B
    EXPECT_EQ(m->name, "small-llama");
  }
}

}  // namespace
}  // namespace tactus::cost
