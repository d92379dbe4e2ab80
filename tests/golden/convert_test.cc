// `tactus models convert` over the tiny models: their answers after a conversion, every tensor's values, and refusals.
#include "compute/convert/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"
#include "compute/config/architecture.h"
#include "compute/convert/output.h"
#include "compute/tensor/dequantize.h"
#include "compute/tensor/encode.h"
#include "compute/tensor/float16.h"
#include "compute/weights/gguf_split.h"
#include "compute/weights/model_files.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/safetensors.h"
#include "golden/convert_case.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

using compute::DType;
using compute::ModelFormat;

class ConvertFamily : public testing::TestWithParam<const char*> {};

TEST_P(ConvertFamily, GgufGivesTheModelsAnswers) {
  TempFolder folder;
  const std::string out = folder.path() + "/m.gguf", source = Model(GetParam());
  MustConvert(source, To(out, DType::kF32));
  const double before = ErrorOf(source, GetParam()), after = ErrorOf(out, GetParam());
  auto from = compute::DescribeModel(source), to = compute::DescribeModel(out);
  ASSERT_TRUE(from.ok() && to.ok());
  if (from->config.rope.interleaved == to->config.rope.interleaved &&
      from->config.rope.scaling == to->config.rope.scaling) {
    EXPECT_EQ(before, after) << "the same weights in the same order";
  }
  EXPECT_LE(after, 1e-4);
}

std::string TestName(const testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ConvertFamily,
                         testing::Values("bloom", "cohere", "falcon-40b", "falcon-7b", "gemma", "glm4", "gpt2",
                                         "granite", "llama-bias", "llama-gqa", "llama-mha", "llama-mqa-linear",
                                         "mistral-window", "olmo2", "phi3", "phi4-mini", "qwen2", "qwen3", "seed-oss",
                                         "stablelm", "yi", "qwen3-moe", "dots1", "ernie-moe", "mixtral", "olmoe",
                                         "gpt-oss", "gpt-oss-mxfp4", "glm4-moe", "granite-moe", "granite-moe-shared",
                                         "minimax-m2", "phi-moe", "llama4", "gemma4", "gemma4-12b", "gemma4-experts",
                                         "hunyuan"),
                         TestName);

// Fused, transposed and stacked tensors keep their places: a folder of a folder is the same to the bit.
TEST(ConvertFolder, KeepsTheTensorsOfItsSource) {
  for (const char* name :
       {"bloom", "falcon-7b", "falcon-40b", "falcon-rw", "gpt2", "gpt-oss", "gpt-neox", "ernie-moe", "granite-moe",
        "glm4", "mixtral", "llama4", "hunyuan-moe", "gemma4", "gemma4-experts", "gemma3n"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    MustConvert(Model(name), To(folder.path() + "/m", DType::kBF16));
    const auto from = TensorBytes(Model(name)), to = TensorBytes(folder.path() + "/m");
    EXPECT_EQ(from.size(), to.size());
    for (const auto& [tensor, bytes] : to) EXPECT_TRUE(from.contains(tensor) && from.at(tensor) == bytes) << tensor;
    EXPECT_EQ(ErrorOf(Model(name), name), ErrorOf(folder.path() + "/m", name));
  }
}

// The rows before OPT's first position are not read.
TEST(ConvertFolder, HasZerosInRowsOfNoPosition) {
  TempFolder folder;
  MustConvert(Model("opt"), To(folder.path() + "/m", DType::kBF16));
  EXPECT_EQ(ErrorOf(Model("opt"), "opt"), ErrorOf(folder.path() + "/m", "opt"));
  const std::string name = "model.decoder.embed_positions.weight";
  std::string expected = TensorBytes(Model("opt")).at(name);
  const size_t rows = expected.find(']') + 1;
  std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(rows), 2 * 2 * 32, '\0');
  EXPECT_EQ(TensorBytes(folder.path() + "/m").at(name), expected);
}

TEST(ConvertFolder, DecodesMxfp4) {
  TempFolder folder;
  MustConvert(Model("gpt-oss-mxfp4"), To(folder.path() + "/m", DType::kBF16));
  EXPECT_EQ(ReadFile(folder.path() + "/m/config.json").find("quantization_config"), std::string::npos);
  EXPECT_LE(ErrorOf(folder.path() + "/m", "gpt-oss-mxfp4"), 1e-4);
  EXPECT_REFUSED(Convert(Model("gpt2"), ToIntegers(folder.path() + "/i", "w8a16")).status(), StatusCode::kUnimplemented,
                 "w8a16", "choose bf16");
}

class ConvertGguf : public testing::TestWithParam<const char*> {};

TEST_P(ConvertGguf, FolderAndFileOfItGiveTheModelsAnswers) {
  TempFolder folder;
  MustConvert(Model(GetParam()), To(folder.path() + "/m", DType::kF32));
  EXPECT_LE(ErrorOf(folder.path() + "/m", GetParam()), 1e-4);
  MustConvert(folder.path() + "/m", To(folder.path() + "/m.gguf", DType::kF32));
  const auto from = compute::DescribeModel(Model(GetParam())), to = compute::DescribeModel(folder.path() + "/m.gguf");
  ASSERT_TRUE(from.ok() && to.ok());
  const double after = ErrorOf(folder.path() + "/m.gguf", GetParam());
  EXPECT_LE(after, 1e-4);
  // Factors that another program derived from a scaling differ in their last bits.
  if (from->config.rope == to->config.rope) {
    EXPECT_EQ(after, ErrorOf(Model(GetParam()), GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ConvertGguf,
                         testing::Values("gguf-command-r", "gguf-exaone4", "gguf-gemma", "gguf-gemma3", "gguf-glm4",
                                         "gguf-granite", "gguf-mixed", "gguf-olmo2", "gguf-olmo3", "gguf-phi3",
                                         "gguf-q6_k", "gguf-seed-oss", "gguf-smollm3", "gguf-stablelm",
                                         "gguf-starcoder2", "gguf-bloom", "gguf-falcon-7b", "gguf-falcon-40b",
                                         "gguf-gpt2", "gguf-gptneox", "gguf-qwen3-moe", "gguf-qwen2-moe",
                                         "gguf-mixtral", "gguf-olmoe", "gguf-gpt-oss", "gguf-glm4-moe", "gguf-dots1",
                                         "gguf-ernie-moe", "gguf-granite-moe", "gguf-minimax-m2", "gguf-phi-moe",
                                         "gguf-llama4", "gguf-hunyuan", "gguf-hunyuan-moe", "gguf-gemma4",
                                         "gguf-gemma4-12b", "gguf-gemma4-experts", "gguf-gemma3n"),
                         TestName);

// Through GGUF and back: every value returns to its place, rows of q and k too.
TEST(Convert, TensorsSurviveTheWayThroughGguf) {
  for (const char* name : {"llama-gqa", "llama-bias", "mistral-window", "qwen2", "qwen3", "granite", "olmo2", "phi3",
                           "phi4-mini", "gemma", "glm4"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    MustConvert(Model(name), To(folder.path() + "/m.gguf", DType::kF32));
    MustConvert(folder.path() + "/m.gguf", To(folder.path() + "/back", DType::kF32));
    MustConvert(Model(name), To(folder.path() + "/direct", DType::kF32));
    const auto back = TensorBytes(folder.path() + "/back"), direct = TensorBytes(folder.path() + "/direct");
    EXPECT_EQ(back.size(), direct.size());
    for (const auto& [tensor, bytes] : direct) EXPECT_TRUE(back.contains(tensor) && back.at(tensor) == bytes) << tensor;
    EXPECT_LE(ErrorOf(folder.path() + "/back", name), 1e-4);
  }
}

// The values of each matrix of `path` as its file has them, by name.
std::map<std::string, std::vector<float>> Values(const std::string& path, std::map<std::string, DType>* formats) {
  auto file = compute::MappedFile::Open(path);
  auto model = compute::OpenGguf(*file);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, t] : model->gguf.tensors) {
    values[name].resize(static_cast<size_t>(compute::CheckedElements(t.shape)));
    compute::Dequantize(t.dtype, t.data, static_cast<int64_t>(values[name].size()), values[name].data());
    (*formats)[name] = t.dtype;
  }
  return values;
}

TEST(Convert, EveryFormatHasTheEncodersValues) {
  TempFolder folder;
  std::map<std::string, DType> formats;
  const std::string plain = folder.path() + "/plain.gguf";
  MustConvert(Model("gguf-q4_k"), To(plain, DType::kF32));
  const auto reference = Values(plain, &formats);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                            DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    SCOPED_TRACE(compute::InfoOf(dtype).name);
    const std::string out = folder.path() + "/" + compute::InfoOf(dtype).name + ".gguf";
    MustConvert(plain, To(out, dtype));
    const auto values = Values(out, &formats);
    std::set<DType> used;
    for (const auto& [name, expected] : reference) {
      const auto n = static_cast<int64_t>(expected.size());
      std::vector<std::byte> encoded(static_cast<size_t>(compute::RowBytes(formats[name], n)));
      compute::Encode(formats[name], expected.data(), n, encoded.data());
      std::vector<float> decoded(expected.size());
      compute::Dequantize(formats[name], encoded.data(), n, decoded.data());
      EXPECT_EQ(values.at(name), decoded) << name;
      used.insert(formats[name]);
    }
    EXPECT_TRUE(used.contains(dtype));
    EXPECT_TRUE(used.contains(DType::kF32)) << "norms";
  }
}

// Converts a model whose configuration has `added` after the text `before`, and back.
void ExpectScalingSurvives(const std::string& name, const std::string& before, const std::string& added,
                           compute::RopeScaling as_gguf) {
  SCOPED_TRACE(name);
  TempFolder folder;
  std::filesystem::copy(GoldenFolder(name), folder.path() + "/in");
  std::string config = ReadFile(folder.path() + "/in/config.json");
  ASSERT_NE(config.find(before), std::string::npos);
  config.insert(config.find(before) + before.size(), added);
  folder.Write("in/config.json", config);
  MustConvert(folder.path() + "/in", To(folder.path() + "/m.gguf", DType::kF32));
  MustConvert(folder.path() + "/m.gguf", To(folder.path() + "/back", DType::kF32));
  const auto in = compute::DescribeModel(folder.path() + "/in"),
             gguf = compute::DescribeModel(folder.path() + "/m.gguf"),
             back = compute::DescribeModel(folder.path() + "/back");
  ASSERT_TRUE(in.ok() && gguf.ok() && back.ok());
  EXPECT_EQ(gguf->config.rope.scaling, as_gguf);
  EXPECT_NE(in->config.rope.scaling, compute::RopeScaling::kNone);
  compute::RopeConfig expected = in->config.rope;
  if (expected.scaling == compute::RopeScaling::kLongRope) expected.factor = back->config.rope.factor;  // not used
  EXPECT_EQ(expected, back->config.rope);
}

TEST(Convert, ScalingsOfRotaryPositionsSurvive) {
  ExpectScalingSurvives("phi4-mini", "\"rope_type\": \"default\"",
                        ", \"rope_type\": \"longrope\", \"short_factor\": [1.0, 1.25], \"long_factor\": [1.5, 40.1]",
                        compute::RopeScaling::kLongRope);
  ExpectScalingSurvives("qwen3", "\"rope_theta\": 1000000.0",
                        ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                        "\"original_max_position_embeddings\": 64}",
                        compute::RopeScaling::kYarn);
  ExpectScalingSurvives("llama-gqa", "{", "", compute::RopeScaling::kNone);  // llama3: factors
}

// The router decides which experts run; llama.cpp keeps it in f32 too.
TEST(Convert, ARouterIsNotQuantised) {
  TempFolder folder;
  std::map<std::string, DType> formats;
  const std::string out = folder.path() + "/m.gguf";
  MustConvert(Model("qwen3-moe"), To(out, DType::kQ8_0));
  Values(out, &formats);
  EXPECT_EQ(formats.at("blk.0.ffn_gate_inp.weight"), DType::kF32);
  EXPECT_EQ(formats.at("blk.0.ffn_gate_exps.weight"), DType::kQ8_0);
}

TEST(Convert, EqualFormatsAreCopied) {
  TempFolder folder;
  std::map<std::string, DType> formats;
  const std::string out = folder.path() + "/m.gguf";
  MustConvert(Model("gguf-q5_k"), To(out, DType::kQ5_K));
  const auto values = Values(out, &formats), expected = Values(Model("gguf-q5_k"), &formats);
  EXPECT_EQ(formats.at("blk.0.attn_q.weight"), DType::kQ5_K);
  for (const auto& [name, dtype] : formats) {
    if (dtype == DType::kQ5_K) {
      EXPECT_EQ(values.at(name), expected.at(name)) << name;
    }
  }
}

TEST(Convert, BlocksThatDoNotFitAreReported) {
  TempFolder folder;
  const auto report = MustConvert(Model("llama-gqa"), To(folder.path() + "/m.gguf", DType::kQ4_K));
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes[0].find("columns are no multiple of"), std::string::npos) << report.notes[0];
  EXPECT_EQ(report.format.find("q4_k"), std::string::npos);
  EXPECT_NE(report.format.find("q5_0"), std::string::npos) << report.format;
}

TEST(Convert, LargeFoldersAreDivided) {
  TempFolder folder;
  ConvertOptions options = To(folder.path() + "/m", DType::kBF16);
  options.most_file_bytes = 40000;
  MustConvert(Model("qwen3"), options);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/m/model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/m/model.safetensors"));
  EXPECT_EQ(ErrorOf(folder.path() + "/m", "qwen3"), ErrorOf(Model("qwen3"), "qwen3"));
}

// The row as integers of `bits` with a scale for each group of columns.
std::vector<float> AsIntegers(const std::vector<float>& row, int bits, size_t group) {
  std::vector<int8_t> codes(group);
  std::vector<float> values;
  for (size_t c = 0; c < row.size(); c += group) {
    const float scale = compute::EncodeIntegers(bits, row.data() + c, static_cast<int64_t>(group), codes.data());
    for (const int8_t code : codes) values.push_back(scale * static_cast<float>(code));
  }
  return values;
}

// TinyGguf with rows of 128 and 256 columns, and values that are not regular.
std::string WideGguf(const TempFolder& folder) {
  GgufBuilder b = TinyMetadata("llama", 16);
  uint32_t state = 1;
  for (const TinyTensor& t : TinyTensors(16)) {
    uint64_t count = 1;
    for (const uint64_t d : t.dims) count *= d;
    std::string data;
    for (uint64_t i = 0; i < count; ++i) {
      state = state * 1664525 + 1013904223;
      Append(&data, static_cast<float>(static_cast<int32_t>(state)) / 4e9f);
    }
    b.Tensor(t.name, t.dims, 0, data);
  }
  return folder.Write("wide.gguf", b.Build());
}

struct IntegerCase {
  const char *model, *form;
  int bits;
  size_t group;         // 0: a row
  bool experts = true;  // become integers: the folder has each by itself
};

TEST(Convert, IntegersOfAFolderAreThoseOfTheEncoder) {
  for (const IntegerCase& test :
       {IntegerCase{"qwen3", "w8a16", 8, 0}, IntegerCase{"qwen3", "w8a8", 8, 0}, IntegerCase{"glm4", "w4a16", 4, 32},
        IntegerCase{"qwen3-moe", "w4a16", 4, 32}, IntegerCase{"", "w4a16", 4, 128},
        IntegerCase{"llama4", "w4a16", 4, 32}, IntegerCase{"llama4-pictures", "w8a16", 8, 0},
        IntegerCase{"gguf-llama4", "w8a8", 8, 0}, IntegerCase{"hunyuan-moe", "w4a16", 4, 32},
        IntegerCase{"gemma4-experts", "w8a16", 8, 0, false}, IntegerCase{"gemma3n", "w8a16", 8, 0}}) {
    SCOPED_TRACE(std::string(test.model) + " " + test.form);
    TempFolder folder;
    const std::string model = test.model[0] != 0 ? Model(test.model) : WideGguf(folder);
    MustConvert(model, To(folder.path() + "/plain", DType::kF32));
    MustConvert(folder.path() + "/plain", ToIntegers(folder.path() + "/m", test.form));
    const auto plain = MatrixRows(folder.path() + "/plain"), written = MatrixRows(folder.path() + "/m");
    ASSERT_EQ(plain.size(), written.size());
    size_t integers = 0;
    for (const auto& [place, rows] : plain) {
      const auto [layer, role, expert] = place;
      const bool linear = layer >= 0 && !compute::IsRouting(role) && (expert < 0 || test.experts);
      integers += linear;
      for (size_t i = 0; i < rows.size(); ++i) {
        std::vector<float> expected = rows[i];
        if (linear) expected = AsIntegers(rows[i], test.bits, test.group > 0 ? test.group : rows[i].size());
        // Integers in rows that are not whole blocks are decoded when the folder is read.
        if (!linear || rows[i].size() % 32 != 0) {
          for (float& value : expected) value = compute::BF16ToF32(compute::F32ToBF16(value));
        }
        EXPECT_EQ(written.at(place)[i], expected) << "role " << static_cast<int>(role) << " row " << i;
      }
    }
    EXPECT_GE(integers, 7u);
  }
}

TEST(Convert, ConfigOfIntegersStatesThemAndWhatStays) {
  TempFolder folder;
  const auto report = MustConvert(Model("qwen3-moe"), ToIntegers(folder.path() + "/m", "w4a16"));
  const SortedJson config = SortedJson::parse(ReadFile(folder.path() + "/m/config.json"));
  const SortedJson& stated = config.at("quantization_config");
  EXPECT_EQ(stated.at("format"), "pack-quantized");
  EXPECT_EQ(stated.at("config_groups").at("group_0").at("weights").at("group_size"), 32);
  EXPECT_TRUE(stated.at("config_groups").at("group_0").at("input_activations").is_null());
  const auto ignored = stated.at("ignore").get<std::set<std::string>>();
  for (const char* name : {"lm_head", "model.layers.0.mlp.gate"}) EXPECT_TRUE(ignored.contains(name)) << name;
  EXPECT_FALSE(ignored.contains("model.layers.0.self_attn.q_proj"));
  EXPECT_EQ(config.at("dtype"), "bfloat16");
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("32 columns: 128 do not divide"), std::string::npos) << report.notes[0];

  MustConvert(Model("qwen3"), ToIntegers(folder.path() + "/a8", "w8a8"));
  const SortedJson a8 = SortedJson::parse(ReadFile(folder.path() + "/a8/config.json")).at("quantization_config");
  EXPECT_EQ(a8.at("format"), "int-quantized");
  EXPECT_EQ(a8.at("config_groups").at("group_0").at("input_activations").at("strategy"), "token");
  EXPECT_LE(ErrorOf(folder.path() + "/a8", "qwen3"), 0.1);
}

// The weights of a quantised folder are plain ones afterwards, and so its configuration states.
TEST(Convert, PlainFolderOfIntegersStatesNoQuantization) {
  TempFolder folder;
  MustConvert(Model("qwen3"), ToIntegers(folder.path() + "/m", "w8a16"));
  MustConvert(folder.path() + "/m", To(folder.path() + "/plain", DType::kF32));
  EXPECT_EQ(ReadFile(folder.path() + "/plain/config.json").find("quantization_config"), std::string::npos);
  EXPECT_EQ(MatrixRows(folder.path() + "/m"), MatrixRows(folder.path() + "/plain"));
}

TEST(Convert, UnknownFormatsListTheKnownOnes) {
  EXPECT_REFUSED(compute::ConvertedFormat("q4_k_m", ModelFormat::kGguf).status(), StatusCode::kInvalidArgument,
                 "q4_k_m", "f32, f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0");
  EXPECT_REFUSED(compute::ConvertedFormat("q8_0", ModelFormat::kSafetensors).status(), StatusCode::kInvalidArgument,
                 "f32, f16, bf16, w8a16, w8a8, w4a16");
  EXPECT_REFUSED(compute::ConvertedFormat("w8a8", ModelFormat::kGguf).status(), StatusCode::kInvalidArgument, "w8a8");
}

TEST(Convert, TokeniserFieldsAreReadBack) {
  GgufTokenizerFields t;
  t.tokens = {"<unk>", "\u2581a", "b", "</s>"};
  t.types = {2, 1, 1, 3};
  t.scores = {0, -1, -2, 0};
  t.unk = 0, t.bos = 1, t.eos = 3, t.sep = 2;
  t.add_space_prefix = false;
  t.remove_extra_whitespaces = true;
  t.precompiled_charsmap = std::string("\0\xFF\x7F", 3);
  t.lowercase = false, t.strip_accents = true;
  TempFolder folder;
  for (const char* model : {"t5", "bert"}) {
    t.model = model;
    ConvertOptions options = To(folder.path() + "/" + model + ".gguf", DType::kF16);
    options.tokenizer = t;
    MustConvert(Model("qwen3"), options);
    const auto read = compute::DescribeModel(options.out);
    ASSERT_TRUE(read.ok());
    const GgufTokenizerFields& is = read->gguf_tokenizer;
    EXPECT_EQ(is.tokens, t.tokens);
    EXPECT_EQ(is.scores, t.scores);
    EXPECT_EQ(is.sep, t.sep);
    EXPECT_EQ(is.precompiled_charsmap, t.precompiled_charsmap);
    EXPECT_EQ(is.lowercase, t.lowercase);
    EXPECT_EQ(is.strip_accents, t.strip_accents);
    if (t.model != "t5") continue;
    EXPECT_EQ(is.add_space_prefix, t.add_space_prefix);
    EXPECT_EQ(is.remove_extra_whitespaces, t.remove_extra_whitespaces);
  }
}

TEST(Convert, ExistingOutputIsKeptUnlessOverwritten) {
  TempFolder folder;
  const std::string out = folder.Write("m.gguf", "mine");
  ConvertOptions options = To(out, DType::kF16);
  EXPECT_REFUSED(Convert(Model("qwen3"), options).status(), StatusCode::kInvalidArgument, "m.gguf", "--overwrite");
  EXPECT_EQ(ReadFile(out), "mine");
  options.overwrite = true;
  MustConvert(Model("qwen3"), options);
  EXPECT_LE(ErrorOf(out, "qwen3"), 0.1);
  folder.Write("notes/a.txt", "mine");
  options = To(folder.path() + "/notes", DType::kF16);
  options.overwrite = true;
  EXPECT_REFUSED(Convert(Model("qwen3"), options).status(), StatusCode::kInvalidArgument, "config.json");
  EXPECT_EQ(ReadFile(folder.path() + "/notes/a.txt"), "mine");
}

TEST(Convert, StoppedConversionsLeaveNothing) {
  for (const char* name : {"/m.gguf", "/m"}) {
    TempFolder folder;
    ConvertOptions options = To(folder.path() + name, DType::kF32);
    options.progress = [](int64_t done, int64_t total) {
      return done * 2 < total ? Status() : Status(StatusCode::kCancelled, "stopped");
    };
    EXPECT_REFUSED(Convert(Model("qwen3"), options).status(), StatusCode::kCancelled, "stopped");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << name;
  }
}

TEST(Convert, ValuesThatNoFormatHoldsNameTheirTensor) {
  TempFolder folder;
  GgufBuilder b = TinyMetadata();
  for (const TinyTensor& t : TinyTensors()) {
    if (t.name != "blk.0.ffn_down.weight") {
      b.F32Tensor(t.name, t.dims);
      continue;
    }
    std::string data;
    for (int i = 0; i < 128; ++i) Append(&data, i == 40 ? 1e6f : 0.5f);
    b.Tensor(t.name, t.dims, 0, data);
  }
  const std::string in = folder.Write("in.gguf", b.Build());
  EXPECT_REFUSED(Convert(in, To(folder.path() + "/m.gguf", DType::kF16)).status(), StatusCode::kDataLoss,
                 "blk.0.ffn_down.weight", "row 2", "bf16");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/m.gguf"));
  MustConvert(in, To(folder.path() + "/m.gguf", DType::kBF16));
}

TEST(Convert, FilesBeyondTheDiskAreRefusedBeforeTheyAreWritten) {
  TempFolder folder;
  const auto file = compute::NewFile::Create(folder.path() + "/m.gguf", int64_t{1} << 61);
  EXPECT_REFUSED(file.status(), StatusCode::kResourceExhausted, "m.gguf", "do not fit", "left");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tactus::test
