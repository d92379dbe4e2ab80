// Every tokeniser in tests/language/text/data against the reference implementation's output for unusual strings.
#include <algorithm>
#include <filesystem>

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

// --- The kinds of tools/tokenizer_kinds.py: the components of published families

struct Kind {
  SortedJson strings, golden;
  explicit Kind(const std::string& name)
      : strings(SortedJson::parse(TextData("kinds/strings.json"))),
        golden(SortedJson::parse(TextData("kinds/" + name + ".golden.json"))) {}
  Ids ids(size_t i) const { return golden["ids"][i].get<Ids>(); }
  // What the file states for string `i` in a member that leaves out the usual case.
  SortedJson Of(const char* member, size_t i, SortedJson usual) const {
    return golden[member].value(std::to_string(i), std::move(usual));
  }
};

class KindGolden : public testing::TestWithParam<std::string> {};

TEST_P(KindGolden, EncodesAndDecodesAsTheReference) {
  const auto tokenizer = FromJson("kinds/" + GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const Kind kind(GetParam());
  ASSERT_GT(kind.strings.size(), 200u);
  for (size_t i = 0; i < kind.strings.size(); ++i) {
    const auto text = kind.strings[i].get<std::string>();
    const Ids ids = kind.ids(i);
    EXPECT_EQ(tokenizer->Encode(text, true, true), ids) << kind.strings[i];
    EXPECT_EQ(tokenizer->Encode(text, false, false), kind.Of("plain", i, ids).get<Ids>()) << kind.strings[i];
    const SortedJson decoded = kind.Of("text", i, text), skipped = kind.Of("skip", i, decoded);
    if (decoded.is_null()) continue;
    EXPECT_EQ(tokenizer->Decode(ids, false), decoded.get<std::string>()) << kind.strings[i];
    EXPECT_EQ(tokenizer->Decode(ids, true), skipped.get<std::string>()) << kind.strings[i];
    EXPECT_EQ(Streamed(*tokenizer, ids, false), tokenizer->Decode(ids, false)) << kind.strings[i];
    EXPECT_EQ(Streamed(*tokenizer, ids, true), tokenizer->Decode(ids, true)) << kind.strings[i];
  }
}

std::vector<std::string> KindNames() {
  constexpr std::string_view kEnd = ".tokenizer.json";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::SourcePath("tests/language/text/data/kinds"))) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kEnd)) names.push_back(name.substr(0, name.size() - kEnd.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, KindGolden, testing::ValuesIn(KindNames()),
                         [](const auto& param_info) { return param_info.param; });

TEST(TekkenGolden, EncodesAsTiktoken) {
  const auto tokenizer = MustMake(ParseTekkenJson(TextData("kinds/tekken.json")));
  ASSERT_NE(tokenizer, nullptr);
  const Kind kind("tekken_file");
  for (size_t i = 0; i < kind.strings.size(); ++i) {
    const auto text = kind.strings[i].get<std::string>();
    EXPECT_EQ(tokenizer->Encode(text, false, false), kind.ids(i)) << kind.strings[i];
    EXPECT_EQ(tokenizer->Decode(kind.ids(i), false), text) << kind.strings[i];
  }
}

TEST(UnigramModelGolden, EncodesAndDecodesAsSentencepiece) {
  const auto tokenizer = MustMake(ParseSentencePieceModel(TextData("kinds/unigram.tokenizer.model")));
  ASSERT_NE(tokenizer, nullptr);
  const Kind kind("unigram_model");
  for (size_t i = 0; i < kind.strings.size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(kind.strings[i].get<std::string>(), false, false), kind.ids(i)) << kind.strings[i];
    const SortedJson& text = kind.golden["text"][i];
    if (text.is_null()) continue;
    EXPECT_EQ(tokenizer->Decode(kind.ids(i), true), text.get<std::string>()) << kind.strings[i];
  }
}

}  // namespace
}  // namespace tactus::language
