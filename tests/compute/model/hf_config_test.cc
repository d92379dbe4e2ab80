#include "compute/config/hf_config.h"

#include "compute/config/architecture.h"
#include "compute/model/hf_json.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::hf_config_test {
namespace {

using test::Base;
using test::Good;
using test::json;
using test::Parse;
using test::With;

constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr StatusCode kUnbuilt = StatusCode::kUnimplemented;

TEST(HfConfig, LlamaDefaultsAreThoseOfTransformers) {
  const compute::ModelConfig c = Good(Base());
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(test::AttentionIn(c).kv_heads, 4);
  EXPECT_EQ(test::AttentionIn(c).head_dim, 16);
  EXPECT_EQ(c.max_position, 2048);
  EXPECT_EQ(test::AttentionIn(c).norm_eps, 1e-6f);
  EXPECT_EQ(c.rope.theta, 10000.0f);
  EXPECT_FALSE(c.tie_embeddings);
  EXPECT_FALSE(test::AttentionIn(c).qkv_bias || test::AttentionIn(c).o_bias || test::FeedForwardIn(c).bias ||
               test::AttentionIn(c).qk_norm != compute::QkNorm::kNone);
  EXPECT_EQ(c.Windows(), std::vector<int32_t>(4, 0));
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.stop_ids, std::vector<TokenId>{2});
  EXPECT_FALSE(c.rope.interleaved);
}

TEST(HfConfig, ReadsLlamaFields) {
  const compute::ModelConfig c = Good(With(Base(), {{"num_key_value_heads", 2},
                                                    {"head_dim", 32},
                                                    {"rms_norm_eps", 1e-5},
                                                    {"max_position_embeddings", 8192},
                                                    {"rope_theta", 500000.0},
                                                    {"tie_word_embeddings", true},
                                                    {"attention_bias", true},
                                                    {"mlp_bias", true},
                                                    {"eos_token_id", {5, 6}},
                                                    {"bos_token_id", 9},
                                                    {"torch_dtype", "float16"}}));
  EXPECT_EQ(test::AttentionIn(c).kv_heads, 2);
  EXPECT_EQ(test::AttentionIn(c).head_dim, 32);
  EXPECT_EQ(c.max_position, 8192);
  EXPECT_TRUE(c.tie_embeddings && test::AttentionIn(c).qkv_bias && test::AttentionIn(c).o_bias &&
              test::FeedForwardIn(c).bias);
  EXPECT_EQ(c.stop_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(c.bos_id, 9);
  EXPECT_EQ(c.weight_dtype, compute::DType::kF16);
}

TEST(HfConfig, NullMeansAbsentButNotForEos) {
  const compute::ModelConfig c = Good(With(Base(), {{"num_key_value_heads", nullptr},
                                                    {"head_dim", nullptr},
                                                    {"rope_scaling", nullptr},
                                                    {"eos_token_id", nullptr},
                                                    {"bos_token_id", nullptr}}));
  EXPECT_EQ(test::AttentionIn(c).kv_heads, 4);
  EXPECT_EQ(test::AttentionIn(c).head_dim, 16);
  EXPECT_TRUE(c.stop_ids.empty());
  EXPECT_EQ(c.bos_id, -1);
}

TEST(HfConfig, ReadsMistralWindow) {
  const json base = With(Base("MistralForCausalLM"), {{"num_key_value_heads", 2}});
  EXPECT_EQ(Good(base).Windows(), std::vector<int32_t>(4, 4096)) << "an absent key means transformers' default";
  EXPECT_EQ(Good(With(base, {{"sliding_window", nullptr}})).Windows(), std::vector<int32_t>(4, 0));
  EXPECT_EQ(Good(With(base, {{"sliding_window", 128}})).Windows(), std::vector<int32_t>(4, 128));
  EXPECT_EQ(Good(base).max_position, 131072);
  EXPECT_REFUSED(Parse(Base("MistralForCausalLM")).status(), StatusCode::kInvalidArgument, "num_kv_heads 8");
}

TEST(HfConfig, ReadsQwenWindows) {
  const json base = With(Base("Qwen2ForCausalLM"), {{"num_key_value_heads", 2}});
  EXPECT_EQ(Good(With(base, {{"sliding_window", 64}, {"max_window_layers", 2}})).Windows(), std::vector<int32_t>(4, 0));
  const json used = With(base, {{"sliding_window", 64}, {"use_sliding_window", true}});
  EXPECT_EQ(Good(With(used, {{"max_window_layers", 2}})).Windows(), (std::vector<int32_t>{0, 0, 64, 64}));
  EXPECT_EQ(Good(used).Windows(), std::vector<int32_t>(4, 0)) << "max_window_layers is 28 by default";
  EXPECT_EQ(
      Good(With(used, {{"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}}}))
          .Windows(),
      (std::vector<int32_t>{0, 64, 0, 0}));
  EXPECT_REFUSED(Parse(With(used, {{"layer_types", {"full_attention"}}})).status(), kLoss, "layer_types",
                 "1 entries for 4");
  EXPECT_REFUSED(Parse(With(used, {{"layer_types", json(std::vector<std::string>(4, "linear_attention"))}})).status(),
                 kLoss, "linear_attention");
}

// EXAONE 4 states its windows as a list of types beside a pattern of letters, or as a period.
TEST(HfConfig, ReadsExaoneWindows) {
  const json base = With(Base("Exaone4ForCausalLM"), {{"num_key_value_heads", 4}, {"sliding_window", 16}});
  const std::vector<int32_t> mixed = {16, 16, 0, 16};
  const json types = {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(Good(With(base, {{"layer_types", types}, {"sliding_window_pattern", "LLGL"}})).Windows(), mixed);
  EXPECT_EQ(Good(With(base, {{"sliding_window_pattern", 2}})).Windows(), (std::vector<int32_t>{16, 0, 16, 0}));
  EXPECT_EQ(Good(base).Windows(), (std::vector<int32_t>{16, 16, 16, 0}));
}

TEST(HfConfig, ReadsQwenFeatures) {
  const compute::ModelConfig q2 =
      Good(With(Base("Qwen2ForCausalLM"), {{"num_key_value_heads", 2}, {"tie_word_embeddings", true}}));
  EXPECT_TRUE(test::AttentionIn(q2).qkv_bias);
  EXPECT_FALSE(test::AttentionIn(q2).o_bias || test::AttentionIn(q2).qk_norm != compute::QkNorm::kNone);
  EXPECT_TRUE(q2.tie_embeddings);
  EXPECT_EQ(q2.max_position, 32768);
  EXPECT_TRUE(q2.stop_ids.empty());
  const compute::ModelConfig q3 = Good(With(Base("Qwen3ForCausalLM"), {{"num_key_value_heads", 2}}));
  EXPECT_EQ(test::AttentionIn(q3).qk_norm, compute::QkNorm::kHeads);
  EXPECT_FALSE(test::AttentionIn(q3).qkv_bias);
  EXPECT_EQ(test::AttentionIn(q3).head_dim, 128) << "stated separately, not hidden_size / heads";
  const compute::ModelConfig biased =
      Good(With(Base("Qwen3ForCausalLM"), {{"num_key_value_heads", 2}, {"attention_bias", true}}));
  EXPECT_TRUE(test::AttentionIn(biased).o_bias);
}

TEST(HfConfig, RopeScalingInEverySpelling) {
  const json base = With(Base(), {{"max_position_embeddings", 1000}});
  for (const char* key : {"type", "rope_type"}) {
    const compute::ModelConfig linear = Good(With(base, {{"rope_scaling", {{key, "linear"}, {"factor", 4.0}}}}));
    EXPECT_EQ(linear.rope.scaling, compute::RopeScaling::kLinear);
    EXPECT_EQ(linear.rope.factor, 4.0f);
    EXPECT_EQ(linear.max_position, 4000);
    const compute::ModelConfig dynamic = Good(With(base, {{"rope_scaling", {{key, "dynamic"}, {"factor", 2.0}}}}));
    EXPECT_EQ(dynamic.rope.scaling, compute::RopeScaling::kDynamic);
    EXPECT_EQ(dynamic.rope.original_max_position, 1000);
    EXPECT_EQ(dynamic.max_position, 2000);
    const compute::ModelConfig llama3 = Good(With(base, {{"rope_theta", 5e5},
                                                         {"rope_scaling",
                                                          {{key, "llama3"},
                                                           {"factor", 8.0},
                                                           {"low_freq_factor", 1.0},
                                                           {"high_freq_factor", 4.0},
                                                           {"original_max_position_embeddings", 250}}}}));
    EXPECT_EQ(llama3.rope.scaling, compute::RopeScaling::kLlama3);
    EXPECT_EQ(llama3.rope.theta, 5e5f);
    EXPECT_EQ(llama3.rope.original_max_position, 250);
    EXPECT_EQ(llama3.rope.high_freq_factor, 4.0f);
    EXPECT_EQ(llama3.max_position, 1000);
  }
  const compute::ModelConfig newer =
      Good(With(base, {{"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 123.0}, {"factor", 2.0}}}}));
  EXPECT_EQ(newer.rope.scaling, compute::RopeScaling::kLinear);
  EXPECT_EQ(newer.rope.theta, 123.0f);
  EXPECT_EQ(Good(With(base, {{"rope_parameters", {{"rope_theta", 9.0}}}})).rope.scaling, compute::RopeScaling::kNone);
}

TEST(HfConfig, SectionsOfPositionsArePlainForText) {
  const compute::ModelConfig c =
      Good(With(Base(), {{"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}}}}));
  EXPECT_EQ(c.rope.scaling, compute::RopeScaling::kNone);
  EXPECT_EQ(c.rope.rotary_dim, 0);
}

TEST(HfConfig, RefusesUnsupportedRopeScaling) {
  for (const char* type : {"spiral", "axial", ""}) {
    EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", {{"type", type}, {"factor", 2.0}}}})).status(), kUnbuilt,
                   "'" + std::string(type) + "'", "llama3");
  }
  for (const char* type : {"longrope", "su"}) {
    EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", {{"type", type}, {"short_factor", {1.0, 2.0}}}}})).status(),
                   StatusCode::kInvalidArgument, "two lists of 8", "one has 2");
  }
  EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", {{"type", "linear"}}}})).status(), kLoss, "rope_scaling.factor",
                 "missing");
  EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}})).status(),
                 StatusCode::kInvalidArgument, "0.5");
  EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}})).status(), kLoss,
                 "rope_scaling.low_freq_factor");
  EXPECT_REFUSED(Parse(With(Base(), {{"rope_scaling", 3}})).status(), kLoss, "rope_scaling", "not an object");
  EXPECT_REFUSED(Parse(With(Base(), {{"partial_rotary_factor", 1.5}})).status(), StatusCode::kInvalidArgument,
                 "rotary_dim is 24", "16");
}

TEST(HfConfig, RefusesUnsupportedFeaturesByName) {
  EXPECT_REFUSED(Parse(Base("T5ForConditionalGeneration")).status(), kUnbuilt, "T5ForConditionalGeneration",
                 "Qwen3ForCausalLM", "config.json");
  EXPECT_REFUSED(Parse({{"model_type", "t5"}}).status(), kUnbuilt, "'t5'");
  EXPECT_REFUSED(Parse(json::object()).status(), kUnbuilt, "neither 'architectures' nor 'model_type'");
  EXPECT_REFUSED(Parse(With(Base(), {{"hidden_act", "mish"}})).status(), kUnbuilt, "mish");
  EXPECT_REFUSED(compute::ConfigFromJson("{", "c.json").status(), kLoss, "c.json", "not valid JSON");
  EXPECT_REFUSED(compute::ConfigFromJson("[]", "c.json").status(), kLoss, "not a JSON object");
  EXPECT_REFUSED(compute::ConfigFromJson(std::string(100000, '['), "c.json").status(), kLoss, "c.json");
  json by_type = Base();
  by_type.erase("architectures");
  by_type["model_type"] = "qwen2";
  by_type["num_key_value_heads"] = 4;
  EXPECT_EQ(Good(by_type).architecture, "qwen2");
}

TEST(HfConfig, OutOfRangeFieldsAreNamed) {
  for (const char* field :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    json missing = Base();
    missing.erase(field);
    EXPECT_REFUSED(Parse(missing).status(), kLoss, field, "missing");
    EXPECT_FALSE(Parse(With(Base(), {{field, "64"}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, 0}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, -1}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, INT64_MAX}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, UINT64_MAX}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, 1.5}})).ok());
    EXPECT_FALSE(Parse(With(Base(), {{field, 1e300}})).ok());
  }
  EXPECT_REFUSED(Parse(With(Base(), {{"num_key_value_heads", 3}})).status(), StatusCode::kInvalidArgument,
                 "num_heads 4", "num_kv_heads 3");
  EXPECT_REFUSED(Parse(With(Base(), {{"head_dim", 15}})).status(), StatusCode::kInvalidArgument, "head_dim is 15",
                 "even");
  EXPECT_REFUSED(Parse(With(Base(), {{"hidden_size", 66}})).status(), kLoss, "66", "num_attention_heads 4");
  EXPECT_REFUSED(Parse(With(Base(), {{"eos_token_id", 100}})).status(), kLoss, "eos_token_id", "100");
  EXPECT_REFUSED(Parse(With(Base(), {{"eos_token_id", {2, "x"}}})).status(), kLoss, "eos_token_id");
  EXPECT_REFUSED(Parse(With(Base(), {{"bos_token_id", 1000}})).status(), kLoss, "bos_token_id");
  EXPECT_REFUSED(Parse(With(Base(), {{"rms_norm_eps", 0.0}})).status(), StatusCode::kInvalidArgument, "rms_eps");
  EXPECT_REFUSED(Parse(With(Base(), {{"rope_theta", -1.0}})).status(), StatusCode::kInvalidArgument, "theta");
}

TEST(HfConfig, PeriodsAndLayersAreWholeNumbers) {
  const json windows = {{"num_key_value_heads", 4}, {"sliding_window", 16}};
  for (const auto& [name, key] : {std::pair("Gemma3ForCausalLM", "sliding_window_pattern"),
                                  std::pair("Exaone4ForCausalLM", "sliding_window_pattern"),
                                  std::pair("SmolLM3ForCausalLM", "no_rope_layer_interval"),
                                  std::pair("Ernie4_5_MoeForCausalLM", "moe_layer_end_index")}) {
    const json base = With(Base(name), windows);
    EXPECT_TRUE(Parse(With(base, {{key, 3}})).ok()) << Parse(With(base, {{key, 3}})).status().message();
    EXPECT_REFUSED(Parse(With(base, {{key, 2.5}})).status(), kLoss, key, "is 2.5", "0 to 16777215");
    EXPECT_REFUSED(Parse(With(base, {{key, 1e300}})).status(), kLoss, key, "is 1e+300", "0 to 16777215");
    const bool last = std::string_view(key) == "moe_layer_end_index";  // below 0: the last layer
    EXPECT_EQ(Parse(With(base, {{key, -1}})).ok(), last) << name;
  }
}

TEST(HfConfig, AModelThatReadsPicturesIsItsText) {
  json text = Base("");
  text.erase("architectures");
  text["model_type"] = "mistral";
  text["num_key_value_heads"] = 2;
  text["eos_token_id"] = 3;
  json whole = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                {"model_type", "mistral3"},
                {"vision_config", {{"hidden_size", 8}}},
                {"eos_token_id", 7},
                {"tie_word_embeddings", true},
                {"text_config", text}};
  const compute::ModelConfig c = Good(whole);
  EXPECT_EQ(c.architecture, "mistral");
  EXPECT_TRUE(c.text_part);
  EXPECT_TRUE(c.tie_embeddings);
  EXPECT_EQ(c.stop_ids, std::vector<TokenId>{7});
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_NE(c.warnings[0].find("pictures"), std::string::npos);
  whole["text_config"].erase("hidden_size");
  EXPECT_REFUSED(Parse(whole).status(), kLoss, "'text_config.hidden_size' is missing");
  whole["text_config"]["model_type"] = "mamba";
  EXPECT_REFUSED(Parse(whole).status(), kUnbuilt, "model_type 'mamba' is not supported");
}

// As Gemma 3 4B is published: transformers fills the rest, and the context is stated after scaling.
TEST(HfConfig, Gemma3StatesLittleOfItsText) {
  const compute::ModelConfig c = Good({{"model_type", "gemma3"},
                                       {"text_config",
                                        {{"model_type", "gemma3_text"},
                                         {"hidden_size", 2560},
                                         {"intermediate_size", 10240},
                                         {"num_hidden_layers", 34},
                                         {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                         {"sliding_window", 1024}}}});
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(test::AttentionIn(c).heads, 8);
  EXPECT_EQ(test::AttentionIn(c).kv_heads, 4);
  EXPECT_EQ(test::AttentionIn(c).window, 1024);
  EXPECT_EQ(c.max_position, 131072);
  EXPECT_EQ(c.rope.factor, 8.0f);
  EXPECT_EQ(c.local_rope->scaling, compute::RopeScaling::kNone);
}

TEST(Architectures, RowsAreComplete) {
  EXPECT_GE(compute::Architectures().size(), 4u);
  for (const compute::Architecture* a : compute::Architectures()) {
    EXPECT_EQ(compute::FindArchitecture(a->name), a);
    EXPECT_EQ(compute::FindHfArchitecture(a->hf_class), a);
    EXPECT_EQ(compute::FindHfArchitectureByType(a->hf_model_type), a);
    EXPECT_EQ(compute::FindGgufArchitecture(a->gguf_name), a->gguf_name.empty() ? nullptr : a);
    EXPECT_NE(a->hf_names, nullptr);
    EXPECT_NE(a->gguf_names, nullptr);
    // A family of another one's files has no name in them.
    EXPECT_EQ(compute::FindGgufArchitecture(a->gguf_read_as) != nullptr, !a->gguf_read_as.empty()) << a->name;
    EXPECT_TRUE(a->gguf_name.empty() || a->gguf_read_as.empty()) << a->name;
    EXPECT_TRUE(!a->gguf_read_as.empty() || a->is_of_gguf == nullptr) << a->name;
  }
  EXPECT_EQ(compute::FindGgufArchitecture(""), nullptr);
  EXPECT_EQ(compute::kGgufTensorNames.Name(compute::Role::kQ, 31), "blk.31.attn_q.weight");
  EXPECT_EQ(compute::kGgufTensorNames.Name(compute::Role::kEmbedding), "token_embd.weight");
}

}  // namespace
}  // namespace tactus::hf_config_test
