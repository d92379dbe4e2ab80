// The complete output of `tactus models inspect`: every line and every field of a description made by hand.
#include "compute/model/inspect.h"
#include "base/json.h"
#include "compute/config/block_text.h"
#include "compute/weights/model_shapes.h"
#include "compute/weights/quant/quantization.h"

#include <gtest/gtest.h>

namespace tactus::compute {
namespace {

// `plain`: without biases, norms of q and k, and windows.
ModelDescription Description(bool plain = false) {
  ModelDescription d;
  d.source = ModelDescription::Source::kGguf;
  d.path = "/models/m.gguf";
  test::HandMadeModel m;
  m.config.hidden_size = 64;
  m.config.vocab_size = 32000;
  m.config.max_position = 2048;
  m.shape.num_layers = 3;
  m.shape.num_heads = 4;
  m.shape.num_kv_heads = 2;
  m.shape.head_dim = 16;
  m.shape.intermediate_size = 128;
  m.shape.qkv_bias = !plain;
  m.shape.qk_norm = !plain;
  m.shape.window = {0, plain ? 0 : 32, plain ? 0 : 64};
  ModelConfig& c = d.config;
  c = m.Make();
  c.name = "M";
  c.tie_embeddings = true;
  c.rope.theta = 10000;
  c.rope.scaling = RopeScaling::kLlama3;
  c.rope.factor = 8;
  c.rope.original_max_position = 512;
  c.rope.frequency_factors.assign(8, 1.0f);
  c.stop_ids = {2, 7};
  c.bos_id = 1;
  d.weight_file_bytes = 12345;
  d.tensor_formats = {{DType::kQ4_1, 21, 3 << 20}, {DType::kF32, 7, 512 << 10}};
  d.chat_template = "{{ x }}";
  d.gguf_tokenizer.model = "gpt2";
  d.gguf_tokenizer.pre = "smollm";
  return d;
}
InspectOptions NoMemory() {
  InspectOptions o;
  o.memory.available_bytes = -1;
  return o;
}

TEST(InspectWhole, TheQuantisationIsNamed) {
  ModelDescription d = Description();
  EXPECT_FALSE(InspectJson(d, NoMemory()).contains("quantization"));
  EXPECT_EQ(InspectText(d, NoMemory()).find("quantised by"), std::string::npos);
  d.quantization =
      *ReadQuantization(R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}})", "c.json");
  EXPECT_EQ(InspectJson(d, NoMemory())["quantization"], "AWQ, 4 bits, groups of 64");
  EXPECT_NE(InspectText(d, NoMemory()).find("quantised by     AWQ, 4 bits, groups of 64\n"), std::string::npos);
}

TEST(InspectWhole, TextShowsEveryLine) {
  InspectOptions o = NoMemory();
  o.numerics = "bf16 activations";
  EXPECT_EQ(InspectText(Description(), o),
            "model            M\n"
            "path             /models/m.gguf\n"
            "architecture     llama (GGUF)\n"
            "parameters       2,159,520\n"
            "layers           3 of hidden size 64\n"
            "                 0: attention 4 heads, 2 KV heads, head_dim 16, biases, q and k norms; feed-forward 128 "
            "silu gated\n"
            "                 1: attention 4 heads, 2 KV heads, head_dim 16, window 32, biases, q and k norms; "
            "feed-forward 128 silu gated\n"
            "                 2: attention 4 heads, 2 KV heads, head_dim 16, window 64, biases, q and k norms; "
            "feed-forward 128 silu gated\n"
            "vocabulary       32,000, tied embeddings\n"
            "context          2,048 tokens\n"
            "rope             theta 10000, scaling llama3 x8, frequency factors\n"
            "weights          q4_1    21 tensors      3.0 MiB\n"
            "                 f32      7 tensors      0.5 MiB\n"
            "KV per token     384 bytes in bf16\n"
            "KV of a sequence 0.8 MiB at 2,048 tokens\n"
            "numerics         bf16 activations\n"
            "stop ids         2, 7\n"
            "sampling         temperature 0.8, top_p 0.95, top_k 40, min_p 0.05 (built in)\n"
            "tokenizer        gguf gpt2 / smollm\n"
            "chat template    yes\n");
}

TEST(InspectWhole, TextShowsEndsWarningsAndSamplingFlags) {
  InspectOptions o = NoMemory();
  o.ends = {{0, "<|endoftext|>", "tokenizer.ggml.eos_token_id"}, {2, "<|im_end|>", "chat template"}};
  o.warnings = {"the files and the template differ"};
  o.sampling.temperature = 0;
  ModelDescription d = Description();
  d.config.generation_defaults.top_p = 0.9;
  const std::string text = InspectText(d, o);
  EXPECT_NE(
      text.find("\nstop ids         0 <|endoftext|> (tokenizer.ggml.eos_token_id)\n"
                "                 2 <|im_end|> (chat template)\n"
                "sampling         temperature 0 (by flag), top_p 0.9 (general.sampling), top_k 40, min_p 0.05 (built "
                "in)\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("\nwarning          the files and the template differ\n"), std::string::npos) << text;
  const auto j = InspectJson(d, o);
  EXPECT_EQ(j["ends"][1], (Json{{"id", 2}, {"text", "<|im_end|>"}, {"source", "chat template"}}));
  EXPECT_EQ(j["warnings"][0], "the files and the template differ");
  EXPECT_EQ(j["sampling"]["temperature"], 0);
}

TEST(InspectWhole, TextOfAPlainModelIsShort) {
  ModelDescription d = Description(true);
  d.source = ModelDescription::Source::kHuggingFace;
  ModelConfig& c = d.config;
  c.tie_embeddings = false;
  c.rope = RopeConfig();
  c.stop_ids.clear();
  c.vocab_size = 999;
  d.weights_status = NotFound("no weights here");
  d.tensor_formats.clear();
  d.chat_template.clear();
  const std::string text = InspectText(d, NoMemory());
  for (const char* line : {"\narchitecture     llama (Hugging Face)\n",
                           "0-2: attention 4 heads, 2 KV heads, head_dim 16; feed-forward 128 silu gated\n",
                           "\nvocabulary       999\n", "scaling none\n", "\nweights          none: no weights here\n",
                           "\nstop ids         none\n", "\ntokenizer        none\n", "\nchat template    no\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in:\n" << text;
  }
  EXPECT_EQ(text.find("numerics"), std::string::npos);
  EXPECT_EQ(text.find("memory plan"), std::string::npos);
  for (Layer& layer : c.layers) test::BlockIn<AttentionBlock>(layer).window = 16;
  EXPECT_NE(InspectText(d, NoMemory()).find(" 0-2: attention 4 heads, 2 KV heads, head_dim 16, window 16; "),
            std::string::npos);
  d.tokenizer_model = "x";
  EXPECT_NE(InspectText(d, NoMemory()).find("\ntokenizer        tokenizer.model\n"), std::string::npos);
  d.tokenizer_json = "{}";
  EXPECT_NE(InspectText(d, NoMemory()).find("\ntokenizer        tokenizer.json\n"), std::string::npos);
}

TEST(InspectWhole, JsonShowsEveryField) {
  ModelDescription d = Description();
  d.config.generation_defaults.temperature = 0.5;
  d.config.generation_defaults.top_k = 9;
  const auto j = InspectJson(d, NoMemory());
  EXPECT_EQ(j["path"], "/models/m.gguf");
  EXPECT_EQ(j["format"], "gguf");
  EXPECT_EQ(j["name"], "M");
  EXPECT_EQ(j["parameters"], 2159520);
  EXPECT_EQ(j["context"], 2048);
  EXPECT_EQ(j["weight_file_bytes"], 12345);
  EXPECT_EQ(j["kv_dtype"], "bf16");
  EXPECT_EQ(j["kv_bytes_per_token"], 384);
  EXPECT_EQ(j["stop_ids"], (std::vector<int>{2, 7}));
  ASSERT_TRUE(j.contains("bos_id")) << j.dump();
  EXPECT_EQ(j["bos_id"], 1);
  EXPECT_EQ(j["chat_template"], true);
  EXPECT_EQ(j["weights"], "ok");
  EXPECT_EQ(j["tensor_formats"][0], (Json{{"dtype", "q4_1"}, {"tensors", 21}, {"bytes", 3 << 20}}));
  const std::pair<const char*, int> shape[] = {{"layers", 3},        {"hidden_size", 64}, {"heads", 4},
                                               {"kv_heads", 2},      {"head_dim", 16},    {"intermediate_size", 128},
                                               {"vocab_size", 32000}};
  for (const auto& [name, value] : shape) EXPECT_EQ(j["shape"][name], value) << name;
  for (const auto& [name, value] : {std::pair("tied_embeddings", true),
                                    {"qkv_bias", true},
                                    {"qk_norm", true},
                                    {"o_bias", false},
                                    {"mlp_bias", false}}) {
    EXPECT_EQ(j["shape"][name], value) << name;
  }
  EXPECT_EQ(j["shape"]["sliding_window"], (std::vector<int>{0, 32, 64}));
  EXPECT_EQ(j["rope"]["scaling"], "llama3");
  EXPECT_EQ(j["rope"]["factor"], 8);
  EXPECT_EQ(j["rope"]["original_max_position"], 512);
  EXPECT_EQ(j["rope"]["frequency_factors"], 8);
  EXPECT_EQ(j["generation_defaults"]["temperature"], 0.5);
  EXPECT_EQ(j["generation_defaults"]["top_k"], 9);
  EXPECT_EQ(j["generation_defaults"].size(), 2u) << "only the model's values";
  EXPECT_EQ(j["sampling"]["temperature"], 0.5);
  EXPECT_EQ(j["sampling"]["min_p"], 0.05f);
  EXPECT_TRUE(j["warnings"].empty());
  EXPECT_TRUE(j["memory_plan"].is_null());
  EXPECT_FALSE(j.contains("numerics"));
}

// A dense layer and two mixtures, one of them beside attention.
ModelDescription MixtureDescription() {
  ModelDescription d = Description(true);
  ExpertsBlock experts{.experts = 8, .shared_inner = 24};
  experts.router.chosen = 2;
  experts.expert = {.inner = 32, .bias = true};
  for (const size_t l : {1, 2}) d.config.layers[l][1].block = experts;
  d.config.layers[2][1].parallel = true;
  d.config.max_position = 40960;
  return d;
}

TEST(InspectWhole, LayersAreShownInGroups) {
  const ModelDescription d = MixtureDescription();
  const std::string text = InspectText(d, NoMemory());
  const int64_t active = d.config.NumParameters() - 2 * 6 * (3 * 64 * 32 + 32 + 32 + 64);
  EXPECT_NE(
      text.find("layers           3 of hidden size 64\n"
                "                 0: attention 4 heads, 2 KV heads, head_dim 16; feed-forward 128 silu gated\n"
                "                 1: attention 4 heads, 2 KV heads, head_dim 16; 8 experts, 2 per token, 32 wide silu "
                "gated, biases, shared 24\n"
                "                 2: attention 4 heads, 2 KV heads, head_dim 16 beside 8 experts, 2 per token"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("KV of a sequence 1.5 MiB at 4,096 tokens, 12.0 MiB at 32,768, 15.0 MiB at 40,960\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" per token\nlayers"), std::string::npos) << text;
  const Json j = InspectJson(d, NoMemory());
  EXPECT_EQ(j["active_parameters"], active);
  ASSERT_EQ(j["layer_groups"].size(), 3u);
  EXPECT_EQ(j["layer_groups"][0]["layers"], std::vector<int>{0});
  EXPECT_EQ(j["layer_groups"][0]["blocks"][0]["heads"], 4);
  const Json experts = j["layer_groups"][2]["blocks"][1];
  EXPECT_EQ(experts["block"], "experts");
  EXPECT_EQ(experts["experts"], 8);
  EXPECT_EQ(experts["per_token"], 2);
  EXPECT_EQ(experts["inner"], 32);
  EXPECT_EQ(experts["shared_inner"], 24);
  EXPECT_EQ(experts["parallel"], true);
  EXPECT_EQ(j["memory_at_contexts"][1]["context"], 32768);
  EXPECT_EQ(j["memory_at_contexts"][1]["kv_bytes"], 384 * 32768);
}

TEST(InspectWhole, DenseModelUsesAllParameters) {
  const Json j = InspectJson(Description(), NoMemory());
  EXPECT_EQ(j["active_parameters"], j["parameters"]);
  EXPECT_EQ(InspectText(Description(), NoMemory()).find("per token\nlayers"), std::string::npos);
}

TEST(BlockText, NamesWhatDiffers) {
  AttentionBlock a{.heads = 8, .kv_heads = 1, .head_dim = 64};
  a.rope = RopeChoice::kNone;
  EXPECT_EQ(TextOf(a), "attention 8 heads, 1 KV heads, head_dim 64, no rotary positions");
  a.alibi = 1, a.softcap = 50, a.sinks = true, a.o_bias = true;
  EXPECT_EQ(TextOf(a), "attention 8 heads, 1 KV heads, head_dim 64, biases, ALiBi, capped scores, sinks");
  a = {.heads = 2, .kv_heads = 2, .head_dim = 64, .window = 16, .rope = RopeChoice::kLocal};
  EXPECT_EQ(TextOf(a), "attention 2 heads, 2 KV heads, head_dim 64, window 16, local rotary base");
  a = {.heads = 2, .kv_heads = 2, .head_dim = 64, .chunk = 20, .qk_norm = QkNorm::kUnitHeads};
  EXPECT_EQ(TextOf(a), "attention 2 heads, 2 KV heads, head_dim 64, chunks of 20, q and k norms");
  EXPECT_EQ(TextOf(FeedForwardBlock{.inner = 96, .bias = true, .activation = Activation::kRelu}),
            "feed-forward 96 relu, biases");
}

TEST(BlockText, NumbersAreWrittenAsRanges) {
  EXPECT_EQ(RangesText({3}), "3");
  EXPECT_EQ(RangesText({0, 1, 2}), "0-2");
  EXPECT_EQ(RangesText({0, 1, 3, 5, 6}), "0-1, 3, 5-6");
  EXPECT_EQ(RangesText({0, 2, 4}), "0, 2, 4");
  EXPECT_EQ(RangesText({1, 3, 5, 7}), "1, 3 ... 7");
}

TEST(InspectWhole, JsonLeavesOutAbsentFields) {
  ModelDescription d = Description();
  d.config.bos_id = 0;
  ASSERT_TRUE(InspectJson(d, NoMemory()).contains("bos_id")) << "0 is an id";
  d.config.bos_id = -1;
  d.config.rope = RopeConfig();
  d.weights_status = NotFound("none here");
  InspectOptions o = NoMemory();
  o.numerics = "f32";
  o.memory.available_bytes = int64_t{1} << 32;
  o.memory.weight_bytes = 1000;
  o.memory.kv_memory_bytes = 16 * 384 * 10;
  const auto j = InspectJson(d, o);
  EXPECT_FALSE(j.contains("bos_id"));
  EXPECT_FALSE(j.contains("generation_defaults"));
  EXPECT_FALSE(j["rope"].contains("factor"));
  EXPECT_FALSE(j["rope"].contains("original_max_position"));
  EXPECT_EQ(j["weights"], "none here");
  EXPECT_EQ(j["numerics"], "f32");
  EXPECT_EQ(j["memory_plan"]["weight_bytes"], 1000);
  EXPECT_EQ(j["memory_plan"]["blocks"], 10);
  EXPECT_EQ(j["memory_plan"]["kv_bytes"], 16 * 384 * 10);
  EXPECT_EQ(j["memory_plan"]["available_bytes"], int64_t{1} << 32);
  EXPECT_EQ(j["memory_plan"]["max_model_len"], 160);
  o.memory.available_bytes = 10;
  EXPECT_TRUE(InspectJson(d, o)["memory_plan"].contains("error"));
}

}  // namespace
}  // namespace tactus::compute
