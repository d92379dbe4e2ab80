// Tokenisers written as GGUF metadata, tokenizer.json and tokenizer.model give the ids of those that they were made of.
#include "language/text/gguf_write.h"

#include <algorithm>
#include <vector>

#include "language/text/gguf_spec.h"
#include "language/text/golden_cases.h"
#include "language/text/json_write.h"
#include "language/text/same_ids.h"

namespace tactus::language {
namespace {

// A tokeniser of the test data without the flags of added tokens, which GGUF does not have.
TokenizerSpec JsonSpec(const std::string& name) {
  auto spec = ParseTokenizerJson(TextData(name + ".tokenizer.json"));
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  if (!spec.ok()) return {};
  for (TokenizerSpec::Added& t : spec->added) t.lstrip = t.rstrip = t.single_word = t.normalized = false;
  return *spec;
}

GgufTokenizerFields Fields(const TokenizerSpec& spec, const TokenizerSpec* pieces = nullptr) {
  auto fields = GgufFieldsOf(spec, pieces);
  EXPECT_TRUE(fields.ok()) << fields.status().ToString();
  return fields.ok() ? *fields : GgufTokenizerFields();
}

TEST(GgufWrite, ByteLevelTokenisersGetTheirName) {
  for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, std::pair{"llama3", "llama-bpe"},
                                  std::pair{"qwen2", "qwen2"}, std::pair{"smollm", "smollm"}}) {
    SCOPED_TRACE(name);
    const TokenizerSpec spec = JsonSpec(name);
    const GgufTokenizerFields fields = Fields(spec);
    EXPECT_EQ(fields.model, "gpt2");
    EXPECT_EQ(fields.pre, pre);
    const auto from = MustMake(spec), to = MustMake(SpecFromGguf(fields));
    const Status same = CheckSameIds(*from, *to);
    EXPECT_TRUE(same.ok()) << same.ToString();
  }
}

TEST(GgufWrite, SentencePieceKeepsItsIds) {
  auto spec = ParseSentencePieceModel(TextData("spm.tokenizer.model"));
  ASSERT_TRUE(spec.ok());
  // GGUF splits text at user-defined tokens before it puts spaces before the parts.
  std::replace(spec->kinds.begin(), spec->kinds.end(), TokenKind::kUserDefined, TokenKind::kUnused);
  const GgufTokenizerFields fields = Fields(*spec);
  EXPECT_EQ(fields.model, "llama");
  EXPECT_EQ(fields.scores.size(), fields.tokens.size());
  const Status same = CheckSameIds(*MustMake(spec), *MustMake(SpecFromGguf(fields)));
  EXPECT_TRUE(same.ok()) << same.ToString();
}

TEST(GgufWrite, CharactersWithTokensOfBytesBecomeSentencePiece) {
  const TokenizerSpec spec = JsonSpec("llama2");
  const GgufTokenizerFields fields = Fields(spec);
  EXPECT_EQ(fields.model, "llama");
  EXPECT_TRUE(fields.add_space_prefix);
  const Status same = CheckSameIds(*MustMake(spec), *MustMake(SpecFromGguf(fields)));
  EXPECT_TRUE(same.ok()) << same.ToString();
}

// Both tokenisers, on the strings of the goldens.
void ExpectSameGoldenIds(const Tokenizer& from, const Tokenizer& to) {
  const Status same = CheckSameIds(from, to);
  EXPECT_TRUE(same.ok()) << same.ToString();
  for (const SortedJson& string : SortedJson::parse(TextData("kinds/strings.json"))) {
    const auto text = string.get<std::string>();
    EXPECT_EQ(from.Encode(text, true, true), to.Encode(text, true, true)) << string;
    const std::vector<TokenId> ids = from.Encode(text, false, false);
    EXPECT_EQ(from.Decode(ids, false), to.Decode(ids, false)) << string;
  }
}

TEST(GgufWrite, UnigramBecomesT5) {
  auto spec = ParseSentencePieceModel(TextData("kinds/unigram.tokenizer.model"));
  ASSERT_TRUE(spec.ok());
  spec->prefix.clear();
  spec->suffix = {spec->eos_id};
  // GGUF splits text at user-defined tokens before it puts spaces before the parts.
  std::replace(spec->kinds.begin(), spec->kinds.end(), TokenKind::kUserDefined, TokenKind::kUnused);
  const GgufTokenizerFields fields = Fields(*spec);
  EXPECT_EQ(fields.model, "t5");
  EXPECT_TRUE(fields.remove_extra_whitespaces);
  EXPECT_FALSE(fields.precompiled_charsmap.empty());
  ExpectSameGoldenIds(*MustMake(spec), *MustMake(SpecFromGguf(fields)));
}

TEST(GgufWrite, WordPieceBecomesBert) {
  for (const char* name : {"kinds/bert", "kinds/bert_cased"}) {
    SCOPED_TRACE(name);
    TokenizerSpec spec = JsonSpec(name);
    spec.max_word_characters = 100;  // GGUF has no such field
    const GgufTokenizerFields fields = Fields(spec);
    EXPECT_EQ(fields.model, "bert");
    const auto from = MustMake(spec), to = MustMake(SpecFromGguf(fields));
    const Status same = CheckSameIds(*from, *to);
    EXPECT_TRUE(same.ok()) << same.ToString();
    for (const SortedJson& string : SortedJson::parse(TextData("kinds/strings.json"))) {
      const auto text = string.get<std::string>();
      EXPECT_EQ(from->Encode(text, true, true), to->Encode(text, true, true)) << string;
    }
  }
  EXPECT_EQ(GgufFieldsOf(JsonSpec("kinds/bert_accents"), nullptr).status().code(), StatusCode::kUnimplemented);
}

TEST(GgufWrite, TekkenGetsTheMergesOfItsIds) {
  const auto spec = ParseTekkenJson(TextData("kinds/tekken.json"));
  ASSERT_TRUE(spec.ok());
  const GgufTokenizerFields fields = Fields(*spec);
  EXPECT_EQ(fields.model, "gpt2");
  EXPECT_EQ(fields.pre, "tekken");
  ExpectSameGoldenIds(*MustMake(spec), *MustMake(SpecFromGguf(fields)));
}

TEST(GgufWrite, OtherIdsAreFound) {
  const auto odd = ParseTokenizerJson(TextData("qwen2.tokenizer.json"));  // finds an added token after normalising
  EXPECT_FALSE(CheckSameIds(*MustMake(odd), *MustMake(SpecFromGguf(Fields(*odd)))).ok());
  const TokenizerSpec spec = JsonSpec("llama3");
  GgufTokenizerFields fields = Fields(spec);
  fields.pre = "gpt-2";
  const Status same = CheckSameIds(*MustMake(spec), *MustMake(SpecFromGguf(fields)));
  EXPECT_EQ(same.code(), StatusCode::kUnimplemented) << same.ToString();
}

TEST(GgufWrite, UnknownStepsAreRefused) {
  TokenizerSpec spec = JsonSpec("gpt2");
  spec.pre_tokenizers[0].pattern.text += "|x";
  EXPECT_EQ(GgufFieldsOf(spec, nullptr).status().code(), StatusCode::kUnimplemented);
  spec = JsonSpec("gpt2");
  spec.model = TokenizerSpec::Model::kWordLevel;
  EXPECT_EQ(GgufFieldsOf(spec, nullptr).status().code(), StatusCode::kUnimplemented);
  spec = JsonSpec("gpt2");
  spec.prefix = {1, 2};
  EXPECT_EQ(GgufFieldsOf(spec, nullptr).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(GgufFieldsOf(JsonSpec("kinds/albert"), nullptr).status().code(), StatusCode::kUnimplemented);
}

TEST(GgufWrite, AddedTokensWithFlagsAreCounted) {
  EXPECT_EQ(TokensWithUnstatedFlags(*ParseTokenizerJson(TextData("gpt2.tokenizer.json"))), 4);
  EXPECT_EQ(TokensWithUnstatedFlags(JsonSpec("gpt2")), 0);
}

TEST(GgufWrite, RowsWithoutATokenGetAnUnusedOne) {
  GgufTokenizerFields fields = Fields(JsonSpec("gpt2"));
  const size_t before = fields.tokens.size();
  PadTokens(static_cast<int64_t>(before) + 2, &fields);
  EXPECT_EQ(fields.tokens.size(), before + 2);
  EXPECT_EQ(fields.types.back(), 5);
  EXPECT_NE(fields.tokens[before], fields.tokens[before + 1]);
}

TEST(JsonWrite, ByteLevelTokenisersOfGgufBecomeTokenizerJson) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm"}) {
    SCOPED_TRACE(name);
    const auto spec = SpecFromGguf(Fields(JsonSpec(name)));
    ASSERT_TRUE(spec.ok());
    const auto text = TokenizerJsonText(*spec);
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    const auto to = MustMake(ParseTokenizerJson(*text));
    const Status same = CheckSameIds(*MustMake(JsonSpec(name)), *to);
    EXPECT_TRUE(same.ok()) << same.ToString();
  }
}

TEST(JsonWrite, SentencePieceBecomesTokenizerModel) {
  const auto spec = ParseSentencePieceModel(TextData("spm.tokenizer.model"));
  ASSERT_TRUE(spec.ok());
  const auto text = SentencePieceModelText(*spec);
  ASSERT_TRUE(text.ok());
  const auto read = ParseSentencePieceModel(*text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->tokens, spec->tokens);
  EXPECT_EQ(read->scores, spec->scores);
  EXPECT_EQ(read->kinds, spec->kinds);
  EXPECT_EQ(read->bos_id, spec->bos_id);
  EXPECT_EQ(read->byte_fallback, spec->byte_fallback);
  EXPECT_TRUE(CheckSameIds(*MustMake(spec), *MustMake(read)).ok());
  EXPECT_EQ(TokenizerJsonText(*spec).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(SentencePieceModelText(JsonSpec("gpt2")).status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tactus::language
