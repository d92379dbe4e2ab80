// Every tokeniser in tests/language/text/data against the reference implementation's output for unusual strings.
#include "golden_cases.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EncodesAndDecodesAsTheReference) {
  const auto tokenizer = FromJson(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const SortedJson cases = GoldenCases(GetParam());
  ASSERT_GT(cases.size(), 150u);
  for (const SortedJson& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->Encode(text, true, true), ids) << item["text"];
    const auto plain = item.contains("plain_ids") ? item["plain_ids"].get<Ids>() : ids;
    EXPECT_EQ(tokenizer->Encode(text, false, false), plain) << item["text"];
    if (!item.contains("decoded")) continue;
    EXPECT_EQ(tokenizer->Decode(ids, false), item["decoded"].get<std::string>()) << item["text"];
    EXPECT_EQ(tokenizer->Decode(ids, true), item["decoded_skip"].get<std::string>()) << item["text"];
    EXPECT_EQ(Streamed(*tokenizer, ids, false), tokenizer->Decode(ids, false)) << item["text"];
    EXPECT_EQ(Streamed(*tokenizer, ids, true), tokenizer->Decode(ids, true)) << item["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values("gpt2", "gpt2_prefix", "smollm", "llama3", "qwen2", "llama2", "llama2_first",
                                         "llama2_always"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(SentencePieceGolden, EncodesAndDecodesAsTheReference) {
  const auto tokenizer = MustMake(ParseSentencePieceModel(TextData("spm.tokenizer.model")));
  ASSERT_NE(tokenizer, nullptr);
  for (const SortedJson& item : GoldenCases("spm")) {
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->Encode(item["text"].get<std::string>(), false, false), ids) << item["text"];
    std::vector<std::string> pieces;
    for (const TokenId id : ids) pieces.emplace_back(tokenizer->TokenText(id));
    EXPECT_EQ(pieces, item["pieces"].get<std::vector<std::string>>());
    EXPECT_EQ(tokenizer->Decode(ids, true), item["decoded"].get<std::string>()) << item["text"];
    EXPECT_EQ(Streamed(*tokenizer, ids, true), tokenizer->Decode(ids, true)) << item["text"];
  }
}

}  // namespace
}  // namespace tactus::language
