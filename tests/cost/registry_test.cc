#include "cost/registry.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "cost/cost_model.h"

namespace tactus::cost {
namespace {

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
  EXPECT_EQ(m.window, 4096);
  EXPECT_TRUE(m.gated && m.rope);
  EXPECT_FALSE(m.tied || m.parallel || m.qk_norm);
  EXPECT_TRUE(FindModel("qwen3-32b")->qk_norm);
  EXPECT_TRUE(FindModel("opt-13b")->tied);
  EXPECT_FALSE(FindModel("opt-13b")->rope);
  EXPECT_TRUE(FindModel("falcon-180b")->parallel);
}

// One window applies to all layers; a model that mixes windows counts as full attention.
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
  EXPECT_EQ(read("MistralForCausalLM", R"(, "model_type": "mistral", "sliding_window": 256)").window, 256);
  const std::string qwen =
      R"(, "model_type": "qwen2", "sliding_window": 256, "use_sliding_window": true, "max_window_layers": )";
  EXPECT_EQ(read("Qwen2ForCausalLM", qwen + "0").window, 256);
  EXPECT_EQ(read("Qwen2ForCausalLM", qwen + "2").window, 0);
  EXPECT_FALSE(read("Qwen2ForCausalLM", qwen + "2").qk_norm);
  EXPECT_TRUE(read("Qwen3ForCausalLM", R"(, "model_type": "qwen3", "head_dim": 64)").qk_norm);
  EXPECT_EQ(read("Qwen3ForCausalLM", R"(, "model_type": "qwen3", "head_dim": 64)").context, 2048);
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
