// Byte-level BPE beyond the goldens: merging against an obvious implementation, long and hostile text, invalid
// specifications.
#include <functional>
#include <random>

#include "golden_cases.h"
#include "language/text/bpe.h"
#include "language/text/gguf_spec.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

// The definition: repeatedly merge the leftmost pair of the lowest rank.
void MergeNaively(const MergeTable& merges, Ids* ids) {
  for (;;) {
    size_t best = ids->size();
    int32_t best_rank = -1;
    TokenId result = -1;
    for (size_t i = 0; i + 1 < ids->size(); ++i) {
      const MergeTable::Merge merge = merges.Find((*ids)[i], (*ids)[i + 1]);
      if (merge.rank >= 0 && (best_rank < 0 || merge.rank < best_rank))
        best = i, best_rank = merge.rank, result = merge.result;
    }
    if (best_rank < 0) return;
    (*ids)[best] = result;
    ids->erase(ids->begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(MergePairs, EqualsTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // Tokens 0..3 are letters; every merge makes a new token from two existing ones.
    MergeTable merges;
    TokenId next = 4;
    for (int rank = 0; rank < 40; ++rank, ++next) {
      merges.Add(static_cast<TokenId>(random() % static_cast<unsigned>(next)),
                 static_cast<TokenId>(random() % static_cast<unsigned>(next)), {rank, next});
    }
    Ids ids(random() % 80);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 4);
    Ids expected = ids;
    MergeNaively(merges, &expected);
    MergePairs(merges, &ids);
    ASSERT_EQ(ids, expected) << "round " << round;
  }
}

TEST(ByteLevel, EncodesAMegabyteOfOneKind) {
  for (const char* name : {"gpt2", "smollm", "llama3", "qwen2"}) {
    const auto tokenizer = FromJson(name);
    ASSERT_NE(tokenizer, nullptr);
    for (const std::string unit : {"a", " ", "\n", "'", "7", "\xCC\x81\xCC\x96", "<|begin", "a \n"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      const Ids ids = tokenizer->Encode(text, false, true);
      if (std::string(name) == "qwen2" && unit.size() == 4) {
        EXPECT_EQ(tokenizer->Decode(ids, false), NormalizeUnicode(NormalForm::kNfc, text));
      } else {
        EXPECT_TRUE(tokenizer->Decode(ids, false) == text) << name << " " << testing::PrintToString(unit);
      }
    }
  }
}

TEST(ByteLevel, InvalidUtf8IsReplacedFirst) {
  const auto tokenizer = FromJson("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  const std::pair<std::string, std::string> cases[] = {
      {"a\xFF"
       "b",
       "a\uFFFDb"},
      {"\xE2\x82", "\uFFFD"},  // incomplete: one
      {"\xE2\x82"
       "x",
       "\uFFFDx"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xC0\x80", "\uFFFD\uFFFD"},                      // overlong: each byte
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate: each byte
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // beyond U+10FFFF
      {"\xE2\x82\xAC\x80", "\u20AC\uFFFD"},
  };
  for (const auto& [bad, good] : cases) {
    EXPECT_EQ(ReplaceInvalidUtf8(bad), good);
    EXPECT_EQ(tokenizer->Encode(bad, false, false), tokenizer->Encode(good, false, false));
  }
}

TEST(ByteLevel, MapsTokensAndIds) {
  const auto tokenizer = FromJson("llama3");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->TokenText(tokenizer->bos_id()), "<|begin|>");
  EXPECT_TRUE(tokenizer->IsSpecial(tokenizer->bos_id()));
  const TokenId the = tokenizer->FindToken("\u0120the");
  ASSERT_GE(the, 0);
  EXPECT_EQ(tokenizer->TokenBytes(the), " the");
  EXPECT_FALSE(tokenizer->IsSpecial(the));
  EXPECT_EQ(tokenizer->FindToken("no such token"), -1);
  for (const TokenId id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_EQ(tokenizer->TokenText(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  EXPECT_EQ(tokenizer->Decode(Ids{-5, the, 1 << 30}, false), " the");
}

TEST(ByteLevel, RefusesInconsistentSpecifications) {
  TokenizerSpec spec;
  AddByteLevel(&spec);
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kDataLoss);
  spec.tokens = {"a", "b", "ab"};
  spec.merges = {{"a", "b"}, {"ab", "c"}};
  const Status missing = MakeTokenizer(spec).status();
  EXPECT_NE(missing.message().find("\"c\""), std::string::npos) << missing.message();
  spec.merges.pop_back();
  ASSERT_TRUE(MakeTokenizer(spec).ok());
  spec.eos_id = 3;
  EXPECT_NE(MakeTokenizer(spec).status().message().find("has id 3, but the vocabulary has 3 tokens"),
            std::string::npos);
  spec.eos_id = 2;
  EXPECT_TRUE(CheckTokenizerFits(spec, 3).ok());
  EXPECT_TRUE(CheckTokenizerFits(spec, 128).ok());
  const Status small = CheckTokenizerFits(spec, 2);
  EXPECT_NE(small.message().find("has 3 tokens, but the model has embeddings for 2"), std::string::npos)
      << small.message();
  spec.pre_tokenizers.insert(spec.pre_tokenizers.begin(),
                             {.kind = PreTokenizerStep::Kind::kSplit, .pattern = {"(", true}});
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kUnimplemented);
}

TEST(ByteLevel, AByteWithoutATokenIsUnknownOrDropped) {
  TokenizerSpec spec;
  AddByteLevel(&spec);
  spec.tokens = {"a", "b", "ab", "?"};
  spec.merges = {{"a", "b"}};
  const auto drops = MustMake(spec);
  EXPECT_EQ(drops->Encode("axb", false, false),
            (Ids{2}));  // as in the reference: a dropped byte does not separate its neighbours
  spec.unk_id = 3;
  EXPECT_EQ(MustMake(spec)->Encode("axxb", false, false), (Ids{0, 3, 3, 1}));
  spec.fuse_unknown = true;
  EXPECT_EQ(MustMake(spec)->Encode("axxb", false, false), (Ids{0, 3, 1}));
}

TEST(GgufSpec, NamesUnknownModelsAndPreTokenizers) {
  GgufTokenizerFields fields;
  fields.model = "gpt2";
  fields.pre = "no-such-pre";
  fields.tokens = {"a"};
  const Status pre = SpecFromGguf(fields).status();
  EXPECT_EQ(pre.code(), StatusCode::kUnimplemented);
  EXPECT_NE(pre.message().find("\"no-such-pre\""), std::string::npos);
  EXPECT_NE(pre.message().find("smollm"), std::string::npos);
  fields.model = "rwkv";
  EXPECT_NE(SpecFromGguf(fields).status().message().find("\"rwkv\""), std::string::npos);
  fields.model = "gpt2";
  fields.pre = "gpt-2";
  fields.merges = {"ab"};
  EXPECT_EQ(SpecFromGguf(fields).status().code(), StatusCode::kDataLoss);
  fields.merges.clear();
  fields.types = {9};
  EXPECT_EQ(SpecFromGguf(fields).status().code(), StatusCode::kDataLoss);
  fields.types = {1, 1};
  EXPECT_EQ(SpecFromGguf(fields).status().code(), StatusCode::kDataLoss);
  fields.types.clear();
  fields.bos = 1;
  EXPECT_EQ(SpecFromGguf(fields).status().code(), StatusCode::kDataLoss);
}

// Arrays that a file leaves out read as empty: the key is named where text would silently become other tokens.
TEST(GgufSpec, MissingArraysAreRefusedByName) {
  GgufTokenizerFields whole;
  whole.model = "gpt2";
  whole.pre = "gpt-2";
  whole.tokens = {"a", "b", "ab", "<e>"};
  whole.types = {1, 1, 1, 3};
  whole.merges = {"a b"};
  whole.eos = 3;
  EXPECT_EQ(MustMake(SpecFromGguf(whole))->Encode("ab<e>", true, true), (Ids{2, 3}));
  const auto refused = [&](const char* key, const std::function<void(GgufTokenizerFields*)>& drop) {
    GgufTokenizerFields fields = whole;
    drop(&fields);
    const Status status = SpecFromGguf(fields).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << key;
    EXPECT_NE(status.message().find(std::string("tokenizer.ggml.") + key), std::string::npos) << status.message();
  };
  refused("merges", [](auto* f) { f->merges.clear(); });
  refused("merges", [](auto* f) {
    f->tokens.insert(f->tokens.end(), {"aa", "ba"});  // one merge for three tokens of several characters
    f->types.insert(f->types.end(), {1, 1});
  });
  refused("token_type", [](auto* f) { f->types.clear(); });
  refused("tokens", [](auto* f) { f->tokens.clear(), f->types.clear(), f->merges.clear(), f->eos = -1; });
  refused("scores", [](auto* f) { f->model = "llama"; });
  // A vocabulary of bytes needs no merges.
  GgufTokenizerFields bytes = whole;
  bytes.tokens[2] = "c";
  bytes.merges.clear();
  EXPECT_EQ(MustMake(SpecFromGguf(bytes))->Encode("abc<e>", true, true), (Ids{0, 1, 2, 3}));
}

TEST(GgufSpec, AbsentFieldsHaveDefaults) {
  GgufTokenizerFields fields;
  fields.model = "gpt2";
  fields.pre = "llama-bpe";
  fields.tokens = {"<b>", "a", "<u>"};
  fields.types = {3, 1, 4};
  fields.bos = 0;
  Result<TokenizerSpec> spec = SpecFromGguf(fields);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->prefix, Ids{0});
  EXPECT_TRUE(spec->ignore_merges);
  ASSERT_EQ(spec->added.size(), 2u);
  EXPECT_TRUE(spec->added[0].special);
  EXPECT_FALSE(spec->added[1].special);
  EXPECT_EQ(MustMake(*spec)->Encode("a<b><u>", true, true), (Ids{0, 1, 0, 2}));
  fields.pre = "qwen2";
  EXPECT_EQ(SpecFromGguf(fields)->prefix, Ids{});
  fields.has_add_bos = fields.add_bos = true;
  EXPECT_EQ(SpecFromGguf(fields)->prefix, Ids{0});
  fields.model = "llama";
  fields.scores = {0, 0, 0};
  fields.has_add_bos = fields.add_bos = false;
  EXPECT_EQ(SpecFromGguf(fields)->prefix, Ids{0});
  EXPECT_EQ(SpecFromGguf(fields)->unk_id, 0);
  fields.bos = -1;
  EXPECT_EQ(SpecFromGguf(fields)->prefix, Ids{});
}

}  // namespace
}  // namespace tactus::language
