// SentencePiece beyond the goldens: user-defined, unused and unknown pieces, normalisation, invalid and hostile files.
#include <bit>

#include "golden_cases.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

TokenizerSpec Pieces(std::vector<std::pair<std::string, TokenKind>> pieces, bool collapses_spaces = false,
                     bool dummy_prefix = false) {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kSentencePieceBpe;
  AddSentencePieceSteps("", collapses_spaces, dummy_prefix, &spec);
  for (auto& [text, kind] : pieces) {
    spec.scores.push_back(-static_cast<float>(spec.tokens.size()));
    spec.tokens.push_back(text);
    spec.kinds.push_back(kind);
  }
  spec.unk_id = 0;
  return spec;
}

TEST(SentencePiece, UnusedPiecesAreSplitAgain) {
  const auto N = TokenKind::kNormal;
  TokenizerSpec spec = Pieces({{"<unk>", TokenKind::kUnknown},
                               {"ab", TokenKind::kUnused},
                               {"abc", N},
                               {"\u2581", N},
                               {"a", N},
                               {"b", N},
                               {"c", N}});
  const auto tokenizer = MustMake(spec);
  EXPECT_EQ(tokenizer->Encode("ab", false, false), (Ids{4, 5}));
  EXPECT_EQ(tokenizer->Encode("abc", false, false), (Ids{2}));  // an unused piece still leads to longer ones
}

TEST(SentencePiece, UserDefinedPiecesNeitherSplitNorMerge) {
  const auto N = TokenKind::kNormal;
  TokenizerSpec spec = Pieces({{"<unk>", TokenKind::kUnknown},
                               {"ab", TokenKind::kUserDefined},
                               {"abb", TokenKind::kUserDefined},
                               {"xa", N},
                               {"\u2581", N},
                               {"a", N},
                               {"b", N},
                               {"x", N},
                               {"xab", N}});
  const auto tokenizer = MustMake(spec);
  EXPECT_EQ(tokenizer->Encode("xab", false, false), (Ids{7, 1}));
  EXPECT_EQ(tokenizer->Encode("abb", false, false), (Ids{2}));
  EXPECT_EQ(tokenizer->Encode("xa", false, false), (Ids{3}));
}

TEST(SentencePiece, UnknownCharactersBecomeUnknownTokens) {
  const auto N = TokenKind::kNormal;
  TokenizerSpec spec = Pieces({{"<unk>", TokenKind::kUnknown}, {"\u2581", N}, {"a", N}});
  EXPECT_EQ(MustMake(spec)->Encode("a\u65E5\u672Ca", false, false), (Ids{2, 0, 2}));
  spec.fuse_unknown = false;
  EXPECT_EQ(MustMake(spec)->Encode("a\u65E5\u672Ca", false, false), (Ids{2, 0, 0, 2}));
}

TEST(SentencePiece, EqualScoresMergeFromTheLeft) {
  const auto N = TokenKind::kNormal;
  TokenizerSpec spec = Pieces({{"<unk>", TokenKind::kUnknown}, {"aa", N}, {"a", N}, {"\u2581", N}});
  EXPECT_EQ(MustMake(spec)->Encode("aaa", false, false), (Ids{1, 2}));
}

TEST(SentencePiece, PrefixesAndSpacesFollowTheSpecification) {
  const auto N = TokenKind::kNormal;
  const std::vector<std::pair<std::string, TokenKind>> pieces = {
      {"<unk>", TokenKind::kUnknown}, {"\u2581", N}, {"a", N}};
  TokenizerSpec spec = Pieces(pieces, false, true);
  EXPECT_EQ(MustMake(spec)->Encode("a  a", false, false), (Ids{1, 2, 1, 1, 2}));
  EXPECT_EQ(MustMake(spec)->Encode("", false, false), Ids{});
  EXPECT_EQ(MustMake(spec)->Encode(" a", false, false), (Ids{1, 1, 2}));
  EXPECT_EQ(MustMake(spec)->Decode(Ids{1, 1, 2}, false), " a");
  spec = Pieces(pieces, true, true);
  EXPECT_EQ(MustMake(spec)->Encode("  a   a ", false, false), (Ids{1, 2, 1, 2}));
  EXPECT_EQ(MustMake(spec)->Encode("   ", false, false), Ids{});
}

TEST(SentencePiece, EncodesAMegabyteOfOneKind) {
  const auto tokenizer = MustMake(ParseSentencePieceModel(TextData("spm.tokenizer.model")));
  ASSERT_NE(tokenizer, nullptr);
  for (const std::string unit : {"a", " ", "\n", "<|begin|>", "\u65E5", "the cat sat ", "\u2581"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const std::string back = tokenizer->Decode(tokenizer->Encode(text, false, false), false);
    EXPECT_EQ(back.size(), unit == "\u2581" ? text.size() / 3 : text.size());
    if (unit != "\u2581") {
      EXPECT_TRUE(back == text) << unit;
    }
  }
}

TEST(SentencePieceModel, ReadsControlTokensAndTheirRoles) {
  const Result<TokenizerSpec> spec = ParseSentencePieceModel(TextData("spm.tokenizer.model"));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->unk_id, 0);
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_EQ(spec->eos_id, 2);
  const auto tokenizer = MustMake(*spec);
  EXPECT_EQ(tokenizer->Encode("</s>", true, true), (Ids{1, 2}));
  EXPECT_GT(tokenizer->Encode("</s>", false, false).size(), 1u);
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->FindToken("<0x0A>")), "\n");
}

TEST(SentencePieceModel, EveryTruncationIsAnErrorOrAModel) {
  const std::string file = TextData("spm.tokenizer.model");
  int errors = 0;
  for (size_t size = 0; size < file.size(); size += 7) {
    const Result<TokenizerSpec> spec = ParseSentencePieceModel(file.substr(0, size));
    errors += !spec.ok();
    if (spec.ok()) {
      EXPECT_TRUE(MakeTokenizer(*spec).ok());
    }
  }
  EXPECT_GT(errors, 100);
}

// A ModelProto written by hand: one piece, a trainer_spec with `model_type`, a normalizer_spec.
std::string Proto(char model_type, const std::string& normalizer) {
  const std::string piece = std::string("\x0A\x01") + "a";
  const std::string trainer = std::string("\x18") + model_type;
  const auto field = [](char key, const std::string& body) {
    return std::string{key, static_cast<char>(body.size())} + body;
  };
  return field('\x0A', piece) + field('\x12', trainer) + field('\x1A', normalizer);
}

TEST(SentencePieceModel, RefusesUnsupportedModels) {
  EXPECT_TRUE(ParseSentencePieceModel(Proto(2, "")).ok());
  EXPECT_TRUE(ParseSentencePieceModel(Proto(1, "")).ok());
  EXPECT_EQ(ParseSentencePieceModel(Proto(3, "")).status().code(), StatusCode::kUnimplemented);  // whole words
  const Status map = MakeTokenizer(*ParseSentencePieceModel(Proto(2, "\x0A\x08nmt_nfkc\x12\x01x"))).status();
  EXPECT_NE(map.message().find("the precompiled map of 1 bytes"), std::string::npos) << map.message();
  EXPECT_EQ(ParseSentencePieceModel("\xFF\xFF\xFF").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseSentencePieceModel("\x0A\xFF\xFF\xFF\xFF\x0F").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseSentencePieceModel("").status().code(), StatusCode::kDataLoss);
  TokenizerSpec spec = Pieces({{"a", TokenKind::kNormal}});
  spec.scores[0] = std::bit_cast<float>(0x7FC00000u);
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kDataLoss);
  spec.scores.clear();
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tactus::language
