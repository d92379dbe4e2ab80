// The default model's tokeniser under rules. Skipped without the model (TACTUS_DEFAULT_MODEL) or llguidance's library.
#include "engine/output_rules.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "compute/weights/model_description.h"
#include "engine/start/model_text.h"
#include "language/grammar/needs_llguidance.h"

namespace tactus::engine {
namespace {

using Kind = OutputRule::Kind;

class OutputRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TACTUS_DEFAULT_MODEL");
    if (path == nullptr) GTEST_SKIP() << "TACTUS_DEFAULT_MODEL does not name the default model's file";
    TACTUS_NEEDS_LLGUIDANCE();
    auto model = compute::DescribeModel(path);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto text = LoadModelText(*model, {});
    ASSERT_TRUE(text.ok()) << text.status().message();
    text_ = std::move(text).value();
    end_ids_ = model->config.stop_ids;
    vocab_size_ = model->config.vocab_size;
    rules_ = std::make_unique<OutputRules>(text_.tokenizer.get(), vocab_size_, end_ids_,
                                           OutputRulesMemory::Of(vocab_size_, -1));
  }

  std::unique_ptr<GrammarState> Start(Kind kind, std::string text) {
    auto grammar = rules_->Compile({kind, std::move(text)}, {});
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    return grammar.ok() ? (*grammar)->Start() : nullptr;
  }
  std::vector<TokenId> Encode(std::string_view text) const { return text_.tokenizer->Encode(text, false, false); }
  // Feeds the tokeniser's encoding of `text`; each token must be in the mask before it. Returns the bytes before the
  // refused token; -1: none was refused, and the text may end there.
  int Followed(GrammarState& state, std::string_view text) const {
    std::vector<uint32_t> mask(static_cast<size_t>((vocab_size_ + 31) / 32));
    const auto in_mask = [&](TokenId id) { return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; };
    int bytes = 0;
    for (const TokenId token : Encode(text)) {
      EXPECT_TRUE(state.FillMask(mask));
      const bool accepted = state.Accept(token);
      EXPECT_EQ(in_mask(token), accepted) << text.substr(0, static_cast<size_t>(bytes));
      if (!accepted) return bytes;
      bytes += static_cast<int>(text_.tokenizer->TokenBytes(token).size());
    }
    EXPECT_TRUE(state.FillMask(mask));
    return in_mask(end_ids_.at(0)) ? -1 : bytes;
  }

  ModelText text_;
  std::vector<TokenId> end_ids_;
  int64_t vocab_size_ = 0;
  std::unique_ptr<OutputRules> rules_;
};

constexpr const char* kTool = R"({"type": "object", "properties": {"city": {"type": "string"},
    "unit": {"enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "unit"], "additionalProperties": false})";

TEST_F(OutputRulesTest, MasksAllowTheTokenisersEncoding) {
  const auto follow = [&](Kind kind, std::string rule, std::string_view text) {
    return Followed(*Start(kind, std::move(rule)), text);
  };
  EXPECT_EQ(follow(Kind::kJsonSchema, kTool, R"({"city": "Zürich, 日本", "unit": "celsius", "days": 3})"), -1);
  EXPECT_EQ(follow(Kind::kJsonSchema, kTool, R"({"city": "Bern", "unit": "kelvin"})"), 26);
  EXPECT_EQ(follow(Kind::kJsonSchema, kTool, R"({"city": "Bern", "unit": "celsius", "days": 15})"), 45);
  EXPECT_EQ(follow(Kind::kJsonObject, "", R"({"a": [1, 2.5, null], "b": {"c": "d"}})"), -1);
  EXPECT_EQ(follow(Kind::kRegex, "[A-Z][a-z]+( [a-z]+)*\\.", "The quick brown fox jumps."), -1);
  EXPECT_EQ(follow(Kind::kLark, "start: \"positive\" | \"negative\" | \"neutral\"", "neutral"), -1);
}

TEST_F(OutputRulesTest, ForcedTokensAreTheTokenisersEncoding) {
  const auto state = Start(Kind::kJsonSchema, kTool);
  std::vector<TokenId> forced;
  state->Forced(32, &forced);
  const std::vector<TokenId> spelled = Encode(R"({"city": ")");
  ASSERT_GE(forced.size(), 2u);
  ASSERT_LE(forced.size(), spelled.size());
  EXPECT_TRUE(std::equal(forced.begin(), forced.end(), spelled.begin()));
}

TEST_F(OutputRulesTest, SpecialTokensAreNoText) {
  const auto state = Start(Kind::kRegex, "(.|\n)*");
  std::vector<uint32_t> mask(static_cast<size_t>((vocab_size_ + 31) / 32));
  ASSERT_TRUE(state->FillMask(mask));
  for (TokenId id = 0; id < text_.tokenizer->vocab_size(); ++id) {
    const bool end = std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end();
    const bool allowed = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    if (text_.tokenizer->IsSpecial(id)) {
      EXPECT_EQ(allowed, end) << text_.tokenizer->TokenText(id);
    }
  }
}

// SentencePiece puts a space before a text, but forced text continues in the middle of one.
TEST(VocabularyOfTest, NoSpaceIsPutBeforeForcedText) {
  language::TokenizerSpec spec;
  spec.model = language::TokenizerSpec::Model::kSentencePieceBpe;
  language::AddSentencePieceSteps("", false, true, &spec);
  const auto add = [&](std::string token, language::TokenKind kind, float score) {
    spec.tokens.push_back(std::move(token));
    spec.kinds.push_back(kind);
    spec.scores.push_back(score);
  };
  add("<unk>", language::TokenKind::kUnknown, 0);
  add("</s>", language::TokenKind::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kHex = "0123456789ABCDEF";
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", language::TokenKind::kByte, 0);
  }
  const auto first = static_cast<TokenId>(spec.tokens.size());
  const std::vector<std::string> words = {"\u2581ab", "ab", "\u2581", "a", "b"};
  for (size_t i = 0; i < words.size(); ++i) add(words[i], language::TokenKind::kNormal, -static_cast<float>(i));
  spec.unk_id = 0;
  auto tokenizer = language::MakeTokenizer(std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ASSERT_EQ((*tokenizer)->Encode("ab", false, false), std::vector<TokenId>{first});
  const language::Vocabulary v = VocabularyOf(tokenizer->get(), 300, std::vector<TokenId>{1, 999});
  EXPECT_EQ(v.encode("ab"), std::vector<TokenId>{first + 1});
  EXPECT_EQ(v.encode(" ab"), std::vector<TokenId>{first});
  EXPECT_EQ(v.encode(""), std::vector<TokenId>{});
  EXPECT_EQ(v.tokens[static_cast<size_t>(first)], " ab");
  EXPECT_EQ(v.end_ids, std::vector<TokenId>{1});  // 999 is no token
  EXPECT_EQ(v.size, 300);
}

}  // namespace
}  // namespace tactus::engine
