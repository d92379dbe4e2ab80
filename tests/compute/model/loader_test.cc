// Whole models: describing and loading from Hugging Face folders, GGUF files and configurations alone.
#include "compute/model/loader.h"
#include "base/json.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "compute/model/catalog.h"
#include "compute/model/inspect.h"
#include "compute/tensor/dequantize.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::loader_test {
namespace {

using test::GgufBuilder;
using test::GoldenFolder;
using test::ReadFile;
using test::TempFolder;
using test::TinyGguf;

constexpr StatusCode kLoss = StatusCode::kDataLoss;

compute::ModelDescription Describe(const std::string& path) {
  Result<compute::ModelDescription> d = compute::DescribeModel(path);
  EXPECT_TRUE(d.ok()) << d.status().ToString();
  return d.ok() ? *d : compute::ModelDescription();
}
compute::CpuWeights Load(const compute::ModelDescription& d, const compute::LoadWeightsOptions& options = {}) {
  Result<compute::CpuWeights> w = compute::LoadWeights(d, options, SystemClock());
  EXPECT_TRUE(w.ok()) << w.status().ToString();
  return w.ok() ? *w : compute::CpuWeights();
}
std::vector<float> Row(const compute::MatrixView& m, int64_t row) {
  std::vector<float> out(static_cast<size_t>(m.cols));
  compute::Dequantize(m.dtype, static_cast<const std::byte*>(m.data) + row * m.row_bytes, m.cols, out.data());
  return out;
}
Status LoadStatus(const std::string& path) {
  const auto d = compute::DescribeModel(path);
  return d.ok() ? compute::LoadWeights(*d, {}, SystemClock()).status() : d.status();
}

// Tensors of the picture's encoder have no place in the text, and an output matrix in the file is used whatever the
// whole states.
TEST(Loader, OfAModelThatReadsPicturesTheTextIsLoaded) {
  TempFolder folder;
  std::string config = ReadFile(GoldenFolder("mistral-small/config.json"));
  const std::string untied = "\"tie_word_embeddings\": false";
  for (size_t at; (at = config.find(untied)) != std::string::npos;)
    config.replace(at, untied.size(), "\"tie_word_embeddings\": true");
  folder.Write("config.json", config);
  folder.Write("model.safetensors", ReadFile(GoldenFolder("mistral-small/model.safetensors")));
  const compute::ModelDescription d = Describe(folder.path());
  EXPECT_FALSE(d.config.tie_embeddings);
  const compute::CpuWeights w = Load(d);
  EXPECT_NE(Row(w.lm_head, 1), Row(w.embedding, 1));
}

// Published files of Gemma 4 have tensors of K and V for layers that read another layer's.
TEST(Loader, KAndVOfLayersThatReadAnothersMayBeInTheFile) {
  const std::string file = ReadFile(GoldenFolder("gemma4/model.safetensors"));
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  const auto with = [&](const std::string& name) {
    TempFolder folder;
    SortedJson header = SortedJson::parse(file.substr(8, size));
    std::string data = file.substr(8 + size);
    header[name] = {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {data.size(), data.size() + 2}}};
    folder.Write("config.json", ReadFile(GoldenFolder("gemma4/config.json")));
    folder.Write("model.safetensors", test::Safetensors(header.dump(), data + "ab"));
    return LoadStatus(folder.path());
  };
  EXPECT_TRUE(with("model.layers.4.self_attn.k_proj.weight").ok());
  EXPECT_TRUE(with("model.layers.3.self_attn.k_norm.weight").ok());
  EXPECT_REFUSED(with("model.layers.4.self_attn.k_proj.bias"), kLoss, "k_proj.bias", "has no place");
}

TEST(Loader, GgufWeightsAreViewsOfTheFile) {
  TempFolder folder;
  const std::string path = folder.Write("m.gguf", TinyGguf().Build());
  const compute::ModelDescription d = Describe(path);
  EXPECT_EQ(d.source, compute::ModelDescription::Source::kGguf);
  EXPECT_EQ(d.config.name, "m");
  const compute::CpuWeights w = Load(d);
  ASSERT_EQ(w.layers.size(), 1u);
  EXPECT_EQ(w.embedding.rows, 12);
  EXPECT_EQ(w.embedding.cols, 8);
  EXPECT_EQ(w.lm_head.data, w.embedding.data) << "tied";
  EXPECT_EQ(Row(w.layers[0][compute::Role::kDown], 1)[2],
            19.0f / 64);  // element [1, 2] of [8, 16]; values count from 1
  EXPECT_EQ(w.layers[0][compute::Role::kK].rows, 4);
  EXPECT_EQ(w.layers[0].vector(compute::Role::kAttentionNorm)[7], 8.0f / 64);
  EXPECT_EQ(w.layers[0].vector(compute::Role::kQBias), nullptr);
  EXPECT_EQ(w.bytes, 4 * d.config.NumParameters());
  EXPECT_EQ(w.format, "f32 (11)");
}

TEST(Loader, TokenizerFieldsHaveTheModelsName) {
  TempFolder folder;
  test::GgufBuilder named = TinyGguf();
  named.Text("general.name", "Phi-3 mini");
  EXPECT_EQ(Describe(folder.Write("m.gguf", named.Build())).gguf_tokenizer.model_name, "Phi-3 mini");
  EXPECT_EQ(Describe(folder.Write("phi-3.gguf", TinyGguf().Build())).gguf_tokenizer.model_name, "phi-3");
}

TEST(Loader, StorageOutlivesEverythingElse) {
  TempFolder folder;
  compute::MatrixView view;
  std::shared_ptr<const void> storage;
  {
    const compute::CpuWeights w = Load(Describe(folder.Write("m.gguf", TinyGguf().Build())));
    view = w.embedding;
    storage = w.storage;
  }
  EXPECT_EQ(Row(view, 11)[7], 96.0f / 64);
}

TEST(Loader, EveryGoldenModelLoadsInBothModes) {
  for (const char* name : {"llama-mha",
                           "llama-gqa",
                           "llama-gqa-bf16",
                           "llama-gqa-f16",
                           "llama-sharded",
                           "llama-bias",
                           "llama-mqa-linear",
                           "llama-dynamic",
                           "mistral-window",
                           "qwen2",
                           "qwen2-window",
                           "qwen3",
                           "yi",
                           "gguf-f16",
                           "gguf-bf16",
                           "gguf-q8_0",
                           "gguf-q4_0",
                           "gguf-q4_1",
                           "gguf-q5_0",
                           "gguf-q5_1",
                           "gguf-q4_k",
                           "gguf-q5_k",
                           "gguf-q6_k",
                           "gguf-mixed"}) {
    SCOPED_TRACE(name);
    const compute::ModelDescription d = Describe(GoldenFolder(name));
    ASSERT_TRUE(d.weights_status.ok());
    const compute::CpuWeights stored = Load(d);
    const compute::CpuWeights f32 = Load(d, {.dequantize_to_f32 = true});
    ASSERT_EQ(static_cast<int64_t>(f32.layers.size()), d.config.num_layers());
    EXPECT_EQ(f32.bytes, 4 * d.config.NumParameters());
    const int64_t last = d.config.num_layers() - 1;
    const compute::LayerWeights &a = stored.layers[static_cast<size_t>(last)],
                                &b = f32.layers[static_cast<size_t>(last)];
    for (const auto member : {compute::Role::kQ, compute::Role::kK, compute::Role::kV, compute::Role::kO,
                              compute::Role::kGate, compute::Role::kUp, compute::Role::kDown}) {
      EXPECT_EQ((b[member]).dtype, compute::DType::kF32);
      EXPECT_EQ(Row(a[member], (a[member]).rows - 1), Row(b[member], (b[member]).rows - 1));
    }
    EXPECT_EQ(a.vector(compute::Role::kQBias) != nullptr, test::AttentionIn(d.config).qkv_bias);
    EXPECT_EQ(a.vector(compute::Role::kQNorm) != nullptr,
              test::AttentionIn(d.config).qk_norm != compute::QkNorm::kNone);
    EXPECT_EQ(stored.lm_head.data == stored.embedding.data, d.config.tie_embeddings);
  }
}

TEST(Loader, ReadsHuggingFaceExtras) {
  const compute::ModelDescription d = Describe(GoldenFolder("llama-gqa") + "/");
  EXPECT_EQ(d.config.name, "llama-gqa");
  EXPECT_NE(d.chat_template.find("im_start"), std::string::npos);
  EXPECT_FALSE(d.tokenizer_json.empty());
  EXPECT_EQ(d.config.generation_defaults.temperature, 0.7);
  EXPECT_EQ(d.config.stop_ids, (std::vector<TokenId>{2, 0}));
  EXPECT_EQ(d.config.rope.scaling, compute::RopeScaling::kLlama3);
  ASSERT_EQ(d.tensor_formats.size(), 1u);
  EXPECT_EQ(d.tensor_formats[0].tensors, 20);
}

TEST(Loader, ChatTemplateSourcesHaveTransformersOrder) {
  TempFolder folder;
  folder.Write("config.json", ReadFile(GoldenFolder("yi") + "/config.json"));
  // "for chats, for chats with tools"
  const auto templates = [&] {
    const compute::ModelDescription d = Describe(folder.path());
    return d.chat_template + "," + d.tool_use_template;
  };
  EXPECT_EQ(templates(), ",");
  folder.Write("tokenizer_config.json",
               R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"rag","template":"R"},
                                    {"name":"default","template":"D"}]})");
  EXPECT_EQ(templates(), "D,T");
  folder.Write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"}]})");
  EXPECT_EQ(templates(), ",T");
  folder.Write("tokenizer_config.json", R"({"chat_template":{"tool_use":"T","default":"D"}})");
  EXPECT_EQ(templates(), "D,T");
  folder.Write("chat_template.json", R"({"chat_template":"S"})");
  EXPECT_EQ(templates(), "S,");
  std::filesystem::remove(folder.path() + "/chat_template.json");
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "F");
  folder.Write("additional_chat_templates/rag.jinja", "R");
  EXPECT_EQ(templates(), "D,F");
  folder.Write("chat_template.jinja", "J");
  EXPECT_EQ(templates(), "J,F");
  std::filesystem::remove(folder.path() + "/additional_chat_templates/tool_use.jinja");
  EXPECT_EQ(templates(), "J,") << "separate files override JSON files";
  folder.Write("tokenizer_config.json", R"({"chat_template":7})");
  EXPECT_REFUSED(compute::DescribeModel(folder.path()).status(), kLoss, "tokenizer_config.json", "chat_template");
  folder.Write("tokenizer_config.json", R"({"chat_template":{"default":7}})");
  EXPECT_REFUSED(compute::DescribeModel(folder.path()).status(), kLoss, "tokenizer_config.json", "default");
}

// A golden model with one defect.
class BrokenModel : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* file : {"config.json", "model.safetensors"}) {
      folder_.Write(file, ReadFile(GoldenFolder("qwen2") + "/" + file));
    }
  }
  void Config(const SortedJson& changes) {
    auto config = SortedJson::parse(ReadFile(GoldenFolder("qwen2") + "/config.json"));
    config.update(changes);
    folder_.Write("config.json", config.dump());
  }
  Status Load() { return LoadStatus(folder_.path()); }
  TempFolder folder_;
};

TEST_F(BrokenModel, AnIntactModelLoads) {
  EXPECT_TRUE(Load().ok());
}

TEST_F(BrokenModel, ShapesThatDisagreeNameTensorAndBothShapes) {
  Config({{"intermediate_size", 65}});
  EXPECT_REFUSED(Load(), kLoss, "model.safetensors", "model.layers.0.mlp.gate_proj.weight", "[64, 32]", "[65, 32]");
  Config({{"vocab_size", 129}});
  EXPECT_REFUSED(Load(), kLoss, "model.embed_tokens.weight", "bf16 [128, 32]", "[129, 32]");
  Config({{"num_key_value_heads", 4}});
  EXPECT_REFUSED(Load(), kLoss, "k_proj", "[16, 32]", "[32, 32]");
}

TEST_F(BrokenModel, MissingAndUnusedTensorsAreRefused) {
  Config({{"num_hidden_layers", 3}});
  EXPECT_REFUSED(Load(), kLoss, "model.layers.2.", "missing");
  Config({{"num_hidden_layers", 1}});
  EXPECT_REFUSED(Load(), kLoss, "model.layers.1.", "no place");
  Config({{"tie_word_embeddings", false}});
  EXPECT_REFUSED(Load(), kLoss, "lm_head.weight", "missing");
  Config({{"architectures", {"LlamaForCausalLM"}}});  // would silently drop the biases
  EXPECT_REFUSED(Load(), kLoss, ".bias", "no place");
}

TEST_F(BrokenModel, TruncatedWeightsAreRefused) {
  const std::string whole = ReadFile(GoldenFolder("qwen2") + "/model.safetensors");
  for (const size_t size : {size_t{0}, size_t{4}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    folder_.Write("model.safetensors", whole.substr(0, size));
    EXPECT_REFUSED(Load(), kLoss, "model.safetensors");
  }
}

TEST_F(BrokenModel, GgufTensorsOfTheWrongKindAreRefused) {
  GgufBuilder q = TinyGguf("qwen2");  // without biases, which Qwen2 needs
  EXPECT_REFUSED(LoadStatus(folder_.Write("q.gguf", q.Build())), kLoss, "blk.0.attn_q.bias", "missing");
  GgufBuilder extra = TinyGguf();
  extra.F32Tensor("blk.0.ffn_gate_inp.weight", {8, 2});
  EXPECT_REFUSED(LoadStatus(folder_.Write("e.gguf", extra.Build())), kLoss, "ffn_gate_inp", "no place");
  GgufBuilder norm = TinyGguf("qwen3");
  norm.Tensor("blk.0.attn_q_norm.weight", {4}, 0, std::string(16, 0));
  norm.Tensor("blk.0.attn_k_norm.weight", {32}, 8, std::string(34, 0));  // Q8_0
  EXPECT_REFUSED(LoadStatus(folder_.Write("n.gguf", norm.Build())), kLoss, "attn_k_norm", "q8_0 [32]", "[4]");
}

TEST(Loader, MisalignedSafetensorsAreCopied) {
  // An odd header puts every f32 at an odd address.
  TempFolder folder;
  folder.Write("config.json", ReadFile(GoldenFolder("llama-gqa") + "/config.json"));
  std::string file = ReadFile(GoldenFolder("llama-gqa") + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  file.insert(8 + header, " ");
  ++header;
  std::memcpy(file.data(), &header, 8);
  folder.Write("model.safetensors", file);
  const compute::CpuWeights w = Load(Describe(folder.path())), expected = Load(Describe(GoldenFolder("llama-gqa")));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w.embedding.data) % 4, 0u);
  EXPECT_EQ(Row(w.embedding, 5), Row(expected.embedding, 5));
}

TEST(Loader, PathsWithoutAModelAreRefused) {
  TempFolder folder;
  EXPECT_REFUSED(compute::DescribeModel(folder.path() + "/none").status(), StatusCode::kNotFound, "/none");
  EXPECT_REFUSED(compute::DescribeModel(folder.path()).status(), StatusCode::kNotFound, "config.json", ".gguf");
  EXPECT_REFUSED(compute::DescribeModel("").status(), StatusCode::kInvalidArgument, "empty");
  EXPECT_REFUSED(compute::DescribeModel(folder.Write("x.bin", "hello")).status(), StatusCode::kInvalidArgument,
                 "x.bin");
  EXPECT_REFUSED(compute::DescribeModel(folder.Write("x.gguf", "hello")).status(), kLoss, "x.gguf", "not a GGUF");
  EXPECT_REFUSED(compute::DescribeModel(folder.Write("y.gguf", "")).status(), kLoss, "y.gguf", "empty");
  EXPECT_REFUSED(compute::DescribeModel("/dev/null").status(), StatusCode::kInvalidArgument, "not a regular file");
  EXPECT_REFUSED(compute::DescribeModel(folder.path()).status(), StatusCode::kInvalidArgument, "2 .gguf files");
}

TEST(Dummy, LoadsFromAConfigurationAlone) {
  TempFolder folder;
  const std::string config = folder.Write("config.json", ReadFile(GoldenFolder("qwen3") + "/config.json"));
  const compute::ModelDescription d = Describe(folder.path());
  EXPECT_REFUSED(compute::LoadWeights(d, {}, SystemClock()).status(), StatusCode::kNotFound, "model.safetensors");
  const compute::CpuWeights a = Load(d, {.dummy = compute::DummyWeights{7}}),
                            b = Load(Describe(config), {.dummy = compute::DummyWeights{7}});
  const compute::CpuWeights c = Load(d, {.dummy = compute::DummyWeights{8}});
  EXPECT_EQ(a.embedding.dtype, compute::DType::kBF16);
  EXPECT_EQ(Row(a.layers[1][compute::Role::kUp], 3), Row(b.layers[1][compute::Role::kUp], 3));
  EXPECT_NE(Row(a.layers[1][compute::Role::kUp], 3), Row(c.layers[1][compute::Role::kUp], 3));
  EXPECT_NE(Row(a.layers[1][compute::Role::kUp], 3), Row(a.layers[0][compute::Role::kUp], 3));
  EXPECT_NE(Row(a.layers[1][compute::Role::kUp], 3), Row(a.layers[1][compute::Role::kGate], 3));
  EXPECT_EQ(a.layers[0].vector(compute::Role::kAttentionNorm)[5], 1.0f);
  ASSERT_NE(a.layers[0].vector(compute::Role::kQNorm), nullptr);
  EXPECT_NE(a.format.find("dummy bf16"), std::string::npos);
  const std::string named = folder.Write("shape.json", ReadFile(config));
  EXPECT_REFUSED(compute::LoadWeights(Describe(named), {}, SystemClock()).status(), StatusCode::kNotFound,
                 "--load-format dummy");
  EXPECT_EQ(Row(Load(Describe(named), {.dummy = compute::DummyWeights{7}}).embedding, 0), Row(a.embedding, 0));
}

// A norm is all ones; biases are as near to normal as matrices, and differ from each other.
TEST(Dummy, BiasesAreRandomAndNormsAreOnes) {
  compute::ModelDescription d = Describe(GoldenFolder("llama-mha"));
  for (compute::Layer& layer : d.config.layers) {
    auto& attention = test::BlockIn<compute::AttentionBlock>(layer);
    attention.qkv_bias = attention.o_bias = true;
    attention.qk_norm = compute::QkNorm::kHeads;
    test::BlockIn<compute::GatedFeedForwardBlock>(layer).bias = true;
  }
  const compute::ModelConfig& c = d.config;
  const compute::AttentionBlock& attention = test::AttentionIn(c);
  const compute::CpuWeights w = Load(d, {.dummy = compute::DummyWeights{1}});
  const int64_t q = attention.q_width(), kv = attention.kv_width(), hidden = c.hidden_size,
                inter = test::FeedForwardIn(c).inner;
  ASSERT_GT(w.layers.size(), 1u);
  std::set<std::vector<float>> distinct;
  for (const compute::LayerWeights& layer : w.layers) {
    const std::pair<const float*, int64_t> biases[] = {
        {layer.vector(compute::Role::kQBias), q},        {layer.vector(compute::Role::kKBias), kv},
        {layer.vector(compute::Role::kVBias), kv},       {layer.vector(compute::Role::kOBias), hidden},
        {layer.vector(compute::Role::kUpBias), inter},   {layer.vector(compute::Role::kGateBias), inter},
        {layer.vector(compute::Role::kDownBias), hidden}};
    for (const auto& [values, size] : biases) {
      ASSERT_NE(values, nullptr);
      double squares = 0;
      for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(values[i]) * values[i];
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(size)), 0.02, 0.01) << "bias " << distinct.size();
      distinct.emplace(values, values + std::min<int64_t>(size, 8));
    }
    const std::pair<const float*, int64_t> norms[] = {
        {layer.vector(compute::Role::kAttentionNorm), hidden},
        {layer.vector(compute::Role::kFeedForwardNorm), hidden},
        {layer.vector(compute::Role::kQNorm), test::AttentionIn(c).head_dim},
        {layer.vector(compute::Role::kKNorm), test::AttentionIn(c).head_dim},
        {w.outside.vector(compute::Role::kFinalNorm), hidden}};
    for (const auto& [values, size] : norms) {
      ASSERT_NE(values, nullptr);
      EXPECT_EQ(std::count(values, values + size, 1.0f), size);
    }
  }
  EXPECT_EQ(distinct.size(), 7 * w.layers.size()) << "no two biases are alike";
}

TEST(Dummy, ValuesArePinnedAndNearNormal) {
  compute::ModelDescription d = Describe(GoldenFolder("llama-mha"));
  d.config.vocab_size = 4096;
  const compute::CpuWeights f32 = Load(d, {.dummy = compute::DummyWeights{1, compute::DType::kF32}});
  double sum = 0, squares = 0;
  int64_t within = 0;
  std::set<float> distinct;
  for (int64_t row = 0; row < 4096; ++row) {
    for (const float v : Row(f32.embedding, row)) {
      sum += v;
      squares += static_cast<double>(v) * v;
      within += std::abs(v) < 0.02f;
      distinct.insert(v);
    }
  }
  const double n = 4096 * 32;
  EXPECT_NEAR(sum / n, 0.0, 0.0003);
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.0002);
  EXPECT_NEAR(static_cast<double>(within) / n, 0.68, 0.02);  // the normal distribution's share within one deviation
  EXPECT_GT(distinct.size(), 500u);
  // Other formats round the same numbers.
  const compute::CpuWeights bf16 = Load(d, {.dummy = compute::DummyWeights{1}}),
                            q8 = Load(d, {.dummy = compute::DummyWeights{1, compute::DType::kQ8_0}});
  const compute::CpuWeights f16 = Load(d, {.dummy = compute::DummyWeights{1, compute::DType::kF16}});
  const auto exact = Row(f32.layers[1][compute::Role::kDown], 9);
  const auto from_bf16 = Row(bf16.layers[1][compute::Role::kDown], 9),
             from_q8 = Row(q8.layers[1][compute::Role::kDown], 9),
             from_f16 = Row(f16.layers[1][compute::Role::kDown], 9);
  EXPECT_EQ(q8.layers[1][compute::Role::kDown].dtype, compute::DType::kQ8_0);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(from_bf16[i], exact[i], 0.0003);
    EXPECT_NEAR(from_q8[i], exact[i], 0.0004);
    EXPECT_NEAR(from_f16[i], exact[i], 0.00005);
  }
  EXPECT_REFUSED(
      compute::LoadWeights(d, {.dummy = compute::DummyWeights{.dtype = compute::DType::kQ4_K}}, SystemClock()).status(),
      StatusCode::kInvalidArgument, "q4_k");
}

TEST(Inspect, TextAndJson) {
  const compute::ModelDescription d = Describe(GoldenFolder("gguf-mixed"));
  compute::InspectOptions options;
  options.memory.available_bytes = int64_t{4} << 30;
  const auto j = compute::InspectJson(d, options);
  EXPECT_EQ(j["architecture"], "llama");
  EXPECT_EQ(j["format"], "gguf");
  EXPECT_EQ(j["parameters"], d.config.NumParameters());
  EXPECT_EQ(j["tensor_formats"].size(), 11u);
  EXPECT_EQ(j["kv_bytes_per_token"], d.config.KvBytesPerToken(compute::DType::kBF16));
  EXPECT_EQ(j["shape"]["head_dim"], 16);
  EXPECT_GT(j["memory_plan"]["blocks"], 0);
  const std::string text = compute::InspectText(d, options);
  for (const char* part : {"q6_k", "bf16", "memory plan", "llama", "256 tokens"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  options.memory.available_bytes = 1000;
  EXPECT_NE(compute::InspectText(d, options).find("does not fit"), std::string::npos);
  options.memory.available_bytes = -1;
  EXPECT_TRUE(compute::InspectJson(d, options)["memory_plan"].is_null());
}

TEST(Catalog, ListsAndResolves) {
  TempFolder cache;
  EXPECT_TRUE(compute::ListModels(cache.path()).empty());
  EXPECT_REFUSED(compute::ResolveModel("", cache.path()).status(), StatusCode::kNotFound, "smollm2-135m",
                 "scripts/serve.sh", ".gguf");
  const std::string gguf = TinyGguf().Build();
  const std::string default_model = cache.Write("models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf", gguf);
  const std::string loose = cache.Write("models/loose.gguf", gguf);
  cache.Write("models/two/a.gguf", gguf);
  cache.Write("models/two/b.gguf", gguf);
  cache.Write("models/hf/config.json", "{}");
  cache.Write("models/empty/notes.txt", "");
  std::vector<std::string> names;
  for (const compute::CatalogEntry& m : compute::ListModels(cache.path())) names.push_back(m.name);
  EXPECT_EQ(names, (std::vector<std::string>{"hf", "loose", "smollm2-135m", "two/a", "two/b"}));
  EXPECT_EQ(*compute::ResolveModel("", cache.path()), default_model);
  EXPECT_EQ(*compute::ResolveModel("smollm2-135m", cache.path()), default_model);
  EXPECT_EQ(*compute::ResolveModel("loose", cache.path()), loose);
  EXPECT_EQ(*compute::ResolveModel(loose, cache.path()), loose);
  EXPECT_EQ(*compute::ResolveModel("hf", cache.path()), cache.path() + "/models/hf");
  EXPECT_REFUSED(compute::ResolveModel("gpt-5", cache.path()).status(), StatusCode::kNotFound, "'gpt-5'", "two/a",
                 "scripts/serve.sh");
}

TEST(DefaultModel, LoadsWhereItIsInstalled) {
  const char* given = std::getenv("TACTUS_DEFAULT_MODEL");
  const auto path = given != nullptr ? Result<std::string>(std::string(given)) : compute::ResolveModel("");
  if (!path.ok()) GTEST_SKIP() << "set TACTUS_DEFAULT_MODEL to the default model's file: " << path.status().message();
  const compute::ModelDescription d = Describe(*path);
  EXPECT_EQ(d.config.architecture, "llama");
  EXPECT_EQ(d.config.num_layers(), 30);
  EXPECT_EQ(d.config.NumParameters(), 134'515'008);
  EXPECT_EQ(d.config.stop_ids, std::vector<TokenId>{2});
  EXPECT_EQ(d.gguf_tokenizer.pre, "smollm");
  EXPECT_EQ(d.gguf_tokenizer.tokens.size(), 49152u);
  EXPECT_FALSE(d.chat_template.empty());
  const compute::CpuWeights w = Load(d);
  EXPECT_EQ(w.format, "q4_1 (210), f32 (61), q8_0 (1)");
  EXPECT_EQ(w.embedding.dtype, compute::DType::kQ8_0);
  EXPECT_EQ(w.lm_head.data, w.embedding.data);
}

}  // namespace
}  // namespace tactus::loader_test
