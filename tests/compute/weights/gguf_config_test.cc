// Models as GGUF files state them: fields, defaults, templates and what is refused.
#include <cmath>
#include <functional>
#include <tuple>

#include "compute/weights/gguf.h"
#include "compute/weights/gguf_config.h"
#include "compute/weights/model_shapes.h"
#include "compute/weights/open_weights.h"
#include "model_files.h"

namespace tactus::gguf_config_test {
namespace {

using test::Bytes;
using test::GgufBuilder;
using test::TinyGguf;

constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr StatusCode kUnbuilt = StatusCode::kUnimplemented;

Status ConfigStatus(const GgufBuilder& builder) {
  const std::string bytes = builder.Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  return file.ok() ? compute::ConfigFromGguf(*file).status() : file.status();
}

TEST(GgufConfig, ReadsLlamaFieldsAndDefaults) {
  GgufBuilder b = TinyGguf();
  b.Text("general.name", "Tiny");
  b.F32("llama.rope.freq_base", 5000.0f);
  b.U32("llama.attention.sliding_window", 7);
  b.Strings("tokenizer.ggml.tokens", std::vector<std::string>(12, "t"));
  b.U32("tokenizer.ggml.bos_token_id", 1);
  b.U32("tokenizer.ggml.eos_token_id", 2);
  b.U32("tokenizer.ggml.eot_token_id", 3);
  b.U32("tokenizer.ggml.eom_token_id", 4);
  const std::string bytes = b.Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  ASSERT_TRUE(file.ok());
  const auto c = compute::ConfigFromGguf(*file);
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->architecture, "llama");
  EXPECT_EQ(c->name, "Tiny");
  EXPECT_EQ(c->hidden_size, 8);
  EXPECT_EQ(c->num_layers(), 1);
  EXPECT_EQ(test::AttentionIn(*c).heads, 2);
  EXPECT_EQ(test::AttentionIn(*c).kv_heads, 1);
  EXPECT_EQ(test::AttentionIn(*c).head_dim, 4);
  EXPECT_EQ(test::FeedForwardIn(*c).inner, 16);
  EXPECT_EQ(c->vocab_size, 12);
  EXPECT_EQ(c->max_position, 64);
  EXPECT_TRUE(c->tie_embeddings);
  EXPECT_TRUE(c->rope.interleaved);
  EXPECT_EQ(c->rope.theta, 5000.0f);
  EXPECT_EQ(c->Windows(), std::vector<int32_t>{7});
  EXPECT_EQ(c->bos_id, 1);
  EXPECT_EQ(c->stop_ids, (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(c->weight_dtype, compute::DType::kF32);
}

TEST(GgufConfig, StopsOutsideTheVocabularyAreNamed) {
  GgufBuilder b = TinyGguf();
  b.U32("tokenizer.ggml.eos_token_id", 99999);
  b.U32("tokenizer.ggml.eot_token_id", 0xFFFFFFFF);  // none
  b.U32("tokenizer.ggml.eom_token_id", 12);
  const std::string bytes = b.Build();
  const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_TRUE(c->stop_ids.empty());
  const std::string what = ", which is no token of a vocabulary of 12: it ends no answer";
  EXPECT_EQ(c->warnings, (std::vector<std::string>{"tokenizer.ggml.eos_token_id is 99999" + what,
                                                   "tokenizer.ggml.eom_token_id is 12" + what}));
}

// As written by llama.cpp's converter, and with values that turn a sampler off there.
TEST(GgufConfig, SamplingKeysAreRead) {
  const auto config = [](const std::function<void(GgufBuilder*)>& add) {
    GgufBuilder b = TinyGguf();
    add(&b);
    const std::string bytes = b.Build();
    return compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
  };
  const auto all = config([](GgufBuilder* b) {
    b->F32("general.sampling.temp", 0.25f);
    b->F32("general.sampling.top_p", 0.75f);
    b->F32("general.sampling.min_p", 0.125f);
    b->U32("general.sampling.top_k", 20);
    b->F32("general.sampling.penalty_repeat", 1.5f);
  });
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(all->generation_defaults.temperature, 0.25);
  EXPECT_EQ(all->generation_defaults.top_p, 0.75);
  EXPECT_EQ(all->generation_defaults.min_p, 0.125);
  EXPECT_EQ(all->generation_defaults.top_k, 20);
  EXPECT_EQ(all->generation_defaults.repetition_penalty, 1.5);
  EXPECT_TRUE(all->warnings.empty());
  EXPECT_FALSE(config([](GgufBuilder*) {})->generation_defaults.any());

  const auto off = config([](GgufBuilder* b) {
    b->F32("general.sampling.temp", -1.0f);
    b->F32("general.sampling.top_p", 1.5f);
    b->F32("general.sampling.min_p", -1.0f);
    b->F32("general.sampling.top_k", -1.0f);
    b->F32("general.sampling.penalty_repeat", 1.5f);
    b->U32("general.sampling.penalty_last_n", 0);
  });
  ASSERT_TRUE(off.ok()) << off.status().ToString();
  EXPECT_EQ(off->generation_defaults.temperature, 0.0);
  EXPECT_EQ(off->generation_defaults.top_p, 1.0);
  EXPECT_EQ(off->generation_defaults.min_p, 0.0);
  EXPECT_EQ(off->generation_defaults.top_k, 0);
  EXPECT_FALSE(off->generation_defaults.repetition_penalty);

  const auto other = config([](GgufBuilder* b) {
    b->F32("general.sampling.xtc_probability", 0.5f);
    b->U32("general.sampling.mirostat", 2);
    b->Text("general.sampling.sequence", "kpmt");
    b->F32("general.sampling.penalty_repeat", 1.5f);
    b->U32("general.sampling.penalty_last_n", 64);
  });
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  std::string warnings;
  for (const std::string& warning : other->warnings) warnings += warning + "\n";
  for (const char* key : {"xtc_probability is 0.5", "mirostat is 2", "sampling.sequence", "penalty_last_n is 64"})
    EXPECT_NE(warnings.find(key), std::string::npos) << key << " is not in:\n" << warnings;
  for (const auto& [key, value] : {std::pair("temp", 101.0f), {"top_k", 3e9f}, {"penalty_repeat", 0.0f}}) {
    const auto refused = config([&](GgufBuilder* b) { b->F32(std::string("general.sampling.") + key, value); });
    EXPECT_REFUSED(refused.status(), kLoss, std::string("general.sampling.") + key);
  }
}

TEST(GgufConfig, QwenHasItsFeaturesAndPlainRope) {
  const std::string qwen2 = TinyGguf("qwen2").Build();
  const auto c2 = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(qwen2), "m.gguf"));
  ASSERT_TRUE(c2.ok()) << c2.status().ToString();
  EXPECT_FALSE(c2->rope.interleaved);
  EXPECT_TRUE(test::AttentionIn(*c2).qkv_bias);
  GgufBuilder b = TinyGguf("qwen3");
  b.U32("qwen3.attention.key_length", 6);
  b.U32("qwen3.attention.value_length", 6);
  const std::string qwen3 = b.Build();
  const auto c3 = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(qwen3), "m.gguf"));
  ASSERT_TRUE(c3.ok()) << c3.status().ToString();
  EXPECT_EQ(test::AttentionIn(*c3).qk_norm, compute::QkNorm::kHeads);
  EXPECT_EQ(test::AttentionIn(*c3).head_dim, 6);
}

TEST(GgufConfig, ReadsRopeScaling) {
  GgufBuilder b = TinyGguf();
  b.Text("llama.rope.scaling.type", "linear");
  b.F32("llama.rope.scaling.factor", 4.0f);
  const std::string linear = b.Build();
  const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(linear), "m.gguf"));
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->rope.scaling, compute::RopeScaling::kLinear);
  EXPECT_EQ(c->rope.factor, 4.0f);

  b = TinyGguf();
  b.Text("llama.rope.scaling.type", "ntk");
  b.F32("llama.rope.scaling.factor", 4.0f);
  EXPECT_REFUSED(ConfigStatus(b), kUnbuilt, "ntk", "yarn");

  b = TinyGguf();
  b.F32Tensor("rope_freqs.weight", {2});
  const std::string freqs = b.Build();
  const auto f = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(freqs), "m.gguf"));
  ASSERT_TRUE(f.ok()) << f.status().ToString();
  EXPECT_EQ(f->rope.frequency_factors, (std::vector<float>{1.0f / 64, 2.0f / 64}));
  b = TinyGguf();
  b.F32Tensor("rope_freqs.weight", {3});
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "rope_freqs.weight", "[3]", "[2]");
  b = TinyGguf();
  b.Tensor("rope_freqs.weight", {2}, 0, std::string(8, 0));
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "rope_freqs.weight", "positive");
}

// cos and sin grow by 0.1 ln(factor) + 1, but for the share that the weights have.
TEST(GgufConfig, ReadsYarn) {
  const auto read = [](float in_weights) {
    GgufBuilder b = TinyGguf();
    b.Text("llama.rope.scaling.type", "yarn");
    b.F32("llama.rope.scaling.factor", 4.0f);
    b.U32("llama.rope.scaling.original_context_length", 16);
    b.F32("llama.rope.scaling.yarn_beta_fast", 8.0f);
    b.F32("llama.rope.scaling.yarn_log_multiplier", in_weights);
    const std::string bytes = b.Build();
    const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
    EXPECT_TRUE(c.ok()) << c.status().ToString();
    return c.ok() ? c->rope : compute::RopeConfig();
  };
  const compute::RopeConfig rope = read(0.0f);
  EXPECT_EQ(rope.scaling, compute::RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 4.0f);
  EXPECT_EQ(rope.original_max_position, 16);
  EXPECT_EQ(rope.beta_fast, 8.0f);
  EXPECT_EQ(rope.beta_slow, 1.0f);
  EXPECT_FLOAT_EQ(rope.attention_factor, 0.1f * std::log(4.0f) + 1.0f);
  EXPECT_FLOAT_EQ(read(1.0f).attention_factor, 1.0f);
}

TEST(GgufConfig, LongRopeIsTwoTensorsOfFactors) {
  GgufBuilder b = TinyGguf();
  b.U32("llama.rope.scaling.original_context_length", 16);
  b.F32("llama.rope.scaling.attn_factor", 1.25f);
  b.F32Tensor("rope_factors_short.weight", {2});
  EXPECT_REFUSED(ConfigStatus(b), StatusCode::kInvalidArgument, "longrope needs two lists of 2 positive factors");
  b.F32Tensor("rope_factors_long.weight", {2});
  const std::string bytes = b.Build();
  const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->rope.scaling, compute::RopeScaling::kLongRope);
  EXPECT_EQ(c->rope.original_max_position, 16);
  EXPECT_EQ(c->rope.attention_factor, 1.25f);
  EXPECT_EQ(c->rope.short_factors.size(), 2u);
}

// llama.cpp's files of Llama 4 leave out what is alike in the published models.
TEST(GgufConfig, Llama4StatesChunksAndNormsByOtherKeys) {
  const auto read = [](uint32_t experts, const std::function<void(GgufBuilder*)>& add) {
    GgufBuilder b;
    b.Text("general.architecture", "llama4");
    for (const auto& [key, value] : {std::pair("block_count", 4),
                                     {"embedding_length", 8},
                                     {"context_length", 64},
                                     {"feed_forward_length", 16},
                                     {"attention.head_count", 2},
                                     {"expert_used_count", 1},
                                     {"expert_feed_forward_length", 24},
                                     {"interleave_moe_layer_step", 2}}) {
      b.U32("llama4." + std::string(key), static_cast<uint32_t>(value));
    }
    b.F32("llama4.attention.layer_norm_rms_epsilon", 1e-5f);
    b.U32("llama4.expert_count", experts);
    add(&b);
    b.F32Tensor("token_embd.weight", {8, 4});
    const std::string bytes = b.Build();
    const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
    EXPECT_TRUE(c.ok()) << c.status().ToString();
    return c.ok() ? c->layers : std::vector<compute::Layer>(4);
  };
  const auto layers = read(16, [](GgufBuilder*) {});
  const auto attention = [](const compute::Layer& layer) { return *compute::AttentionOf(layer); };
  EXPECT_EQ(attention(layers[2]).chunk, 8192);
  EXPECT_EQ(attention(layers[2]).qk_norm, compute::QkNorm::kUnitHeads);
  EXPECT_EQ(attention(layers[3]).chunk, 0);
  EXPECT_EQ(attention(layers[3]).rope, compute::RopeChoice::kNone);
  EXPECT_EQ(attention(layers[3]).query_length, 8192);
  EXPECT_EQ(std::get<compute::GatedFeedForwardBlock>(layers[0][1].block).inner, 16);
  EXPECT_EQ(compute::ExpertsOf(layers[1])->expert.inner, 24);
  EXPECT_EQ(attention(read(128, [](GgufBuilder*) {})[0]).qk_norm, compute::QkNorm::kNone) << "Maverick";
  const auto whole = read(16, [](GgufBuilder* b) { b->U32("llama4.attention.sliding_window", 0); });
  EXPECT_EQ(attention(whole[0]).chunk, 0);
  EXPECT_EQ(attention(whole[3]).rope, compute::RopeChoice::kMain);
}

TEST(GgufConfig, LayersMayDifferInKvHeadsAndWidth) {
  const auto build = [](const std::vector<int32_t>& heads, const std::vector<int32_t>& widths) {
    GgufBuilder b;
    b.Text("general.architecture", "llama");
    b.U32("llama.block_count", 2);
    b.U32("llama.embedding_length", 8);
    b.U32("llama.context_length", 64);
    b.Array<int32_t>("llama.feed_forward_length", 5, widths);
    b.U32("llama.attention.head_count", 2);
    b.Array<int32_t>("llama.attention.head_count_kv", 5, heads);
    b.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.F32Tensor("token_embd.weight", {8, 4});
    return b;
  };
  const std::string bytes = build({1, 2}, {16, 24}).Build();
  const auto c = compute::ConfigFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"));
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  for (const int64_t l : {0, 1}) {
    const compute::Layer& layer = c->layers[static_cast<size_t>(l)];
    EXPECT_EQ(std::get<compute::AttentionBlock>(layer[0].block).kv_heads, 1 + l);
    EXPECT_EQ(std::get<compute::GatedFeedForwardBlock>(layer[1].block).inner, 16 + 8 * l);
  }
  EXPECT_REFUSED(ConfigStatus(build({1, 2, 1}, {16, 16})), StatusCode::kInvalidArgument, "3 values", "2 layers");
  EXPECT_REFUSED(ConfigStatus(build({1, 0}, {16, 16})), StatusCode::kInvalidArgument, "num_kv_heads is 0");
  EXPECT_REFUSED(ConfigStatus(build({}, {16, 16})), kLoss, "head_count_kv", "empty");
}

TEST(GgufConfig, RefusesUnsupportedFeatures) {
  GgufBuilder b = TinyGguf("t5");
  EXPECT_REFUSED(ConfigStatus(b), kUnbuilt, "'t5'", "llama, qwen2, qwen3");
  b = TinyGguf("qwen2");
  b.U32("qwen2.expert_count", 8);
  EXPECT_REFUSED(ConfigStatus(b), kUnbuilt, "'qwen2.expert_count' is not supported for the architecture qwen2");
  b = TinyGguf();
  b.U32("llama.rope.dimension_count", 3);
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "dimension_count is 3", "up to head_dim, 4");
  for (const char* key : {"logit_scale", "attention.scale", "residual_scale", "embedding_scale",
                          "attn_logit_softcapping", "final_logit_softcapping"}) {
    b = TinyGguf();
    b.F32(std::string("llama.") + key, 2.0f);
    EXPECT_REFUSED(ConfigStatus(b), kUnbuilt, key, "llama");
  }
  b = TinyGguf();
  b.U32("llama.vocab_size", 13);
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "vocab_size is 13", "12 rows");
  b = TinyGguf();
  b.U32("llama.attention.value_length", 8);
  EXPECT_REFUSED(ConfigStatus(b), kUnbuilt, "key_length 4 and value_length 8");
  b = GgufBuilder();
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "general.architecture", "missing");
  b = GgufBuilder();
  b.Text("general.architecture", "llama");
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "llama.block_count", "missing");
  for (const char* key :
       {"block_count", "embedding_length", "context_length", "feed_forward_length", "attention.head_count"})
    b.U32(std::string("llama.") + key, 2);
  EXPECT_REFUSED(ConfigStatus(b), kLoss, "llama.attention.layer_norm_rms_epsilon", "missing");
}

TEST(GgufConfig, ScalesBesideNvfp4AreRefusedWithTheFix) {
  for (const auto& [suffix, type, text] :
       {std::tuple(".scale", 40u, "beside an NVFP4 matrix"),
        std::tuple(".input_scale", 40u, "use the safetensors folder"), std::tuple(".scale", 0u, "has no place")}) {
    GgufBuilder b = test::TinyMetadata("llama", 8);
    for (const test::TinyTensor& t : test::TinyTensors(8)) {
      if (t.name != "blk.0.attn_q.weight" || type == 0) {
        b.F32Tensor(t.name, t.dims);
      } else {
        b.Tensor(t.name, t.dims, type, std::string(64 * 36, '\0'));
      }
    }
    b.F32Tensor(std::string("blk.0.attn_q") + suffix, {1});
    test::TempFolder folder;
    const auto description = compute::DescribeModel(folder.Write("m.gguf", b.Build()));
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    EXPECT_REFUSED(compute::CheckWeights(*description), type == 0 ? kLoss : kUnbuilt,
                   std::string("blk.0.attn_q") + suffix, text);
  }
}

TEST(GgufConfig, ReadsTheDefaultAndToolUseTemplates) {
  GgufBuilder b = TinyGguf();
  b.Text("tokenizer.chat_template", "D");
  b.Text("tokenizer.chat_template.tool_use", "T");
  b.Text("tokenizer.chat_template.rag", "R");
  const std::string bytes = b.Build();
  compute::ModelDescription d;
  ASSERT_TRUE(compute::TokenizerFromGguf(*compute::ParseGguf(Bytes(bytes), "m.gguf"), 12, &d).ok());
  EXPECT_EQ(d.chat_template, "D");
  EXPECT_EQ(d.tool_use_template, "T");
}

TEST(GgufConfig, TokenizerTablesMustAgree) {
  const auto tokenizer_status = [](GgufBuilder b, int64_t vocab) {
    const std::string bytes = b.Build();
    const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
    if (!file.ok()) return file.status();
    compute::ModelDescription d;
    return compute::TokenizerFromGguf(*file, vocab, &d);
  };
  GgufBuilder b;
  b.Strings("tokenizer.ggml.tokens", {"a", "b", "c"});
  EXPECT_TRUE(tokenizer_status(b, 3).ok());
  EXPECT_REFUSED(tokenizer_status(b, 2), kLoss, "3 tokens", "2 rows");
  GgufBuilder scores = b;
  scores.Array<float>("tokenizer.ggml.scores", 6, {0.0f});
  EXPECT_REFUSED(tokenizer_status(scores, 3), kLoss, "scores has 1", "3");
  GgufBuilder types = b;
  types.Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 3, 99});
  EXPECT_REFUSED(tokenizer_status(types, 3), kLoss, "token_type", "99");
}

GgufBuilder Family(const std::string& name) {
  GgufBuilder b;
  b.Text("general.architecture", name);
  for (const auto& [key, value] : std::vector<std::pair<std::string, uint32_t>>{{"block_count", 30},
                                                                                {"embedding_length", 64},
                                                                                {"context_length", 128},
                                                                                {"feed_forward_length", 96},
                                                                                {"attention.head_count", 4},
                                                                                {"attention.head_count_kv", 2},
                                                                                {"attention.sliding_window", 16}})
    b.U32(name + "." + key, value);
  b.F32(name + ".attention.layer_norm_rms_epsilon", 1e-6f);
  b.F32Tensor("token_embd.weight", {64, 10});
  return b;
}

GgufBuilder Gemma3n() {
  GgufBuilder b = Family("gemma3n");
  b.U32("gemma3n.embedding_length_per_layer_input", 8);
  return b;
}

TEST(GgufConfig, PeriodsAndLengthsAreWholeNumbers) {
  const auto with = [](const std::string& family, const std::string& key, float value) {
    GgufBuilder b = Family(family);
    b.F32(family + "." + key, value);
    b.F32("mistral3.attention.temperature_scale", 0.1f);
    return ConfigStatus(b);
  };
  for (const auto& [family, key] : {std::pair("gemma3", "attention.sliding_window_pattern"),
                                    std::pair("mistral3", "attention.temperature_length")}) {
    EXPECT_TRUE(with(family, key, 3.0f).ok()) << with(family, key, 3.0f).message();
    const std::string named = std::string(family) + "." + key;
    EXPECT_REFUSED(with(family, key, -1.0f), kLoss, named, "is -1", "0 to 16777215");
    EXPECT_REFUSED(with(family, key, 2.5f), kLoss, named, "is 2.5", "0 to 16777215");
    EXPECT_REFUSED(with(family, key, 1e30f), kLoss, named, "is 1", "0 to 16777215");
  }
}

TEST(GgufConfig, CutoffsOfGemma3nAreFiniteOrNone) {
  const auto with = [](double cutoff) {
    GgufBuilder b = Gemma3n();
    std::vector<double> cutoffs(30, 1.5);
    cutoffs[2] = cutoff;
    b.Array<double>("gemma3n.activation_sparsity_scale", 12, cutoffs);
    return ConfigStatus(b);
  };
  EXPECT_TRUE(with(-0.5).ok()) << with(-0.5).message();
  EXPECT_TRUE(with(-INFINITY).ok()) << with(-INFINITY).message();
  for (const double cutoff : {double{INFINITY}, 1e300, -1e300, double{NAN}}) {
    EXPECT_REFUSED(with(cutoff), kLoss, "activation_sparsity_scale' holds ", "possible are f32 numbers and -inf");
  }
}

// Older files of Gemma 3n state less than newer ones: the rest is as in the published models.
TEST(GgufConfig, Gemma3nStatesLittleOfItsStreams) {
  const std::string bytes = Gemma3n().Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto c = compute::ConfigFromGguf(*file);
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->streams, 4);
  EXPECT_EQ(c->layer_inputs.rows, 10) << "the vocabulary";
  EXPECT_EQ(c->rope.theta, 1e6f);
  EXPECT_EQ(c->local_rope->theta, 1e4f);
  EXPECT_EQ(c->logits_softcap, 30.0f);
  EXPECT_TRUE(test::AttentionIn(*c, 19).stores_kv());
  EXPECT_EQ(test::AttentionIn(*c, 20).kv_layer, 18);
  EXPECT_EQ(test::AttentionIn(*c, 24).kv_layer, 19);
  EXPECT_TRUE(test::FeedForwardIn(*c, 9).cuts());
  EXPECT_FALSE(test::FeedForwardIn(*c, 10).cuts());
  EXPECT_EQ(test::BlockIn<compute::LowRankBlock>(*c).rank, 64);
}

}  // namespace
}  // namespace tactus::gguf_config_test
