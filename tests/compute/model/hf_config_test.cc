#include "compute/config/hf_config.h"
#include "base/json.h"

#include <cmath>

#include "compute/config/architecture.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::hf_config_test {
namespace {

using json = SortedJson;

constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr StatusCode kUnbuilt = StatusCode::kUnimplemented;

json Base(const std::string& hf_class = "LlamaForCausalLM") {
  return {{"architectures", {hf_class}}, {"hidden_size", 64},       {"num_hidden_layers", 4},
          {"num_attention_heads", 4},    {"intermediate_size", 96}, {"vocab_size", 100}};
}
json With(json base, const json& more) {
  base.update(more);
  return base;
}
Result<compute::ModelConfig> Parse(const json& j) {
  return compute::ConfigFromJson(j.dump(), "config.json");
}
compute::ModelConfig Good(const json& j) {
  Result<compute::ModelConfig> c = Parse(j);
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  return c.ok() ? *c : compute::ModelConfig();
}

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

json Gemma4() {
  return With(Base("Gemma4ForCausalLM"), {{"num_hidden_layers", 6},
                                          {"num_key_value_heads", 2},
                                          {"head_dim", 16},
                                          {"sliding_window", 8},
                                          {"num_kv_shared_layers", 2},
                                          {"layer_types",
                                           {"sliding_attention", "full_attention", "sliding_attention",
                                            "full_attention", "sliding_attention", "full_attention"}}});
}

const compute::AttentionBlock& AttentionAt(const compute::ModelConfig& c, size_t layer) {
  return *compute::AttentionOf(c.layers.at(layer));
}

TEST(HfConfig, Gemma4StatesHeadsOfFullLayersInEitherForm) {
  const json global = {{"global_head_dim", 32}, {"num_global_key_value_heads", 1}, {"attention_k_eq_v", true}};
  const json by_layer = {{"head_dim", 32}, {"num_key_value_heads", 1}};
  json newer = {{"attention_k_eq_v", true}, {"per_layer_config", {{"1", by_layer}, {"3", by_layer}, {"5", by_layer}}}};
  for (const json& more : {global, newer}) {
    const compute::ModelConfig c = Good(With(Gemma4(), more));
    EXPECT_EQ(AttentionAt(c, 0).head_dim, 16);
    EXPECT_EQ(AttentionAt(c, 0).kv_heads, 2);
    EXPECT_EQ(AttentionAt(c, 0).window, 8);
    EXPECT_FALSE(AttentionAt(c, 0).k_is_v);
    EXPECT_EQ(AttentionAt(c, 1).head_dim, 32);
    EXPECT_EQ(AttentionAt(c, 1).kv_heads, 1);
    EXPECT_EQ(AttentionAt(c, 1).window, 0);
    EXPECT_TRUE(AttentionAt(c, 1).k_is_v);
    EXPECT_EQ(AttentionAt(c, 3).kv_layer, -1);
    EXPECT_EQ(AttentionAt(c, 4).kv_layer, 2);
    EXPECT_EQ(AttentionAt(c, 5).kv_layer, 3);
    EXPECT_EQ(c.rope.scaling, compute::RopeScaling::kProportional);
    EXPECT_EQ(c.rope.proportion, 0.25f);
  }
}

// Both read the stream after the attention, and one norm takes their sum.
TEST(HfConfig, Gemma4HasExpertsBesideItsFeedForwardBlock) {
  json file = With(Gemma4(), {{"enable_moe_block", true},
                              {"num_experts", 8},
                              {"top_k_experts", 2},
                              {"moe_intermediate_size", 24},
                              {"hidden_size_per_layer_input", 8}});
  file["vocab_size_per_layer_input"] = file["vocab_size"];
  const compute::ModelConfig c = Good(file);
  const compute::Layer& layer = c.layers.at(0);
  ASSERT_EQ(layer.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<compute::GatedFeedForwardBlock>(layer[1].block));
  EXPECT_FALSE(layer[1].joint.exists());
  const auto& experts = std::get<compute::ExpertsBlock>(layer[2].block);
  EXPECT_EQ(layer[2].joint.weight, compute::Role::kFeedForwardPostNorm);
  EXPECT_EQ(experts.experts, 8);
  EXPECT_EQ(experts.expert.inner, 24);
  EXPECT_EQ(experts.router.chosen, 2);
  EXPECT_TRUE(experts.router.renormalise);
  EXPECT_FLOAT_EQ(experts.router.logit_scale, 1.0f / std::sqrt(static_cast<float>(c.hidden_size)));
  EXPECT_EQ(layer[3].scale, compute::Role::kLayerScale) << "after the layer's last block";
  for (const char* name : {"moe_intermediate_size", "num_experts"}) {
    json less = file;
    less.erase(name);
    EXPECT_REFUSED(Parse(less).status(), kLoss, std::string("'") + name + "' is missing");
  }
}

TEST(HfConfig, Gemma4RefusesWhatItDoesNotSupport) {
  EXPECT_REFUSED(Parse(With(Gemma4(), {{"use_bidirectional_attention", "all"}})).status(), kLoss,
                 "'use_bidirectional_attention' is 'all'");
  EXPECT_REFUSED(Parse(With(Gemma4(), {{"num_kv_shared_layers", 6}})).status(), kLoss,
                 "'num_kv_shared_layers' is 6, and no earlier layer");
  EXPECT_REFUSED(
      Parse(With(Gemma4(), {{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 99}})).status(), kLoss,
      "'vocab_size_per_layer_input' is 99");
}

json Gemma3n() {
  return With(Base("Gemma3nForCausalLM"),
              {{"num_hidden_layers", 5},
               {"head_dim", 16},
               {"intermediate_size", {96, 96, 64, 96, 96}},
               {"num_kv_shared_layers", 2},
               {"layer_types",
                {"sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"}},
               {"activation_sparsity_pattern", {0.95, 0.5, 0.0, 0.0, 0.0}},
               {"vocab_size_per_layer_input", 90}});
}

TEST(HfConfig, Gemma3nHasStreamsAndWidthsOfLayers) {
  const compute::ModelConfig c = Good(Gemma3n());
  EXPECT_EQ(c.streams, 4);
  EXPECT_EQ(c.layer_inputs.size, 256);
  EXPECT_EQ(c.layer_inputs.rows, 90);
  EXPECT_EQ(c.logits_softcap, 30.0f);
  ASSERT_EQ(c.layers.at(0).size(), 6u);
  const auto feed_forward = [&](size_t l) { return std::get<compute::GatedFeedForwardBlock>(c.layers[l][3].block); };
  EXPECT_EQ(feed_forward(1).inner, 96);
  EXPECT_EQ(feed_forward(2).inner, 64);
  EXPECT_NEAR(feed_forward(0).cutoff, 1.6448536, 1e-6);
  EXPECT_NEAR(feed_forward(1).cutoff, 0.0, 1e-6);
  EXPECT_TRUE(feed_forward(1).cuts());
  EXPECT_FALSE(feed_forward(2).cuts());
  EXPECT_EQ(AttentionAt(c, 3).kv_layer, 2);
  EXPECT_EQ(AttentionAt(c, 4).kv_layer, 1);
  EXPECT_EQ(AttentionAt(c, 4).rope, compute::RopeChoice::kMain);
  EXPECT_EQ(c.rope.theta, 1e6f);
  EXPECT_EQ(c.local_rope->theta, 1e4f);
  EXPECT_EQ(std::get<compute::LowRankBlock>(c.layers[0][1].block).rank, 64);
}

TEST(HfConfig, Gemma3nRefusesWhatItDoesNotSupport) {
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"altup_active_idx", 1}})).status(), kLoss, "'altup_active_idx' is not 0");
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"altup_correct_scale", false}})).status(), kLoss,
                 "'altup_correct_scale' is false");
  EXPECT_FALSE(Parse(With(Gemma3n(), {{"altup_num_inputs", 9}})).ok());
  EXPECT_FALSE(Parse(With(Gemma3n(), {{"altup_num_inputs", 1}})).ok());
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"activation_sparsity_pattern", {0.5}}})).status(), kLoss,
                 "'activation_sparsity_pattern' has 1 entries for 5 layers");
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"activation_sparsity_pattern", {1.0, 0.0, 0.0, 0.0, 0.0}}})).status(), kLoss,
                 "'activation_sparsity_pattern' holds 1.0");
  EXPECT_FALSE(Parse(With(Gemma3n(), {{"intermediate_size", {96, 96}}})).ok());
  EXPECT_REFUSED(Parse(With(Base(), {{"intermediate_size", {96, 96, 96, 96}}})).status(), kLoss, "intermediate_size");
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

TEST(HfConfig, HunyuansAlphaStretchesTheBase) {
  const compute::ModelConfig c = Good(With(
      Base("HunYuanDenseV1ForCausalLM"),
      {{"max_position_embeddings", 512}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 1.0}, {"alpha", 1000.0}}}}));
  EXPECT_EQ(c.rope.scaling, compute::RopeScaling::kNone);
  EXPECT_FLOAT_EQ(c.rope.theta, static_cast<float>(10000.0 * std::pow(1000.0, 16.0 / 14.0)));
  EXPECT_EQ(c.max_position, 512);
  EXPECT_TRUE(test::AttentionIn(c).norms_last);
}

json Llama4(const json& more = json::object()) {
  return With(With(Base("Llama4ForCausalLM"), {{"num_hidden_layers", 8},
                                               {"head_dim", 16},
                                               {"num_key_value_heads", 2},
                                               {"intermediate_size_mlp", 200},
                                               {"attention_chunk_size", 32},
                                               {"num_local_experts", 4},
                                               {"interleave_moe_layer_step", 2}}),
              more);
}

TEST(HfConfig, Llama4HasChunksRotationAndExpertsByPeriod) {
  const compute::ModelConfig c = Good(Llama4());
  EXPECT_TRUE(c.rope.interleaved);
  EXPECT_EQ(c.rope.theta, 5e5f);
  for (size_t l = 0; l < 8; ++l) {
    const compute::AttentionBlock& a = AttentionAt(c, l);
    const bool rotary = l % 4 != 3;
    EXPECT_EQ(a.chunk, rotary ? 32 : 0) << l;
    EXPECT_EQ(a.rope, rotary ? compute::RopeChoice::kMain : compute::RopeChoice::kNone) << l;
    EXPECT_EQ(a.qk_norm, rotary ? compute::QkNorm::kUnitHeads : compute::QkNorm::kNone) << l;
    EXPECT_EQ(a.query_beta, rotary ? 0.0f : 0.1f) << l;
    EXPECT_EQ(a.query_length, rotary ? 0 : 8192) << l;
    const compute::ExpertsBlock* const experts = compute::ExpertsOf(c.layers[l]);
    ASSERT_EQ(experts != nullptr, l % 2 == 1) << l;
    if (experts == nullptr) {
      EXPECT_EQ(test::FeedForwardIn(c, l).inner, 200);
      continue;
    }
    EXPECT_EQ(experts->expert.inner, 96);
    EXPECT_EQ(experts->shared_inner, 96);
    EXPECT_TRUE(experts->router.weighs_input);
    EXPECT_EQ(experts->router.score, compute::RouterScore::kChosenSigmoid);
  }
}

TEST(HfConfig, Llama4MayListItsLayers) {
  const compute::ModelConfig c = Good(Llama4({{"no_rope_layers", {0, 1, 1, 1, 1, 1, 1, 1}},
                                              {"moe_layers", {0, 3}},
                                              {"use_qk_norm", false},
                                              {"rope_theta", 1e4},
                                              {"attn_scale", 0.25},
                                              {"floor_scale", 64}}));
  EXPECT_EQ(AttentionAt(c, 0).rope, compute::RopeChoice::kNone);
  EXPECT_EQ(AttentionAt(c, 0).query_beta, 0.25f);
  EXPECT_EQ(AttentionAt(c, 0).query_length, 64);
  EXPECT_EQ(AttentionAt(c, 0).query_offset, 1);
  EXPECT_EQ(AttentionAt(c, 3).rope, compute::RopeChoice::kMain);
  EXPECT_EQ(AttentionAt(c, 3).qk_norm, compute::QkNorm::kNone);
  EXPECT_EQ(c.rope.theta, 1e4f);
  for (size_t l = 0; l < 8; ++l) EXPECT_EQ(compute::ExpertsOf(c.layers[l]) != nullptr, l == 0 || l == 3) << l;
  // Early files have a number for the flag.
  EXPECT_EQ(AttentionAt(Good(Llama4({{"attn_temperature_tuning", 4}})), 3).query_beta, 0.1f);
  EXPECT_EQ(AttentionAt(Good(Llama4({{"attn_temperature_tuning", true}})), 3).query_beta, 0.1f);
  EXPECT_EQ(AttentionAt(Good(Llama4({{"attn_temperature_tuning", false}})), 3).query_beta, 0.0f);
  const json full(8, "full_attention");
  EXPECT_EQ(AttentionAt(Good(Llama4({{"layer_types", full}})), 0).chunk, 0);
  EXPECT_EQ(AttentionAt(Good(Llama4({{"layer_types", full}})), 0).rope, compute::RopeChoice::kMain);
  EXPECT_REFUSED(Parse(Llama4({{"no_rope_layers", {1, 0}}})).status(), kLoss,
                 "'no_rope_layers' has 2 entries for 8 layers");
  EXPECT_REFUSED(Parse(Llama4({{"layer_types", {"full_attention"}}})).status(), kLoss,
                 "'layer_types' has 1 entries for 8 layers");
}

TEST(HfConfig, HunyuanStatesExpertsForAllLayersOrEach) {
  const json base = With(Base("HunYuanMoEV1ForCausalLM"), {{"num_experts", 8}, {"moe_topk", 2}});
  const compute::ModelConfig alike = Good(base);
  const compute::ModelConfig listed = Good(With(base, {{"num_experts", {8, 8, 4, 8}},
                                                       {"moe_topk", {2, 2, 3, 2}},
                                                       {"moe_intermediate_size", {96, 96, 96, 96}},
                                                       {"num_shared_expert", {1, 1, 1, 1}}}));
  for (size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(compute::ExpertsOf(alike.layers[l])->experts, 8);
    EXPECT_EQ(compute::ExpertsOf(alike.layers[l])->router.chosen, 2);
    EXPECT_EQ(compute::ExpertsOf(listed.layers[l])->experts, l == 2 ? 4 : 8);
    EXPECT_EQ(compute::ExpertsOf(listed.layers[l])->router.chosen, l == 2 ? 3 : 2);
    EXPECT_EQ(compute::ExpertsOf(listed.layers[l])->shared_inner, 96);
    EXPECT_TRUE(compute::ExpertsOf(listed.layers[l])->router.renormalise);
    EXPECT_TRUE(AttentionAt(listed, l).norms_last);
  }
  EXPECT_REFUSED(Parse(With(base, {{"moe_topk", {2, 2}}})).status(), kLoss, "'moe_topk' has 2 entries for 4 layers");
  EXPECT_REFUSED(Parse(With(base, {{"num_experts", -1}})).status(), kLoss, "'num_experts' holds");
  EXPECT_REFUSED(Parse(With(base, {{"moe_intermediate_size", 48}})).status(), kLoss,
                 "'moe_intermediate_size' holds another number than 96");
  EXPECT_REFUSED(Parse(With(base, {{"num_shared_expert", {1, 2, 1, 1}}})).status(), kLoss,
                 "'num_shared_expert' holds another number than 1");
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
  }
  EXPECT_EQ(compute::FindGgufArchitecture(""), nullptr);
  EXPECT_EQ(compute::kGgufTensorNames.Name(compute::Role::kQ, 31), "blk.31.attn_q.weight");
  EXPECT_EQ(compute::kGgufTensorNames.Name(compute::Role::kEmbedding), "token_embd.weight");
}

}  // namespace
}  // namespace tactus::hf_config_test
