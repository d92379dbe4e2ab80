// config.json of the families with settings of their layers: Gemma 3n and 4, Llama 4 and Hunyuan.
#include <algorithm>
#include <cmath>

#include "compute/model/hf_json.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::family_config_test {
namespace {

using test::Base;
using test::Good;
using test::json;
using test::Parse;
using test::With;

constexpr StatusCode kLoss = StatusCode::kDataLoss;

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

TEST(FamilyConfig, Gemma4StatesHeadsOfFullLayersInEitherForm) {
  const json global = {{"global_head_dim", 32}, {"num_global_key_value_heads", 1}, {"attention_k_eq_v", true}};
  const json by_layer = {{"head_dim", 32}, {"num_key_value_heads", 1}};
  json newer = {{"attention_k_eq_v", true}, {"per_layer_config", {{"1", by_layer}, {"3", by_layer}, {"5", by_layer}}}};
  for (const json& more : {global, newer}) {
    const compute::ModelConfig c = Good(With(Gemma4(), more));
    EXPECT_EQ(test::AttentionIn(c, 0).head_dim, 16);
    EXPECT_EQ(test::AttentionIn(c, 0).kv_heads, 2);
    EXPECT_EQ(test::AttentionIn(c, 0).window, 8);
    EXPECT_FALSE(test::AttentionIn(c, 0).k_is_v);
    EXPECT_EQ(test::AttentionIn(c, 1).head_dim, 32);
    EXPECT_EQ(test::AttentionIn(c, 1).kv_heads, 1);
    EXPECT_EQ(test::AttentionIn(c, 1).window, 0);
    EXPECT_TRUE(test::AttentionIn(c, 1).k_is_v);
    EXPECT_EQ(test::AttentionIn(c, 3).kv_layer, -1);
    EXPECT_EQ(test::AttentionIn(c, 4).kv_layer, 2);
    EXPECT_EQ(test::AttentionIn(c, 5).kv_layer, 3);
    EXPECT_EQ(c.rope.scaling, compute::RopeScaling::kProportional);
    EXPECT_EQ(c.rope.proportion, 0.25f);
  }
}

// Both read the stream after the attention, and one norm takes their sum.
TEST(FamilyConfig, Gemma4HasExpertsBesideItsFeedForwardBlock) {
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

// transformers has no experts in models of this class.
TEST(FamilyConfig, Gemma4UnifiedRefusesExperts) {
  json file = With(Gemma4(), {{"enable_moe_block", true}, {"num_experts", 8}, {"moe_intermediate_size", 24}});
  file["architectures"] = {"Gemma4UnifiedForCausalLM"};
  EXPECT_REFUSED(Parse(file).status(), kLoss, "'enable_moe_block' is true");
  file["enable_moe_block"] = false;
  EXPECT_EQ(Good(file).layers.at(0).size(), 2u);
}

TEST(FamilyConfig, Gemma4RefusesNumbersThatAreNotWhole) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, double>>{{"sliding_window", 1e20},
                                                                              {"sliding_window", 8.5},
                                                                              {"num_kv_shared_layers", -1},
                                                                              {"global_head_dim", 1e300},
                                                                              {"hidden_size_per_layer_input", 8.7}}) {
    EXPECT_REFUSED(Parse(With(Gemma4(), {{key, value}})).status(), kLoss, "'" + key + "' is ",
                   "possible are whole numbers from 0 to 16777215");
  }
  EXPECT_REFUSED(
      Parse(With(Gemma4(), {{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 1e300}})).status(),
      kLoss, "'vocab_size_per_layer_input' is 1e+300");
  for (const char* family : {"Gemma2ForCausalLM", "Gemma3ForCausalLM", "Exaone4ForCausalLM", "Olmo3ForCausalLM"}) {
    EXPECT_REFUSED(Parse(With(Base(family), {{"num_key_value_heads", 4}, {"sliding_window", 1e20}})).status(), kLoss,
                   "'sliding_window' is 1e+20");
  }
}

TEST(FamilyConfig, Gemma4RefusesWhatItDoesNotSupport) {
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

TEST(FamilyConfig, Gemma3nHasStreamsAndWidthsOfLayers) {
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
  EXPECT_EQ(test::AttentionIn(c, 3).kv_layer, 2);
  EXPECT_EQ(test::AttentionIn(c, 4).kv_layer, 1);
  EXPECT_EQ(test::AttentionIn(c, 4).rope, compute::RopeChoice::kMain);
  EXPECT_EQ(c.rope.theta, 1e6f);
  EXPECT_EQ(c.local_rope->theta, 1e4f);
  EXPECT_EQ(std::get<compute::LowRankBlock>(c.layers[0][1].block).rank, 64);
}

TEST(FamilyConfig, Gemma3nRefusesWhatItDoesNotSupport) {
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"altup_active_idx", 1}})).status(), kLoss,
                 "'altup_active_idx' is not 0, the only one that is supported (1 is stated)");
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"altup_correct_scale", false}})).status(), kLoss,
                 "'altup_correct_scale' is false");
  for (const int streams : {0, 1, 9}) {
    EXPECT_REFUSED(Parse(With(Gemma3n(), {{"altup_num_inputs", streams}})).status(), StatusCode::kInvalidArgument,
                   "altup_num_inputs is " + std::to_string(streams) + "; possible is 2 to 8");
  }
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"activation_sparsity_pattern", {0.5}}})).status(), kLoss,
                 "'activation_sparsity_pattern' has 1 entries for 5 layers");
  EXPECT_REFUSED(Parse(With(Gemma3n(), {{"activation_sparsity_pattern", {1.0, 0.0, 0.0, 0.0, 0.0}}})).status(), kLoss,
                 "'activation_sparsity_pattern' holds 1; possible is 0 to less than 1");
  for (const size_t entries : {1, 2}) {
    const json widths(entries, 96);
    EXPECT_REFUSED(Parse(With(Gemma3n(), {{"intermediate_size", widths}})).status(), StatusCode::kInvalidArgument,
                   std::to_string(entries) + " values are stated for 5 layers");
  }
  EXPECT_EQ(
      std::get<compute::GatedFeedForwardBlock>(Good(With(Gemma3n(), {{"intermediate_size", 64}})).layers[4][3].block)
          .inner,
      64);
  EXPECT_REFUSED(Parse(With(Base(), {{"intermediate_size", {96, 96, 96, 96}}})).status(), kLoss, "intermediate_size");
}

TEST(FamilyConfig, HunyuansAlphaStretchesTheBase) {
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

TEST(FamilyConfig, Llama4HasChunksRotationAndExpertsByPeriod) {
  const compute::ModelConfig c = Good(Llama4());
  EXPECT_TRUE(c.rope.interleaved);
  EXPECT_EQ(c.rope.theta, 5e5f);
  for (size_t l = 0; l < 8; ++l) {
    const compute::AttentionBlock& a = test::AttentionIn(c, l);
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

TEST(FamilyConfig, Llama4MayListItsLayers) {
  const compute::ModelConfig c = Good(Llama4({{"no_rope_layers", {0, 1, 1, 1, 1, 1, 1, 1}},
                                              {"moe_layers", {0, 3}},
                                              {"use_qk_norm", false},
                                              {"rope_theta", 1e4},
                                              {"attn_scale", 0.25},
                                              {"floor_scale", 64}}));
  EXPECT_EQ(test::AttentionIn(c, 0).rope, compute::RopeChoice::kNone);
  EXPECT_EQ(test::AttentionIn(c, 0).query_beta, 0.25f);
  EXPECT_EQ(test::AttentionIn(c, 0).query_length, 64);
  EXPECT_EQ(test::AttentionIn(c, 0).query_offset, 1);
  EXPECT_EQ(test::AttentionIn(c, 3).rope, compute::RopeChoice::kMain);
  EXPECT_EQ(test::AttentionIn(c, 3).qk_norm, compute::QkNorm::kNone);
  EXPECT_EQ(c.rope.theta, 1e4f);
  for (size_t l = 0; l < 8; ++l) EXPECT_EQ(compute::ExpertsOf(c.layers[l]) != nullptr, l == 0 || l == 3) << l;
  // Early files have a number for the flag.
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"attn_temperature_tuning", 4}})), 3).query_beta, 0.1f);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"attn_temperature_tuning", true}})), 3).query_beta, 0.1f);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"attn_temperature_tuning", false}})), 3).query_beta, 0.0f);
  const json full(8, "full_attention");
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"layer_types", full}})), 0).chunk, 0);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"layer_types", full}})), 0).rope, compute::RopeChoice::kMain);
  EXPECT_REFUSED(Parse(Llama4({{"no_rope_layers", {1, 0}}})).status(), kLoss,
                 "'no_rope_layers' has 2 entries for 8 layers");
  EXPECT_REFUSED(Parse(Llama4({{"layer_types", {"full_attention"}}})).status(), kLoss,
                 "'layer_types' has 1 entries for 8 layers");
}

TEST(FamilyConfig, Llama4RefusesLayersThatItDoesNotHave) {
  json types(8, "chunked_attention");
  types[5] = "sliding_attention";
  EXPECT_REFUSED(Parse(Llama4({{"layer_types", types}})).status(), kLoss, "'layer_types' has an entry that is neither",
                 "('sliding_attention')");
  EXPECT_REFUSED(Parse(Llama4({{"moe_layers", {0, 8}}})).status(), kLoss,
                 "'moe_layers' holds 8; the layers are 0 to 7");
  EXPECT_REFUSED(Parse(Llama4({{"moe_layers", {-1}}})).status(), kLoss, "'moe_layers' holds -1");
  EXPECT_REFUSED(Parse(Llama4({{"interleave_moe_layer_step", 0}})).status(), kLoss, "'interleave_moe_layer_step' is 0");
  EXPECT_REFUSED(Parse(Llama4({{"no_rope_layer_interval", 0}})).status(), kLoss, "'no_rope_layer_interval' is 0");
}

TEST(FamilyConfig, Llama4TellsAnEmptyListOfExpertsFromNone) {
  const auto mixtures = [](const json& more) {
    const compute::ModelConfig c = Good(Llama4(more));
    return std::count_if(c.layers.begin(), c.layers.end(), [](const auto& l) { return compute::ExpertsOf(l); });
  };
  EXPECT_EQ(mixtures({{"moe_layers", json::array()}}), 0);
  EXPECT_EQ(mixtures({{"moe_layers", nullptr}}), 4) << "every second layer";
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"no_rope_layers", json::array()}})), 3).rope, compute::RopeChoice::kNone)
      << "as absent";
}

// transformers keeps None, which switches these off.
TEST(FamilyConfig, NullSwitchesSettingsOff) {
  EXPECT_EQ(Good(With(Gemma3n(), {{"final_logit_softcapping", nullptr}})).logits_softcap, 0.0f);
  const json gemma2 = With(Base("Gemma2ForCausalLM"), {{"num_key_value_heads", 4}});
  EXPECT_EQ(Good(gemma2).logits_softcap, 30.0f);
  EXPECT_EQ(test::AttentionIn(Good(gemma2)).softcap, 50.0f);
  const compute::ModelConfig uncapped =
      Good(With(gemma2, {{"final_logit_softcapping", nullptr}, {"attn_logit_softcapping", nullptr}}));
  EXPECT_EQ(uncapped.logits_softcap, 0.0f);
  EXPECT_EQ(test::AttentionIn(uncapped).softcap, 0.0f);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"attn_temperature_tuning", nullptr}})), 3).query_beta, 0.0f);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"use_qk_norm", nullptr}}))).qk_norm, compute::QkNorm::kNone);
  EXPECT_EQ(test::AttentionIn(Good(Llama4({{"attention_chunk_size", nullptr}}))).chunk, 0);
}

TEST(FamilyConfig, HunyuanStatesExpertsForAllLayersOrEach) {
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
    EXPECT_TRUE(test::AttentionIn(listed, l).norms_last);
  }
  EXPECT_REFUSED(Parse(With(base, {{"moe_topk", {2, 2}}})).status(), kLoss, "'moe_topk' has 2 entries for 4 layers");
  EXPECT_REFUSED(Parse(With(base, {{"num_experts", -1}})).status(), kLoss,
                 "'num_experts' holds -1; possible is 1 to 16777215");
  EXPECT_REFUSED(Parse(With(base, {{"num_experts", true}})).status(), kLoss, "'num_experts' is not an integer");
  EXPECT_REFUSED(Parse(With(base, {{"moe_intermediate_size", 48}})).status(), kLoss,
                 "'moe_intermediate_size' holds 48; only 96 is supported");
  EXPECT_REFUSED(Parse(With(base, {{"num_shared_expert", {1, 2, 1, 1}}})).status(), kLoss,
                 "'num_shared_expert' holds 2; only 1 is supported");
}

}  // namespace
}  // namespace tactus::family_config_test
