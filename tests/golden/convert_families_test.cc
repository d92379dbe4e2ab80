// `tactus models convert`: what formats cannot state is refused, and families that need more than renamed tensors.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/json.h"
#include "compute/convert/same_config.h"
#include "golden/convert_case.h"

namespace tactus::test {
namespace {

using compute::DType;
using compute::ModelConfig;
using compute::Role;

// A golden model whose config.json has other values, given as JSON.
std::string ModelWith(const TempFolder& folder, const std::string& golden,
                      const std::vector<std::pair<std::string, std::string>>& values) {
  const std::string in = folder.path() + "/in";
  std::filesystem::remove_all(in);
  std::filesystem::copy(GoldenFolder(golden), in);
  SortedJson config = SortedJson::parse(ReadFile(in + "/config.json"));
  for (const auto& [key, value] : values) config[key] = SortedJson::parse(value);
  folder.Write("in/config.json", config.dump());
  return in;
}

// Our reader accepts the names of several families, so a conversion back does not see these.
TEST(ConvertFolder, HunyuansNumbersOfExpertsHaveItsNames) {
  TempFolder folder;
  MustConvert(Model("gguf-hunyuan-moe"), To(folder.path() + "/m", DType::kBF16));
  const auto config = SortedJson::parse(ReadFile(folder.path() + "/m/config.json"));
  EXPECT_EQ(config.value("moe_topk", 0), 2);
  EXPECT_EQ(config.value("num_experts", 0), 8);
  EXPECT_EQ(config.value("intermediate_size", 0), 32);
  EXPECT_FALSE(config.contains("num_experts_per_tok") || config.contains("moe_intermediate_size"));
}

TEST(ConvertRefusals, FamiliesAndSettingsWithoutAPlaceAreNamed) {
  TempFolder folder;
  const ConvertOptions gguf = To(folder.path() + "/m.gguf", DType::kF16);
  EXPECT_REFUSED(Convert(Model("opt"), gguf).status(), StatusCode::kUnimplemented, "opt", "llama, ");
  EXPECT_REFUSED(Convert(Model("llama-dynamic"), gguf).status(), StatusCode::kUnimplemented, "llama",
                 "rotary positions");
  // GGUF files of these families state no such shape: readers assume the published one.
  EXPECT_REFUSED(Convert(Model("gemma3"), gguf).status(), StatusCode::kUnimplemented, "gemma3_text", "scale of its");
  EXPECT_REFUSED(Convert(Model("smollm3"), gguf).status(), StatusCode::kUnimplemented, "smollm3",
                 "which layers have rotary positions");
  EXPECT_REFUSED(Convert(Model("olmo3"), gguf).status(), StatusCode::kUnimplemented, "olmo3", "windows");
  EXPECT_REFUSED(Convert(Model("gemma3n"), gguf).status(), StatusCode::kUnimplemented, "gemma3n_text",
                 "the rank 8 of its low-rank blocks, for which readers assume 64", "write a folder");
  EXPECT_REFUSED(Convert(Model("llama4-pictures"), gguf).status(), StatusCode::kUnimplemented, "llama4_text",
                 "the norms of q, k and v", "write a folder");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ConvertRefusals, MixturesThatGgufCannotStateAreNamed) {
  TempFolder folder;
  const ConvertOptions gguf = To(folder.path() + "/m.gguf", DType::kF16);
  EXPECT_REFUSED(Convert(Model("flex-olmo"), gguf).status(), StatusCode::kUnimplemented, "flex_olmo", "olmoe, ");
  EXPECT_REFUSED(Convert(Model("qwen2-moe"), gguf).status(), StatusCode::kUnimplemented, "qwen2_moe",
                 "which layers have them");
  EXPECT_REFUSED(Convert(ModelWith(folder, "qwen3-moe", {{"norm_topk_prob", "false"}}), gguf).status(),
                 StatusCode::kUnimplemented, "qwen3_moe", "their router");
  EXPECT_REFUSED(Convert(Model("hunyuan-moe"), gguf).status(), StatusCode::kUnimplemented, "hunyuan_v1_moe",
                 "the numbers of experts of each layer and of a token", "write a folder");
  EXPECT_REFUSED(Convert(ModelWith(folder, "llama4", {{"attn_temperature_tuning", "false"}}), gguf).status(),
                 StatusCode::kUnimplemented, "llama4_text", "how its queries grow with their positions");
  EXPECT_REFUSED(Convert(ModelWith(folder, "llama4", {{"no_rope_layers", "[1, 1, 0, 0]"}}), gguf).status(),
                 StatusCode::kUnimplemented, "llama4_text", "which layers have rotary positions");
}

// GGUF files count such layers among the others, and these files have none.
TEST(Convert, LayersThatPredictFurtherTokensAreNotStated) {
  TempFolder folder;
  MustConvert(ModelWith(folder, "glm4-moe", {{"num_nextn_predict_layers", "1"}}),
              To(folder.path() + "/m.gguf", DType::kF32));
  const auto to = compute::DescribeModel(folder.path() + "/m.gguf");
  ASSERT_TRUE(to.ok());
  EXPECT_EQ(to->config.unused_layers, 0);
  EXPECT_EQ(to->config.num_layers(), 3);
}

// GGUF states it by a window of 0, and config.json by lists.
TEST(Convert, Llama4WithoutChunksIsStated) {
  TempFolder folder;
  constexpr const char* kFull = R"(["full_attention", "full_attention", "full_attention", "full_attention"])";
  const std::string in = ModelWith(folder, "llama4", {{"no_rope_layers", "[1, 1, 1, 1]"}, {"layer_types", kFull}});
  MustConvert(in, To(folder.path() + "/m.gguf", DType::kF32));
  MustConvert(folder.path() + "/m.gguf", To(folder.path() + "/m", DType::kF32));
  for (const char* out : {"/m.gguf", "/m"}) {
    const auto stated = compute::DescribeModel(folder.path() + out);
    ASSERT_TRUE(stated.ok());
    for (const compute::Layer& layer : stated->config.layers) {
      EXPECT_EQ(compute::AttentionOf(layer)->chunk, 0);
      EXPECT_EQ(compute::AttentionOf(layer)->rope, compute::RopeChoice::kMain);
    }
  }
}

// Only the text of published Llama 4 models is read, and a folder of it has another class.
TEST(ConvertFolder, TextOfAModelThatReadsPicturesIsAModelOfText) {
  for (const char* name : {"llama4-pictures", "gemma3-pictures", "mistral-small"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    const std::string out = folder.path() + "/m";
    const auto report = MustConvert(Model(name), To(out, DType::kBF16));
    ASSERT_EQ(report.notes.size(), 1u);
    EXPECT_NE(report.notes[0].find("text alone"), std::string::npos);
    EXPECT_EQ(ErrorOf(out, name), ErrorOf(Model(name), name));
    const SortedJson config = SortedJson::parse(ReadFile(out + "/config.json"));
    EXPECT_FALSE(config.contains("vision_config") || config.contains("text_config"));
    EXPECT_TRUE(config.at("architectures").at(0).get<std::string>().ends_with("ForCausalLM"));
    EXPECT_EQ(config.at("dtype"), "bfloat16");
  }
}

// transformers makes a module of each of Llama 4's experts if the folder is quantised, and one of all if it is not.
TEST(ConvertFolder, Llama4ExpertsAreStackedUnlessTheyAreIntegers) {
  TempFolder folder;
  MustConvert(Model("gguf-llama4"), ToIntegers(folder.path() + "/i", "w8a16"));
  EXPECT_TRUE(
      TensorBytes(folder.path() + "/i").contains("model.layers.3.feed_forward.experts.2.up_proj.weight_packed"));
  MustConvert(folder.path() + "/i", To(folder.path() + "/m", DType::kF32));
  EXPECT_TRUE(TensorBytes(folder.path() + "/m").contains("model.layers.3.feed_forward.experts.gate_up_proj"));
  EXPECT_EQ(MatrixRows(folder.path() + "/i"), MatrixRows(folder.path() + "/m"));
}

// A folder of the same tensors in f32, but for the rows of one.
void CutRows(const std::string& folder, const std::string& name, int64_t rows) {
  std::string header, data;
  {
    const auto set = compute::OpenSafetensorsFolder(folder);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    SortedJson json;
    for (const auto& [key, t] : set->tensors) {
      std::vector<int64_t> shape = t.shape;
      int64_t bytes = t.bytes;
      if (key == name) bytes = bytes / shape[0] * rows, shape[0] = rows;
      const auto first = static_cast<int64_t>(data.size());
      data.append(reinterpret_cast<const char*>(t.data), static_cast<size_t>(bytes));
      json[key] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {first, first + bytes}}};
    }
    header = json.dump();
  }
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << Safetensors(header, data);
}

// Tokens beyond the table of Gemma 3n's inputs have the first row's; GGUF files have a row for every token.
TEST(Convert, InputsOfTokensBeyondTheTableAreItsFirstRow) {
  TempFolder folder;
  const std::string in = folder.path() + "/in", out = folder.path() + "/m.gguf";
  MustConvert(Model("gguf-gemma3n"), To(in, DType::kF32));
  CutRows(in, "model.embed_tokens_per_layer.weight", 96);
  SortedJson config = SortedJson::parse(ReadFile(in + "/config.json"));
  config["vocab_size_per_layer_input"] = 96;
  folder.Write("in/config.json", config.dump());
  MustConvert(in, To(out, DType::kF32));
  const auto from = MatrixRows(in).at({-1, Role::kInputTable, -1}),
             to = MatrixRows(out).at({-1, Role::kInputTable, -1});
  ASSERT_EQ(from.size(), 96u);
  ASSERT_EQ(to.size(), 128u);
  for (size_t row = 0; row < to.size(); ++row) EXPECT_EQ(to[row], from[row < 96 ? row : 0]) << row;
}

template <class Block>
Block& BlockOf(ModelConfig& config) {
  for (compute::Layer& layer : config.layers) {
    for (compute::LayerBlock& b : layer) {
      if (auto* found = std::get_if<Block>(&b.block)) return *found;
    }
  }
  ADD_FAILURE() << "no such block";
  static Block none;
  return none;
}

struct ConfigChange {
  const char* model;
  std::function<void(ModelConfig&)> change;
  const char* difference;
};

// What a format leaves out is seen by the configuration that is read back.
TEST(SameConfig, EveryChangeOfALayerIsSeen) {
  using compute::AttentionBlock, compute::ExpertsBlock, compute::StreamsBlock, compute::LowRankBlock;
  using compute::GatedFeedForwardBlock;
  const ConfigChange changes[] = {
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).chunk = 0; }, "chunks"},
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).qk_norm = compute::QkNorm::kHeads; }, "norms of q"},
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).norms_last = false; }, "norms of q"},
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).query_offset = 2; }, "queries grow"},
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).query_length = 9; }, "queries grow"},
      {"llama4", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).query_beta = 0.5f; }, "queries grow"},
      {"llama4", [](ModelConfig& c) { BlockOf<ExpertsBlock>(c).router.weighs_input = false; }, "their router"},
      {"llama4", [](ModelConfig& c) { c.rope.interleaved = false; }, "rotary positions"},
      {"llama4", [](ModelConfig& c) { c.layers[1].pop_back(); }, "which layers have them"},
      {"hunyuan-moe", [](ModelConfig& c) { BlockOf<ExpertsBlock>(c).router.chosen = 3; }, "numbers of experts"},
      {"gemma4-experts", [](ModelConfig& c) { BlockOf<ExpertsBlock>(c).router.expert_scale = false; }, "router"},
      {"gemma4-experts", [](ModelConfig& c) { BlockOf<ExpertsBlock>(c).router_norm = {}; }, "router"},
      {"gemma4-experts", [](ModelConfig& c) { c.layers[0][2].joint = {}; }, "blocks, norms"},
      {"gemma4-experts", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).head_dim = 16; }, "shape of its attention"},
      {"gemma3n", [](ModelConfig& c) { BlockOf<GatedFeedForwardBlock>(c).cutoff = 1.0f; }, "gates become 0"},
      {"gemma3n", [](ModelConfig& c) { BlockOf<LowRankBlock>(c).rank = 4; }, "rank 8"},
      {"gemma3n", [](ModelConfig& c) { BlockOf<StreamsBlock>(c).streams = 4; }, "streams"},
      {"gemma3n", [](ModelConfig& c) { c.streams = 4; }, "streams"},
      {"gemma3n", [](ModelConfig& c) { c.layer_inputs.rows = 128; }, "inputs of each layer"},
      {"gemma3n", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).v_norm = false; }, "norms of q"},
      {"gemma3n", [](ModelConfig& c) { BlockOf<AttentionBlock>(c).kv_layer = 0; }, "share K and V"},
      {"gemma3n", [](ModelConfig& c) { c.layers[0][2].factor = 1.0f; }, "multipliers"},
      {"gemma3n", [](ModelConfig& c) { c.layers[0][5].to_others = false; }, "blocks"},
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    SCOPED_TRACE(i);
    const auto model = compute::DescribeModel(Model(changes[i].model));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    ModelConfig changed = model->config;
    EXPECT_EQ(compute::DifferenceOf(model->config, changed), "");
    changes[i].change(changed);
    const std::string difference = compute::DifferenceOf(model->config, changed);
    EXPECT_NE(difference.find(changes[i].difference), std::string::npos) << difference;
  }
}

}  // namespace
}  // namespace tactus::test
