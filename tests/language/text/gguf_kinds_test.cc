// Tokenisers of GGUF files against those of the same vocabulary in other files: every pre-tokenizer's name, every
// model, and what is guessed where a file is silent.
#include <algorithm>

#include "golden_cases.h"
#include "language/text/gguf_pre_tokenizers.h"
#include "language/text/gguf_spec.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

TokenizerSpec SpecOf(const std::string& name) {
  Result<TokenizerSpec> spec = ParseTokenizerJson(TextData(name + ".tokenizer.json"));
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return spec.ok() ? std::move(*spec) : TokenizerSpec();
}

// What a conversion of that tokeniser to GGUF writes.
GgufTokenizerFields FieldsOf(const TokenizerSpec& spec, const std::string& model) {
  GgufTokenizerFields fields;
  fields.model = model;
  fields.tokens = spec.tokens;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenKind kind = spec.kinds[i];
    const bool control = kind == TokenKind::kControl || kind == TokenKind::kAdded;
    const bool byte = kind == TokenKind::kByte || spec.tokens[i].starts_with("<0x");
    fields.types.push_back(kind == TokenKind::kUnknown       ? 2
                           : control                         ? 3
                           : kind == TokenKind::kUserDefined ? 4
                           : byte                            ? 6
                                                             : 1);
  }
  for (const auto& [left, right] : spec.merges) fields.merges.push_back(left + " " + right);
  fields.bos = spec.bos_id, fields.eos = spec.eos_id, fields.unk = spec.unk_id;
  return fields;
}

// Both tokenisers, on the strings of the goldens.
void ExpectEqualIds(const Tokenizer& one, const Tokenizer& other, const std::string& what) {
  for (const SortedJson& string : SortedJson::parse(TextData("kinds/strings.json"))) {
    const auto text = string.get<std::string>();
    // A user-defined piece of a GGUF is an added token, and one of sentencepiece is part of the text.
    if (what == "t5" && (text.find("<|begin|>") != text.npos || text.find("[long]") != text.npos)) continue;
    const Ids ids = one.Encode(text, false, false);
    ASSERT_EQ(ids, other.Encode(text, false, false)) << what << ": " << string;
    ASSERT_EQ(one.Decode(ids, false), other.Decode(ids, false)) << what << ": " << string;
  }
}

TEST(GgufKinds, PreTokenizersSplitAsTheFamiliesFiles) {
  const std::pair<const char*, const char*> pairs[] = {
      {"gpt-2", "gpt2"},
      {"exaone4", "gpt2"},
      {"olmo", "kinds/neox"},
      {"smollm", "smollm"},
      {"starcoder", "smollm"},
      {"command-r", "kinds/command_r"},
      {"falcon", "kinds/falcon"},
      {"llama-bpe", "llama3"},
      {"glm4", "kinds/glm4"},
      {"qwen2", "qwen2"},
      {"qwen35", "kinds/qwen35"},
      {"gpt-4o", "kinds/o200k"},
      {"llama4", "kinds/o200k"},
      {"minimax-m2", "kinds/o200k"},
      {"tekken", "kinds/tekken"},
      {"seed-coder", "kinds/seed"},
      {"bailingmoe", "kinds/bailing"},
      {"exaone-moe", "kinds/exaone_moe"},
      {"bloom", "kinds/bloom"},
      {"deepseek-v3", "kinds/deepseek"},
      {"hunyuan-dense", "kinds/deepseek"},
  };
  for (const auto& [pre, kind] : pairs) {
    TokenizerSpec spec = SpecOf(kind);
    spec.added.clear();  // tokens with flags that GGUF cannot state
    if (std::string_view(pre) == "qwen35") spec.normalizers = {{.kind = NormalizerStep::Kind::kNfc}};
    GgufTokenizerFields fields = FieldsOf(spec, "gpt2");
    fields.pre = pre;
    std::replace(fields.types.begin(), fields.types.end(), 3, 1);
    const auto gguf = MustMake(SpecFromGguf(std::move(fields)));
    const auto file = MustMake(std::move(spec));
    ASSERT_TRUE(gguf != nullptr && file != nullptr) << pre;
    ExpectEqualIds(*gguf, *file, pre);
  }
}

TEST(GgufKinds, Gemma4RunsMergesOverCharacters) {
  const TokenizerSpec spec = SpecOf("kinds/gemma_across_words");
  const auto file = MustMake(spec);
  GgufTokenizerFields fields = FieldsOf(spec, "gemma4");
  const auto gguf = MustMake(SpecFromGguf(fields));
  ASSERT_TRUE(gguf != nullptr && file != nullptr);
  ExpectEqualIds(*gguf, *file, "gemma4");
  EXPECT_EQ(gguf->Encode("", true, true), Ids{spec.bos_id});
  fields.has_add_bos = true;
  EXPECT_EQ(MustMake(SpecFromGguf(fields))->Encode("", true, true), Ids{spec.bos_id}) << "whatever the file says";
}

TEST(GgufKinds, T5RunsAUnigramModelWithItsMap) {
  const Result<TokenizerSpec> spec = ParseSentencePieceModel(TextData("kinds/unigram.tokenizer.model"));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  GgufTokenizerFields fields = FieldsOf(*spec, "t5");
  fields.scores.assign(spec->scores.begin(), spec->scores.end());
  fields.precompiled_charsmap = spec->normalizers[0].content;
  fields.remove_extra_whitespaces = true;
  const auto gguf = MustMake(SpecFromGguf(fields)), file = MustMake(*spec);
  ASSERT_TRUE(gguf != nullptr && file != nullptr);
  ExpectEqualIds(*gguf, *file, "t5");
  EXPECT_EQ(gguf->Encode("", true, true), Ids{spec->eos_id});
  fields.scores.pop_back();
  EXPECT_NE(SpecFromGguf(fields).status().message().find("tokenizer.ggml.scores"), std::string::npos);
}

TEST(GgufKinds, BertRunsWordPiece) {
  for (const char* name : {"kinds/bert", "kinds/bert_cased"}) {
    TokenizerSpec spec = SpecOf(name);
    spec.max_word_characters = 100;  // GGUF has no such field
    GgufTokenizerFields fields = FieldsOf(spec, "bert");
    fields.sep = spec.eos_id, fields.eos = -1;
    for (size_t i = 0; i < fields.tokens.size(); ++i) {
      std::string& token = fields.tokens[i];
      if (fields.types[i] == 1) token = token.starts_with("##") ? token.substr(2) : std::string(kSpaceSymbol) + token;
    }
    const auto gguf = MustMake(SpecFromGguf(fields)), file = MustMake(spec);
    ASSERT_TRUE(gguf != nullptr && file != nullptr);
    for (const SortedJson& string : SortedJson::parse(TextData("kinds/strings.json"))) {
      const auto text = string.get<std::string>();
      ASSERT_EQ(gguf->Encode(text, true, true), file->Encode(text, true, true)) << name << ": " << string;
    }
  }
}

// A file of a vocabulary with these words, spelled out in letters by merges.
std::string Guess(std::vector<std::string> words, const std::vector<std::string>& control = {}) {
  TokenizerSpec spec;
  for (const char* letter : {"a", "b", "B", "1", "(", "\u0120"}) spec.tokens.emplace_back(letter);
  spec.tokens.insert(spec.tokens.end(), words.begin(), words.end());
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const std::string& token : control) {
    spec.tokens.push_back(token);
    spec.kinds.push_back(TokenKind::kControl);
  }
  return GuessPreTokenizer(spec);
}

TEST(GgufKinds, TheVocabularyShowsHowTextIsSplit) {
  EXPECT_EQ(Guess({"ab", "1111"}), "gpt-2");
  EXPECT_EQ(Guess({"ab"}), "starcoder");
  EXPECT_EQ(Guess({"ab", "111"}), "falcon");
  EXPECT_EQ(Guess({"ab", "(ab", "aB"}), "qwen2");
  EXPECT_EQ(Guess({"ab", "(ab", "aB", "111"}), "dbrx");
  EXPECT_EQ(Guess({"ab", "(ab", "aB", "111"}, {"<|begin_of_text|>"}), "llama-bpe");
  EXPECT_EQ(Guess({"ab", "(ab", "111"}), "gpt-4o");
  EXPECT_EQ(Guess({"ab", "(ab"}), "tekken");
  EXPECT_EQ(Guess({"ab", "b1"}), "bloom");
  EXPECT_EQ(Guess({"ab"}, {"[gMASK]"}), "glm4");
  EXPECT_EQ(Guess({"ab"}, {"<|START_OF_TURN_TOKEN|>"}), "command-r");
}

TEST(GgufKinds, AFileWithoutPreTokenizerIsReadWithAWarning) {
  for (const char* pre : {"", "default"}) {
    GgufTokenizerFields fields;
    fields.model = "gpt2";
    fields.pre = pre;
    fields.tokens = {"a", "b", "ab", "1", "11", "1111", "<e>"};
    fields.types = {1, 1, 1, 1, 1, 1, 3};
    fields.merges = {"a b", "1 1", "11 11"};
    fields.eos = 6;
    const Result<TokenizerSpec> spec = SpecFromGguf(fields);
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    ASSERT_EQ(spec->warnings.size(), 1u);
    EXPECT_NE(spec->warnings[0].find("\"gpt-2\" fits its vocabulary"), std::string::npos) << spec->warnings[0];
    EXPECT_EQ(MustMake(*spec)->Encode("ab1111<e>", false, true), (Ids{2, 5, 6}));
    fields.pre = "gpt-2";
    EXPECT_TRUE(SpecFromGguf(fields)->warnings.empty());
  }
}

}  // namespace
}  // namespace tactus::language
