// Packing at load: the contents of the panels, from every source and for every choice, and the small memory that it
// needs.
#include "compute/packing/pack_weights.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "compute/kernels/kernel_testing.h"
#include "compute/model/loader.h"
#include "compute/packing/weight_cache.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/float16.h"
#include "compute/tensor/quantize.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/weight_storage.h"

namespace tactus::pack_weights_test {
namespace {

using compute::PackedMatrix;
using compute::Quantization;
using test::GgufBuilder;
using test::GoldenFolder;
using test::ReadFile;
using test::TempFolder;

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
compute::LoadWeightsOptions Packing(Quantization quantization = Quantization::kNone, int32_t threads = 1) {
  compute::LoadWeightsOptions options;
  options.pack = true;
  options.packing.quantization = quantization;
  options.threads = threads;
  return options;
}
std::vector<float> Row(const compute::MatrixView& m, int64_t row) {
  std::vector<float> out(static_cast<size_t>(m.cols));
  compute::Dequantize(m.dtype, static_cast<const std::byte*>(m.data) + row * m.row_bytes, m.cols, out.data());
  return out;
}
std::vector<float> Row(const PackedMatrix& m, int64_t row) {
  std::vector<float> out(static_cast<size_t>(m.cols));
  compute::UnpackRow(m, row, out.data());
  return out;
}
std::string Bytes(const PackedMatrix& m) {
  return {reinterpret_cast<const char*>(m.data), static_cast<size_t>(m.bytes())};
}

struct Pair {
  std::string name;
  const compute::MatrixView* view;
  const PackedMatrix* packed;
};
std::vector<Pair> PairsOf(const compute::CpuWeights& rows, const compute::CpuWeights& packed) {
  std::vector<Pair> pairs = {{"embedding", &rows.embedding, &packed.packed->embedding},
                             {"lm_head", &rows.lm_head, &packed.packed->lm_head}};
  for (size_t l = 0; l < rows.layers.size(); ++l) {
    const compute::LayerWeights& r = rows.layers[l];
    const compute::PackedLayerWeights& p = packed.packed->layers[l];
    const std::string at = std::to_string(l) + ".";
    for (const Pair& pair :
         std::initializer_list<Pair>{{at + "wq", &r[compute::Role::kQ], &p[compute::Role::kQ]},
                                     {at + "wk", &r[compute::Role::kK], &p[compute::Role::kK]},
                                     {at + "wv", &r[compute::Role::kV], &p[compute::Role::kV]},
                                     {at + "wo", &r[compute::Role::kO], &p[compute::Role::kO]},
                                     {at + "w_gate", &r[compute::Role::kGate], &p[compute::Role::kGate]},
                                     {at + "w_up", &r[compute::Role::kUp], &p[compute::Role::kUp]},
                                     {at + "w_down", &r[compute::Role::kDown], &p[compute::Role::kDown]}}) {
      pairs.push_back(pair);
    }
  }
  return pairs;
}

constexpr const char* kGoldenModels[] = {"llama-mha",  "llama-gqa", "llama-gqa-bf16", "llama-gqa-f16", "llama-sharded",
                                         "llama-bias", "qwen2",     "qwen3",          "gguf-f16",      "gguf-bf16",
                                         "gguf-q8_0",  "gguf-q4_0", "gguf-q4_1",      "gguf-q5_0",     "gguf-q5_1",
                                         "gguf-q4_k",  "gguf-q5_k", "gguf-q6_k",      "gguf-mixed"};

TEST(PackWeights, EveryFormatKeepsItsValues) {
  for (const char* name : kGoldenModels) {
    SCOPED_TRACE(name);
    const compute::ModelDescription d = Describe(GoldenFolder(name));
    const compute::CpuWeights rows = Load(d), packed = Load(d, Packing());
    ASSERT_NE(packed.packed, nullptr);
    for (const Pair& pair : PairsOf(rows, packed)) {
      SCOPED_TRACE(pair.name);
      ASSERT_EQ(pair.packed->rows, pair.view->rows);
      for (int64_t row = 0; row < pair.view->rows; row += 5) {
        ASSERT_EQ(Row(*pair.packed, row), Row(*pair.view, row)) << "row " << row;
      }
    }
  }
}

TEST(PackWeights, RowsAreDroppedAndTiedMatricesShareData) {
  for (const char* name : {"qwen2", "llama-mha"}) {
    const compute::ModelDescription d = Describe(GoldenFolder(name));
    const compute::CpuWeights w = Load(d, Packing());
    EXPECT_EQ(w.embedding.data, nullptr);
    EXPECT_EQ(w.lm_head.data, nullptr);
    EXPECT_EQ(w.layers[0][compute::Role::kDown].data, nullptr);
    EXPECT_EQ(w.layers[0][compute::Role::kDown].rows, d.config.hidden_size) << "shapes stay";
    EXPECT_EQ(w.packed->lm_head.data == w.packed->embedding.data, d.config.tie_embeddings);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.packed->layers[1][compute::Role::kK].data) % 64, 0u);
    EXPECT_EQ(w.bytes, *compute::PlanWeightBytes(d, Packing()));
  }
}

TEST(PackWeights, AnyNumberOfThreadsGivesTheSameBytes) {
  const compute::ModelDescription d = Describe(GoldenFolder("gguf-mixed"));
  const compute::CpuWeights one = Load(d, Packing(Quantization::kInt4, 1)),
                            many = Load(d, Packing(Quantization::kInt4, 4));
  for (size_t l = 0; l < one.packed->layers.size(); ++l) {
    EXPECT_EQ(Bytes(one.packed->layers[l][compute::Role::kUp]), Bytes(many.packed->layers[l][compute::Role::kUp]));
    EXPECT_EQ(Bytes(one.packed->layers[l][compute::Role::kDown]), Bytes(many.packed->layers[l][compute::Role::kDown]));
  }
  EXPECT_EQ(Bytes(one.packed->lm_head), Bytes(many.packed->lm_head));
}

// A Llama in which every row is a whole number of blocks and all matrices have one dtype, with equal values for all
// that we can quantise to, else with random blocks.
constexpr int64_t kHidden = 128, kInner = 256, kVocab = 200;
std::string GgufOf(compute::DType dtype, int64_t hidden = kHidden, int64_t inner = kInner, int64_t vocab = kVocab) {
  GgufBuilder b;
  b.Text("general.architecture", "llama");
  b.U32("llama.block_count", 1);
  b.U32("llama.embedding_length", static_cast<uint32_t>(hidden));
  b.U32("llama.context_length", 64);
  b.U32("llama.feed_forward_length", static_cast<uint32_t>(inner));
  b.U32("llama.attention.head_count", static_cast<uint32_t>(hidden / 64));
  b.U32("llama.attention.head_count_kv", static_cast<uint32_t>(hidden / 128));
  b.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i * 2654435761u % 100003)) * 0.05f;
    std::string data(static_cast<size_t>(rows * compute::RowBytes(dtype, cols)), '\0');
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    if (compute::CanQuantize(dtype)) {
      compute::Quantize(dtype, values.data(), rows * cols, bytes);
    } else {
      const compute::testing::OwnedMatrix random = compute::testing::RandomMatrix(dtype, rows, cols, 17);
      std::memcpy(bytes, random.view.data, data.size());
    }
    for (const test::GgmlType& type : test::kGgmlTypes) {
      if (type.name != std::string(compute::InfoOf(dtype).name)) continue;
      b.Tensor(name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)}, type.id, data);
    }
  };
  matrix("token_embd.weight", vocab, hidden);
  b.F32Tensor("output_norm.weight", {static_cast<uint64_t>(hidden)});
  b.F32Tensor("blk.0.attn_norm.weight", {static_cast<uint64_t>(hidden)});
  b.F32Tensor("blk.0.ffn_norm.weight", {static_cast<uint64_t>(hidden)});
  matrix("blk.0.attn_q.weight", hidden, hidden);
  matrix("blk.0.attn_k.weight", hidden / 2, hidden);
  matrix("blk.0.attn_v.weight", hidden / 2, hidden);
  matrix("blk.0.attn_output.weight", hidden, hidden);
  matrix("blk.0.ffn_gate.weight", inner, hidden);
  matrix("blk.0.ffn_up.weight", inner, hidden);
  matrix("blk.0.ffn_down.weight", hidden, inner);
  return b.Build();
}

TEST(PackWeights, EveryFormatOfAFileKeepsItsValues) {
  for (const compute::DType dtype : compute::testing::kAllDTypes) {
    if (dtype >= compute::DType::kI4_BF16) break;  // GGUF has none of these: QuantisedModels has them
    SCOPED_TRACE(compute::InfoOf(dtype).name);
    TempFolder folder;
    const compute::ModelDescription d = Describe(folder.Write("m.gguf", GgufOf(dtype, 256, 512)));
    EXPECT_EQ(d.config.weight_dtype, dtype);
    const compute::CpuWeights rows = Load(d), packed = Load(d, Packing());
    ASSERT_NE(packed.packed, nullptr);
    for (const Pair& pair : PairsOf(rows, packed)) {
      for (int64_t row = 0; row < pair.view->rows; row += 7)
        ASSERT_EQ(Row(*pair.packed, row), Row(*pair.view, row)) << pair.name << " row " << row;
    }
    EXPECT_EQ(packed.bytes, *compute::PlanWeightBytes(d, Packing()));
  }
}

TEST(PackWeights, QuantizingAtLoadEqualsAQuantizedFile) {
  TempFolder folder;
  const compute::ModelDescription f32 = Describe(folder.Write("a/f32.gguf", GgufOf(compute::DType::kF32)));
  const compute::ModelDescription q8 = Describe(folder.Write("b/q8.gguf", GgufOf(compute::DType::kQ8_0)));
  const compute::CpuWeights at_load = Load(f32, Packing(Quantization::kQ8_0, 2)), stored = Load(q8, Packing());
  const auto& a = *at_load.packed;
  const auto& b = *stored.packed;
  EXPECT_EQ(Bytes(a.embedding), Bytes(b.embedding));
  for (const auto member : {compute::Role::kQ, compute::Role::kK, compute::Role::kV, compute::Role::kO,
                            compute::Role::kGate, compute::Role::kUp, compute::Role::kDown}) {
    EXPECT_EQ(Bytes(a.layers[0][member]), Bytes(b.layers[0][member]));
  }
  EXPECT_EQ(at_load.format, "q8_0 from f32 (11)");
  EXPECT_EQ(stored.format, "q8_0 (8), f32 (3)");
}

TEST(PackWeights, QuantizingStaysWithinTheFormatsStep) {
  TempFolder folder;
  for (const compute::DType stored : {compute::DType::kF32, compute::DType::kF16, compute::DType::kQ4_1}) {
    const compute::ModelDescription d =
        Describe(folder.Write(std::string(compute::InfoOf(stored).name) + "/m.gguf", GgufOf(stored)));
    const compute::CpuWeights rows = Load(d);
    // Half a step of the grid, 255 for 8 bits and 15 for 4, for values up to 0.05; scales are rounded, int4's are
    // searched.
    for (const auto& [quantization, bound] :
         {std::pair{Quantization::kQ8_0, 0.00021f}, {Quantization::kInt8, 0.00021f}, {Quantization::kInt4, 0.0045f}}) {
      const compute::CpuWeights packed = Load(d, Packing(quantization));
      double error = 0.0, count = 0.0;
      for (int64_t row = 0; row < kInner; ++row) {
        const std::vector<float> exact = Row(rows.layers[0][compute::Role::kUp], row),
                                 got = Row(packed.packed->layers[0][compute::Role::kUp], row);
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_LE(std::abs(exact[i] - got[i]), bound);
          error += std::abs(exact[i] - got[i]);
          count += 1.0;
        }
      }
      if (stored == compute::DType::kF32) {
        EXPECT_GT(error / count, bound * 0.1) << "it is quantised";
      }
    }
  }
}

TEST(PackWeights, VocabularyKeeps8BitsUnderInt4) {
  TempFolder folder;
  const compute::CpuWeights w =
      Load(Describe(folder.Write("m.gguf", GgufOf(compute::DType::kF32))), Packing(Quantization::kInt4));
  EXPECT_EQ(static_cast<int>(w.packed->embedding.code), static_cast<int>(compute::PackedCode::kU8));
  EXPECT_EQ(static_cast<int>(w.packed->layers[0][compute::Role::kQ].code), static_cast<int>(compute::PackedCode::kU4));
}

TEST(PackWeights, Bf16RoundingAppliesToAnyFile) {
  TempFolder folder;
  const compute::ModelDescription d = Describe(folder.Write("m.gguf", GgufOf(compute::DType::kQ4_0)));
  compute::LoadWeightsOptions options = Packing();
  options.packing.round_to_bf16 = true;
  const compute::CpuWeights rows = Load(d), packed = Load(d, options);
  std::vector<float> expected = Row(rows.layers[0][compute::Role::kO], 77);
  for (float& v : expected) v = compute::BF16ToF32(compute::F32ToBF16(v));
  EXPECT_EQ(Row(packed.packed->layers[0][compute::Role::kO], 77), expected);
  EXPECT_EQ(packed.format, "bf16 from q4_0 (8), f32 (3)");
}

TEST(PackWeights, MisalignedSafetensorsPackTheSame) {
  TempFolder folder;  // an odd header puts every tensor at an odd address
  folder.Write("config.json", ReadFile(GoldenFolder("llama-gqa-bf16") + "/config.json"));
  std::string file = ReadFile(GoldenFolder("llama-gqa-bf16") + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  file.insert(8 + header, " ");
  ++header;
  std::memcpy(file.data(), &header, 8);
  folder.Write("model.safetensors", file);
  const compute::CpuWeights w = Load(Describe(folder.path()), Packing(Quantization::kNone, 2));
  const compute::CpuWeights expected = Load(Describe(GoldenFolder("llama-gqa-bf16")), Packing());
  EXPECT_EQ(Bytes(w.packed->layers[1][compute::Role::kDown]), Bytes(expected.packed->layers[1][compute::Role::kDown]));
  EXPECT_EQ(Bytes(w.packed->embedding), Bytes(expected.packed->embedding));
}

TEST(PackWeights, DummyRowsAreGeneratedOnDemand) {
  const compute::ModelDescription d = Describe(GoldenFolder("llama-mha"));
  for (const compute::DType dtype :
       {compute::DType::kBF16, compute::DType::kQ8_0, compute::DType::kQ4_0, compute::DType::kQ4_1}) {
    SCOPED_TRACE(compute::InfoOf(dtype).name);
    compute::LoadWeightsOptions options = Packing(Quantization::kNone, 3);
    options.dummy = compute::DummyWeights{5, dtype};
    const compute::CpuWeights packed = Load(d, options);
    options.pack = false;
    const compute::CpuWeights rows = Load(d, options);
    for (const Pair& pair : PairsOf(rows, packed)) {
      for (int64_t row = 0; row < pair.view->rows; row += 7)
        ASSERT_EQ(Row(*pair.packed, row), Row(*pair.view, row)) << pair.name;
    }
  }
}

TEST(PackWeights, TokensKeep16BitsWhereThatIsCheap) {
  using compute::Rounding;
  compute::ModelDescription d = Describe(GoldenFolder("llama-mha"));  // MHA: 16 bits are expensive for k and v
  compute::LoadWeightsOptions options = Packing(Quantization::kInt8);
  options.packing.rounding = Rounding::kInt8;
  const compute::TokenRoundings all_heads = Load(d, options).packed->roundings;
  EXPECT_EQ(all_heads.others, Rounding::kInt8);
  EXPECT_EQ(all_heads.kv, Rounding::kInt8);
  EXPECT_EQ(all_heads.lm_head, Rounding::kInt16);
  options.dummy.emplace();
  for (compute::Layer& layer : d.config.layers) {
    auto& attention = test::BlockIn<compute::AttentionBlock>(layer);
    attention.heads = 8;
    attention.kv_heads = 1;
    attention.head_dim = 4;
  }
  EXPECT_EQ(Load(d, options).packed->roundings.kv, Rounding::kInt16);
  options.packing.rounding = Rounding::kMixed;
  const compute::TokenRoundings mixed = Load(d, options).packed->roundings;
  EXPECT_EQ(mixed.kv, Rounding::kMixed);
  EXPECT_EQ(mixed.down, Rounding::kMixedFine);
  EXPECT_EQ(mixed.lm_head, Rounding::kInt16);
  EXPECT_EQ(mixed.others, Rounding::kMixed);
  options.packing.quantization = Quantization::kInt4;
  EXPECT_EQ(Load(d, options).packed->roundings.lm_head, Rounding::kMixedFine);
  options.packing.rounding = Rounding::kInt16;
  EXPECT_EQ(Load(d, options).packed->roundings.others, Rounding::kInt16);
}

int64_t ResidentBytes() {
  int64_t size = 0, resident = 0, of_files = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> of_files;
#ifdef __SANITIZE_THREAD__
  resident = of_files;  // ThreadSanitizer adds four bytes for each touched byte
#endif
  return resident * sysconf(_SC_PAGESIZE);
}

// Rows and panels are never in memory together: when 64 MiB of f32 become 17 MiB of q8_0, only the panels stay.
TEST(PackWeights, FilePagesAreReleasedWhilePacking) {
  constexpr int64_t kWide = 1024,
                    kSlackBytes = int64_t{12} << 20;  // the system reads 16 tasks of 1 MiB ahead, unmapped
  TempFolder folder;
  const compute::ModelDescription d =
      Describe(folder.Write("m.gguf", GgufOf(compute::DType::kF32, kWide, 2 * kWide, 8 * kWide)));
  const auto opened = compute::OpenWeights(d, compute::MatrixUse::kRows);
  ASSERT_TRUE(opened.ok());
  compute::OpenedWeights& model = **opened;
  compute::PackChoice choice;
  choice.quantization = Quantization::kQ8_0;
  const auto plan = compute::PlanPacking(d.config, *model.names, choice, &model.weights);
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->source_bytes, int64_t{64} << 20);
  std::vector<std::byte> memory(static_cast<size_t>(plan->bytes) + 64);
  std::byte* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  compute::ThreadPool pool(1, SystemClock());
  const int64_t before = ResidentBytes();  // includes the vector's pages
  int64_t most = 0, done = 0;
  ASSERT_TRUE(compute::PackAll(*plan, *model.source, pool, aligned, [&](int64_t bytes) {
                most = std::max(most, ResidentBytes());
                done = bytes;
              }).ok());
  EXPECT_EQ(done, plan->source_bytes);
  EXPECT_LT(most - before, kSlackBytes) << "of " << plan->source_bytes << " bytes of rows";
}

TEST(PackWeights, BrokenFilesAreAlsoRefusedWhenPacking) {
  TempFolder folder;
  GgufBuilder extra = test::TinyGguf();
  extra.F32Tensor("blk.0.ffn_gate_inp.weight", {8, 2});
  const compute::ModelDescription d = Describe(folder.Write("e.gguf", extra.Build()));
  EXPECT_REFUSED(compute::LoadWeights(d, Packing(), SystemClock()).status(), StatusCode::kDataLoss, "ffn_gate_inp",
                 "no place");
  EXPECT_REFUSED(compute::PlanWeightBytes(d, Packing()).status(), StatusCode::kDataLoss, "ffn_gate_inp");
  compute::ModelDescription config_only =
      Describe(folder.Write("c/config.json", ReadFile(GoldenFolder("qwen3") + "/config.json")));
  EXPECT_REFUSED(compute::LoadWeights(config_only, Packing(), SystemClock()).status(), StatusCode::kNotFound,
                 "safetensors");
}

// ---- the cache on disk

class WeightCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.Write("m.gguf", GgufOf(compute::DType::kF32));
    cache_ = folder_.path() + "/cache";
  }
  compute::CpuWeights LoadCached(Quantization quantization = Quantization::kQ8_0) {
    compute::LoadWeightsOptions options = Packing(quantization, 2);
    options.cache_folder = cache_;
    said_.clear();
    options.say = [this](const std::string& line) { said_ += line + "\n"; };
    return Load(Describe(path_), options);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(cache_)) files.push_back(entry.path().string());
    return files;
  }
  bool Said(const std::string& part) const { return said_.find(part) != std::string::npos; }
  // The next load reports `reason`, uses correct data and rewrites the file; the one after that uses it.
  void ExpectRewritten(const std::string& reason) {
    const std::string fresh =
        Bytes(Load(Describe(path_), Packing(Quantization::kQ8_0)).packed->layers[0][compute::Role::kDown]);
    EXPECT_EQ(Bytes(LoadCached().packed->layers[0][compute::Role::kDown]), fresh);
    EXPECT_TRUE(Said(reason)) << said_;
    EXPECT_TRUE(Said("weight cache written")) << said_;
    EXPECT_EQ(Bytes(LoadCached().packed->layers[0][compute::Role::kDown]), fresh);
    EXPECT_TRUE(Said("packed weights from")) << said_;
    EXPECT_EQ(Files().size(), 1u);
  }
  TempFolder folder_;
  std::string path_, cache_, said_;
};

TEST_F(WeightCacheTest, MissThenHit) {
  const compute::CpuWeights fresh = LoadCached();
  EXPECT_TRUE(Said("weight cache written")) << said_;
  const compute::CpuWeights cached = LoadCached();
  EXPECT_TRUE(Said("packed weights from")) << said_;
  EXPECT_FALSE(Said("packed into")) << said_;
  EXPECT_EQ(Bytes(fresh.packed->embedding), Bytes(cached.packed->embedding));
  EXPECT_EQ(Bytes(fresh.packed->layers[0][compute::Role::kGate]),
            Bytes(cached.packed->layers[0][compute::Role::kGate]));
  EXPECT_EQ(fresh.bytes, cached.bytes);
  EXPECT_EQ(fresh.format, cached.format);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(cached.packed->embedding.data) % 64, 0u);
  LoadCached(Quantization::kInt4);
  EXPECT_FALSE(Said("not used")) << "another form is another file";
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(WeightCacheTest, EveryDamagedByteIsFound) {
  LoadCached();
  const std::string file = Files().at(0), whole = ReadFile(file);
  const size_t data = whole.size() -
                      static_cast<size_t>(*compute::PlanWeightBytes(Describe(path_), Packing(Quantization::kQ8_0))) +
                      3 * kHidden * 4;
  for (const size_t at : {size_t{0}, size_t{40}, data + 1, data + 5000, whole.size() - 1}) {
    SCOPED_TRACE(at);
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    std::ofstream(file, std::ios::binary) << broken;
    ExpectRewritten(at < 1000 ? "other files" : "damaged");
    EXPECT_EQ(ReadFile(file), whole);
  }
}

TEST_F(WeightCacheTest, WrongSizesAreFound) {
  LoadCached();
  const std::string file = Files().at(0), whole = ReadFile(file);
  for (const size_t size : {size_t{10}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    ExpectRewritten("not used");
  }
  std::ofstream(file, std::ios::binary) << whole + "x";
  ExpectRewritten("should have");
  std::ofstream(file, std::ios::binary) << "";
  ExpectRewritten("empty");
}

// A start that was killed while writing leaves a file that no process has locked; another start may be writing now.
TEST_F(WeightCacheTest, UnfinishedFilesOfDeadWritersAloneAreRemoved) {
  LoadCached();
  const std::string file = Files().at(0), dead = file + ".abc123.tmp", living = file + ".def456.tmp",
                    other = cache_ + "/other.tmp";
  for (const std::string& path : {dead, living, other}) std::ofstream(path) << "half";
  const int held = open(living.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  std::filesystem::remove(file);
  LoadCached();
  EXPECT_TRUE(Said("weight cache written")) << said_;
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_EQ(Files().size(), 3u);
  close(held);
}

TEST_F(WeightCacheTest, AChangedModelReplacesItsFile) {
  LoadCached();
  std::string changed = ReadFile(path_);
  changed[changed.size() - 200] = static_cast<char>(changed[changed.size() - 200] ^ 0x20);
  std::ofstream(path_, std::ios::binary) << changed;
  const auto now = std::filesystem::last_write_time(path_);
  std::filesystem::last_write_time(path_, now + std::chrono::seconds(2));  // file-system clocks may be coarse
  ExpectRewritten("other files");
}

// Written by an older program: the same model and form, but another layout.
TEST_F(WeightCacheTest, AFileOfAnotherLayoutIsRewritten) {
  LoadCached();
  const std::string file = Files().at(0), whole = ReadFile(file), word = ", layout ";
  const size_t at = whole.find(word) + word.size();
  ASSERT_LT(at, 100u);
  ASSERT_TRUE('2' <= whole[at] && whole[at] <= '9');
  std::string older = whole;
  --older[at];
  std::ofstream(file, std::ios::binary) << older;
  ExpectRewritten("other files or for another form");
  EXPECT_EQ(ReadFile(file), whole);
}

TEST_F(WeightCacheTest, AnUnwritableFolderIsNoError) {
  folder_.Write("cache", "a file");
  const compute::CpuWeights w = LoadCached();
  ASSERT_NE(w.packed, nullptr);
  EXPECT_TRUE(Said("cannot be written")) << said_;
  compute::LoadWeightsOptions options = Packing();
  options.dummy.emplace();
  options.cache_folder = cache_;
  options.say = [this](const std::string& line) { said_ += line; };
  EXPECT_TRUE(compute::LoadWeights(Describe(path_), options, SystemClock()).ok());
  EXPECT_TRUE(Said("dummy weights have no files")) << said_;
}

// The file that a process opens first has number 0 if standard input is closed.
TEST_F(WeightCacheTest, IsWrittenWhereStandardInputIsClosed) {
  const compute::WeightCacheKey key = {folder_.path() + "/direct/m.packed", "what it begins with\n", 5};
  compute::ThreadPool pool(1, SystemClock());
  const int kept = dup(0);
  if (kept >= 0) close(0);
  const Status written = compute::WriteWeightCache(key, reinterpret_cast<const std::byte*>("abcde"), pool);
  if (kept >= 0) {
    dup2(kept, 0);
    close(kept);
  }
  EXPECT_TRUE(written.ok()) << written.ToString();
  const auto cached = compute::OpenWeightCache(key, pool);
  ASSERT_TRUE(cached.ok()) << cached.status().ToString();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(cached->memory), 5), "abcde");
}

TEST(WeightStorage, HugePageBytesReadsTheMappingAroundAnAddress) {
  TempFolder folder;
  const std::string smaps =
      folder.Write("smaps",
                   "100000-300000 rw-p 00000000 00:00 0 \nSize: 2048 kB\nAnonHugePages: 0 kB\nVmFlags: rd wr\n"
                   "300000-900000 rw-p 00000000 00:00 0   [heap]\nSize: 6144 kB\nAnonHugePages:      4096 kB\n"
                   "900000-b00000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n"
                   "c00000-d00000 rw-p 00000000 00:00 0 \nSize: 1024 kB\n");
  const auto bytes = [&smaps](uintptr_t at) {
    return compute::HugePageBytes(reinterpret_cast<const void*>(at), smaps.c_str());
  };
  EXPECT_EQ(bytes(0x2fffff), 0);
  EXPECT_EQ(bytes(0x300000), 4096 * 1024) << "the first byte of a mapping";
  EXPECT_EQ(bytes(0x8fffff), 4096 * 1024) << "and its last";
  EXPECT_EQ(bytes(0x900000), 2048 * 1024);
  EXPECT_EQ(bytes(0xb00000), 0) << "in no mapping";
  EXPECT_EQ(bytes(0xc00000), 0) << "a mapping without a report by the system";
  EXPECT_EQ(compute::HugePageBytes(&folder, (folder.path() + "/absent").c_str()), 0);
}

// A mixture of two experts in one layer, or several streams. Every matrix is bf16, those with number 1 are `dtype`.
Result<compute::PackPlan> PlanExperts(compute::DType dtype, const compute::PackChoice& choice, int64_t streams = 1) {
  compute::ModelConfig config;
  config.hidden_size = 32, config.vocab_size = 64, config.tie_embeddings = true, config.streams = streams;
  const compute::ExpertsBlock block{.experts = 2, .expert = {.inner = 32}};
  if (streams == 1) config.layers = {{{.block = block}}};
  compute::ModelWeights weights;
  compute::ResizeLayers(config, &weights);
  for (const compute::ModelTensor& t : config.Tensors()) {
    if (!compute::IsMatrix(t.role)) continue;
    const compute::DType type = t.expert == 1 ? dtype : compute::DType::kBF16;
    compute::MatrixAt(weights, t) = {nullptr, type, t.rows, t.cols, compute::RowBytes(type, t.cols)};
  }
  return compute::PlanPacking(config, compute::kHfTensorNames, choice, &weights);
}

TEST(PackExperts, ExpertsOfOneTypeAreTaken) {
  EXPECT_TRUE(PlanExperts(compute::DType::kBF16, {}).ok());
}

TEST(PackExperts, AnExpertOfAnotherTypeIsRefusedByName) {
  const auto plan = PlanExperts(compute::DType::kF32, {});
  ASSERT_FALSE(plan.ok());
  for (const char* part : {"model.layers.0.mlp.experts.1.gate_proj.weight", "f32", "--quantization"}) {
    EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().message();
  }
}

TEST(PackExperts, QuantisingMakesOneTypeOfSeveral) {
  EXPECT_TRUE(PlanExperts(compute::DType::kF32, {.quantization = Quantization::kQ8_0}).ok());
}

TEST(PackExperts, MatricesOfStreamsMayDifferInType) {
  const auto plan = PlanExperts(compute::DType::kF32, {}, 3);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
}

// The router decides which experts run: it keeps the file's type.
TEST(PackExperts, TheRouterIsNotQuantised) {
  const auto plan = PlanExperts(compute::DType::kBF16, {.quantization = Quantization::kInt8});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  for (const compute::PackedSlot& slot : plan->slots) {
    const bool is_router = slot.tensor.role == compute::Role::kRouter;
    EXPECT_EQ(slot.form.code == compute::PackedCode::kBF16, is_router) << slot.name;
  }
}

}  // namespace
}  // namespace tactus::pack_weights_test
