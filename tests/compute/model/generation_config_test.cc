// Sampling defaults of generation_config.json and their order of precedence.

#include "compute/config/hf_config.h"
#include "compute/config/sampling_defaults.h"
#include "compute/weights/model_files.h"

namespace tactus::generation_config_test {
namespace {

constexpr StatusCode kLoss = StatusCode::kDataLoss;

compute::ModelConfig Tiny() {
  const Result<compute::ModelConfig> config = compute::ConfigFromJson(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
          "intermediate_size": 96, "vocab_size": 100})",
      "config.json");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : compute::ModelConfig();
}

TEST(GenerationConfig, ReadsStatedValues) {
  compute::ModelConfig c = Tiny();
  ASSERT_TRUE(
      compute::ApplyGenerationConfig(
          R"({"eos_token_id":[2,7],"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":40,"repetition_penalty":1.1})",
          "g.json", &c)
          .ok());
  EXPECT_EQ(c.stop_ids, (std::vector<TokenId>{2, 7}));
  EXPECT_EQ(c.generation_defaults.temperature, 0.6);
  EXPECT_EQ(c.generation_defaults.top_p, 0.9);
  EXPECT_EQ(c.generation_defaults.top_k, 40);
  EXPECT_EQ(c.generation_defaults.repetition_penalty, 1.1);
  EXPECT_FALSE(c.generation_defaults.min_p) << "none is stated";
}

// Values of published folders that look wrong but are valid at their source.
TEST(GenerationConfig, ReadsValuesOfPublishedFolders) {
  const auto stated = [](const char* text) {
    compute::ModelConfig c = Tiny();
    const Status status = compute::ApplyGenerationConfig(text, "g.json", &c);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return c.generation_defaults;
  };
  EXPECT_EQ(stated(R"({"top_k":-1})").top_k, 0) << "all tokens, as in vLLM";
  EXPECT_EQ(stated(R"({"top_k":0})").top_k, 0);
  EXPECT_EQ(stated(R"({"top_k":50.0})").top_k, 50);
  const auto least = stated(R"({"top_p":0})").top_p;
  EXPECT_TRUE(least > 0.0 && least < 1e-30) << "the likeliest token alone";
  EXPECT_EQ(stated(R"({"temperature":1e-6,"top_k":1,"top_p":0.001})").temperature, 1e-6);
  EXPECT_EQ(stated(R"({"presence_penalty":1.5,"frequency_penalty":-0.5})").presence_penalty, 1.5);
  EXPECT_FALSE(stated(R"({"temperature":null,"top_k":null,"top_p":null,"min_p":null,"eos_token_id":null})").any());
}

// Request, flag, model, built-in: each value separately.
TEST(DefaultSampling, EachValueComesFromItsFirstSource) {
  StatedSampling flags, model;
  SamplingParams s = compute::DefaultSampling(flags, model);
  EXPECT_EQ(s.temperature, 0.8f);
  EXPECT_EQ(s.top_p, 0.95f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.05f);
  EXPECT_FALSE(s.NeedsHistory());
  EXPECT_EQ(compute::DefaultSamplingText(flags, model, "m"),
            "temperature 0.8, top_p 0.95, top_k 40, min_p 0.05 (built in)");
  model.temperature = 0.6;
  model.top_k = 0;
  model.repetition_penalty = 1.25;
  flags.top_k = -1;
  flags.min_p = 0.0;
  flags.presence_penalty = 0.5;
  flags.frequency_penalty = -0.5;
  s = compute::DefaultSampling(flags, model);
  EXPECT_EQ(s.temperature, 0.6f);
  EXPECT_EQ(s.top_p, 0.95f);
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.min_p, 0.0f);
  EXPECT_EQ(s.repetition_penalty, 1.25f);
  EXPECT_EQ(s.presence_penalty, 0.5f);
  EXPECT_EQ(s.frequency_penalty, -0.5f);
  EXPECT_EQ(compute::DefaultSamplingText(flags, model, "m"),
            "temperature 0.6 (m), top_p 0.95 (built in), top_k -1, min_p 0 (by flag), repetition_penalty 1.25 (m), "
            "presence_penalty 0.5, frequency_penalty -0.5 (by flag)");
}

TEST(GenerationConfig, GreedyConfigsStateNoDefaults) {
  compute::ModelConfig c = Tiny();
  ASSERT_TRUE(
      compute::ApplyGenerationConfig(R"({"eos_token_id":9,"do_sample":false,"temperature":0.6})", "g.json", &c).ok());
  EXPECT_EQ(c.stop_ids, (std::vector<TokenId>{2, 9}));
  EXPECT_FALSE(c.generation_defaults.any());
}

TEST(GenerationConfig, UnsupportedSamplersAreNamed) {
  const auto warnings = [](const char* text) {
    compute::ModelConfig c = Tiny();
    EXPECT_TRUE(compute::ApplyGenerationConfig(text, "g.json", &c).ok()) << text;
    return c.warnings;
  };
  EXPECT_EQ(
      warnings(R"({"suppress_tokens":[1,2],"no_repeat_ngram_size":3,"typical_p":0.9,"epsilon_cutoff":0.0003,
                     "eta_cutoff":0.001,"num_beams":4})"),
      std::vector<std::string>{"generation_config.json sets suppress_tokens, no_repeat_ngram_size 3, num_beams 4, "
                               "typical_p 0.9, epsilon_cutoff 0.0003, eta_cutoff 0.001, not supported here: ignored"});
  // Settings without effect, and keys that are no samplers.
  EXPECT_TRUE(warnings(R"({"suppress_tokens":null,"begin_suppress_tokens":[],"no_repeat_ngram_size":0,"typical_p":1.0,
                       "num_beams":1,"num_beam_groups":1,"epsilon_cutoff":0.0,"guidance_scale":null,"max_length":20,
                       "use_cache":true,"transformers_version":"4"})")
                  .empty());
  EXPECT_TRUE(warnings(R"({"do_sample":false,"typical_p":0.5})").empty());
  EXPECT_EQ(warnings(R"({"do_sample":false,"bad_words_ids":[[3]]})").size(), 1u);
}

// The ends of each range are accepted; values beyond are refused with the range, when the model is loaded.
TEST(GenerationConfig, RangesAreThoseOfSampling) {
  struct Case {
    const char* key;
    std::vector<const char*> inside, outside;
    const char* range;
  };
  for (const Case& c : {Case{"temperature", {"0", "100"}, {"-0.001", "100.1"}, "0 to 100"},
                        Case{"top_p", {"0", "1"}, {"-0.001", "1.001"}, "0 to 1"},
                        Case{"top_k", {"-1", "2147483647"}, {"0.5", "2147483648"}, "up to 2147483647"},
                        Case{"min_p", {"0", "1"}, {"-0.001", "1.001"}, "0 to 1"},
                        Case{"repetition_penalty", {"0.01", "10"}, {"1e-38", "0.0099", "10.01"}, "0.01 to 10"}}) {
    const auto apply = [&](const char* value) {
      compute::ModelConfig config = Tiny();
      return compute::ApplyGenerationConfig(std::string("{\"") + c.key + "\":" + value + "}", "g.json", &config);
    };
    for (const char* value : c.inside) EXPECT_TRUE(apply(value).ok()) << c.key << " " << value;
    for (const char* value : c.outside) EXPECT_REFUSED(apply(value), kLoss, "g.json", c.key, c.range);
  }
}

TEST(GenerationConfig, RefusesBadValues) {
  compute::ModelConfig c = Tiny();
  EXPECT_REFUSED(compute::ApplyGenerationConfig(R"({"temperature":-1})", "g.json", &c), kLoss, "g.json", "temperature");
  EXPECT_REFUSED(compute::ApplyGenerationConfig(R"({"top_p":-0.5})", "g.json", &c), kLoss, "top_p", "-0.5");
  EXPECT_REFUSED(compute::ApplyGenerationConfig(R"({"top_p":"high"})", "g.json", &c), kLoss, "top_p", "number");
  EXPECT_REFUSED(compute::ApplyGenerationConfig(R"({"eos_token_id":100})", "g.json", &c), kLoss, "eos_token_id");
}

}  // namespace
}  // namespace tactus::generation_config_test
