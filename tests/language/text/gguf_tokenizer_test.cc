// Tokenisers of GGUF files: the default model's, against ids from the reference, and those of the shared test data,
// against the ids beside them. Both are skipped, with a reason, where the files are missing on this machine.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "compute/weights/gguf.h"
#include "compute/weights/gguf_config.h"
#include "golden_cases.h"
#include "language/text/gguf_spec.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> FromGguf(const std::string& path, int64_t vocab_size, const std::string& model_name) {
  // Some of these files have only a vocabulary, for unsupported architectures: no DescribeModel.
  const std::string bytes = ReadFile(path);
  const Result<compute::GgufFile> file = compute::ParseGguf(std::as_bytes(std::span(bytes)), path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  if (!file.ok()) return nullptr;
  compute::ModelDescription description;
  description.config.name = model_name;
  const Status status = compute::TokenizerFromGguf(*file, vocab_size, &description);
  EXPECT_TRUE(status.ok()) << status.ToString();
  if (!status.ok()) return nullptr;
  return MustMake(SpecFromGguf(std::move(description.gguf_tokenizer)));
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

TEST(DefaultModel, EncodesAsTheReference) {
  const std::string path = Environment("TACTUS_DEFAULT_MODEL");
  if (path.empty()) GTEST_SKIP() << "TACTUS_DEFAULT_MODEL does not name the default model's file";
  const auto tokenizer = FromGguf(path, 49152, "");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  const SortedJson cases = GoldenCases("smollm2_135m");
  ASSERT_GT(cases.size(), 400u);
  for (const SortedJson& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->Encode(text, true, true), ids) << item["text"];
    const std::string decoded = item.value("decoded", text);
    EXPECT_EQ(tokenizer->Decode(ids, false), decoded);
    EXPECT_EQ(Streamed(*tokenizer, ids, false), decoded);
  }
}

class GgmlVocab : public testing::TestWithParam<std::pair<const char*, int64_t>> {};

TEST_P(GgmlVocab, EncodesAsThePublishedIds) {
  const std::string data = Environment("TACTUS_DATA");
  if (data.empty()) GTEST_SKIP() << "TACTUS_DATA does not name the folder of test data";
  const std::string file = data + "/tokenizers/ggml-vocab/ggml-vocab-" + GetParam().first + ".gguf";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " does not exist";
  const auto tokenizer = FromGguf(file, GetParam().second, GetParam().first);
  ASSERT_NE(tokenizer, nullptr);
  const std::string inputs = ReadFile(file + ".inp");
  std::istringstream outputs(ReadFile(file + ".out"));
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  int compared = 0;
  std::string line;
  for (size_t at = 0; std::getline(outputs, line);) {
    const size_t end = inputs.find(kSeparator, at);
    ASSERT_NE(end, std::string::npos);
    const std::string text = inputs.substr(at, end - at);
    at = end + kSeparator.size();
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(tokenizer->Encode(text, false, false), expected) << testing::PrintToString(text);
    ++compared;
  }
  EXPECT_GT(compared, 30);
}

INSTANTIATE_TEST_SUITE_P(All, GgmlVocab,
                         testing::Values(std::pair("llama-spm", int64_t{32000}), std::pair("phi-3", int64_t{32064}),
                                         std::pair("gpt-2", int64_t{50257}), std::pair("falcon", int64_t{65024}),
                                         std::pair("mpt", int64_t{50432}), std::pair("bert-bge", int64_t{30522})),
                         [](const auto& param_info) {
                           std::string name = param_info.param.first;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The pre-tokenizers of files that do not name them are guessed by such vocabularies.
TEST(GgmlVocabularies, ShowTheirPreTokenizers) {
  const std::string data = Environment("TACTUS_DATA");
  if (data.empty()) GTEST_SKIP() << "TACTUS_DATA does not name the folder of test data";
  for (const auto& [name, guess] : {std::pair("gpt-2", "gpt-2"), {"falcon", "falcon"}, {"mpt", "gpt-2"}}) {
    const std::string file = data + "/tokenizers/ggml-vocab/ggml-vocab-" + name + ".gguf";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " does not exist";
    const std::string bytes = ReadFile(file);
    const Result<compute::GgufFile> gguf = compute::ParseGguf(std::as_bytes(std::span(bytes)), file);
    ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
    compute::ModelDescription description;
    ASSERT_TRUE(compute::TokenizerFromGguf(*gguf, int64_t{1} << 20, &description).ok());
    description.gguf_tokenizer.pre.clear();
    const Result<TokenizerSpec> spec = SpecFromGguf(std::move(description.gguf_tokenizer));
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    ASSERT_EQ(spec->warnings.size(), 1u) << name;
    EXPECT_NE(spec->warnings[0].find(std::string("\"") + guess + "\" fits"), std::string::npos) << spec->warnings[0];
  }
}

TEST(Llama2TokenizerModel, EncodesAsThePublishedIds) {
  const std::string data = Environment("TACTUS_DATA");
  if (data.empty()) GTEST_SKIP() << "TACTUS_DATA does not name the folder of test data";
  const std::string folder = data + "/tokenizers/llama2.c/";
  const auto tokenizer = MustMake(ParseSentencePieceModel(ReadFile(folder + "tokenizer.model")));
  ASSERT_NE(tokenizer, nullptr);
  std::istringstream texts(ReadFile(folder + "encode_cases.txt")), lines(ReadFile(folder + "encode_cases.ids"));
  int compared = 0;
  for (std::string text, line; std::getline(texts, text) && std::getline(lines, line); ++compared) {
    std::istringstream numbers(line);
    EXPECT_EQ(tokenizer->Encode(text, true, false), (Ids{std::istream_iterator<TokenId>(numbers), {}})) << text;
  }
  EXPECT_GE(compared, 8);
}

}  // namespace
}  // namespace tactus::language
