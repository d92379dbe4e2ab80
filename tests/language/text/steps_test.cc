// The steps of a tokeniser on their own: regexes, splits, normalizers, decoders. The goldens cover what they do
// together.
#include <cmath>

#include "language/text/decoder.h"
#include "language/text/normalizer.h"
#include "language/text/pretokenizer.h"
#include "language/text/regex.h"

#include "golden_cases.h"
#include "language/text/base64.h"
#include "language/text/byte_trie.h"
#include "language/text/precompiled_map.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using Texts = std::vector<std::string>;

Texts SplitBy(PreTokenizerStep step, std::string_view text) {
  const auto splitter = Pretokenizer::Compile({std::move(step)});
  EXPECT_TRUE(splitter.ok()) << splitter.status().ToString();
  std::vector<Pretokenizer::Piece> pieces;
  std::deque<std::string> storage;
  if (splitter.ok()) (*splitter)->Split({text, true}, &pieces, &storage);
  Texts out;
  for (const auto& piece : pieces) out.emplace_back(piece.text);
  return out;
}

Texts Split(const std::string& regex, SplitBehavior behavior, std::string_view text, bool invert = false) {
  return SplitBy(
      {.kind = PreTokenizerStep::Kind::kSplit, .pattern = {regex, true}, .behavior = behavior, .invert = invert}, text);
}

TEST(Pretokenizer, BehaviorsMatchTheReference) {
  // The example from the reference's documentation of its Split behaviours.
  const std::string text = "the-final--countdown";
  EXPECT_EQ(Split("-", SplitBehavior::kIsolated, text), (Texts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(Split("-", SplitBehavior::kRemoved, text), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(Split("-", SplitBehavior::kContiguous, text), (Texts{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(Split("-", SplitBehavior::kMergedWithPrevious, text), (Texts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(Split("-", SplitBehavior::kMergedWithNext, text), (Texts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(Split("[a-z]+", SplitBehavior::kRemoved, text, true), (Texts{"the", "final", "countdown"}));
}

TEST(Pretokenizer, EmptyMatchesSplit) {
  EXPECT_EQ(Split("x*", SplitBehavior::kIsolated, "aaxb"), (Texts{"a", "a", "x", "b"}));
  EXPECT_EQ(Split("(?=b)", SplitBehavior::kIsolated, "abb"), (Texts{"a", "b", "b"}));
  EXPECT_EQ(Split("", SplitBehavior::kIsolated, "a\u00E9"), (Texts{"a", "\u00E9"}));
}

TEST(Pretokenizer, OnlyTheFirstPieceIsAtTheStart) {
  const auto starts = [](SplitBehavior behavior, std::string_view text) {
    const auto splitter =
        Pretokenizer::Compile({{.kind = PreTokenizerStep::Kind::kSplit, .pattern = {"-"}, .behavior = behavior}});
    std::vector<Pretokenizer::Piece> pieces;
    std::deque<std::string> storage;
    (*splitter)->Split({text, true}, &pieces, &storage);
    std::string flags;
    for (const auto& piece : pieces) flags += piece.at_start ? '1' : '0';
    return flags;
  };
  EXPECT_EQ(starts(SplitBehavior::kIsolated, "a-b"), "100");
  EXPECT_EQ(starts(SplitBehavior::kRemoved, "-a-b"), "00");
  EXPECT_EQ(starts(SplitBehavior::kMergedWithNext, "-a-b"), "10");
}

TEST(Pretokenizer, AnEndlesslyBacktrackingPatternStops) {
  std::string text(50'000, 'a');
  text += 'b';
  EXPECT_EQ(Split("(a+)+$", SplitBehavior::kIsolated, text), Texts{text});
}

TEST(Regex, ClassesMatchTheReference) {
  const auto matches = [](const std::string& regex, std::string_view text) {
    return Split(regex, SplitBehavior::kRemoved, text, true);
  };
  // U+180E is \s in PCRE2 alone; U+200D and U+0345 are \w by UTS 18.
  EXPECT_EQ(Split(R"(\s+)", SplitBehavior::kRemoved, "a\u180Eb\u3000c\u0085d").size(), 3u);
  EXPECT_EQ(matches(R"(\w+)", "a_1\u0301\u203F-\u0661").size(), 2u);
  EXPECT_EQ(matches(R"([^\s\d]+)", "ab1c d").size(), 3u);
  EXPECT_EQ(matches(R"(\h+)", "xfAzg9"), (Texts{"fA", "9"}));
  EXPECT_EQ(matches(R"([\W])", "a-b"), Texts{"-"});
  EXPECT_EQ(matches(R"([[:alpha:]]+)", "a1\u00E9"), (Texts{"a", "\u00E9"}));
  EXPECT_EQ(matches(R"([[:^alpha:]]+)", "a1\u00E9"), Texts{"1"});
  EXPECT_EQ(matches(R"([a-f&&[^bd]]+)", "abcdefg"), (Texts{"a", "c", "ef"}));
  EXPECT_EQ(matches(R"([^a-f&&[^bd]]+)", "abcdefg"), (Texts{"b", "d", "g"}));
  EXPECT_EQ(matches(R"([a[0-9]x]+)", "a1x-b"), Texts{"a1x"});
  EXPECT_EQ(matches(R"(\p{Uppercase_Letter}+)", "aBC"), Texts{"BC"});
  // U+3001 is used in Han text, but it is of no script.
  EXPECT_EQ(matches(R"(\p{Han}+)", "\u4E2D\u3001\u6587"), (Texts{"\u4E2D", "\u6587"}));
  EXPECT_EQ(matches(R"(\bb\b)", "b ab b\u0301 b"), (Texts{"b", "b"}));
  EXPECT_EQ(matches("^a$", "a\nab\na"), (Texts{"a", "a"}));
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), Texts{"a\nb"});
  EXPECT_EQ(matches("a.b", "a\nb"), Texts{});
  EXPECT_EQ(matches("a{,2}b", "aaab"), Texts{"aab"});
}

TEST(Regex, UnsupportedSyntaxIsRefusedWithItsPattern) {
  for (const char* pattern : {"a\\", R"(\X)", R"(\R)", R"(\Qa\E)", "(*FAIL)", "(?~a)", "(?s:a)", "a{1,2}+", "[", "[]a]",
                              "[[:wide:]]", R"(\p{NoSuchName})", R"(\pL)", "(", "a**b{"}) {
    const Result<Regex> regex = Regex::Compile(pattern);
    if (regex.ok()) {
      EXPECT_STREQ(pattern, "") << "was accepted";
      continue;
    }
    EXPECT_EQ(regex.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(regex.status().message().find(pattern), std::string::npos) << regex.status().message();
  }
  EXPECT_FALSE(Regex::Compile(std::string(100, '[') + "a" + std::string(100, ']')).ok());
}

TEST(Normalizer, KnowsWhetherTheStartRemains) {
  using Kind = NormalizerStep::Kind;
  const auto start_remains = [](NormalizerStep step, std::string_view text) {
    TokenizerSpec spec;
    spec.normalizers = {std::move(step)};
    bool at_start = true;
    (void)(*Normalizer::Compile(spec))->Apply(text, &at_start);
    return at_start;
  };
  EXPECT_TRUE(start_remains({.kind = Kind::kStrip}, "a "));
  EXPECT_FALSE(start_remains({.kind = Kind::kStrip}, " a"));
  EXPECT_TRUE(start_remains({.kind = Kind::kLowercase}, "\u0130"));
  EXPECT_FALSE(start_remains({.kind = Kind::kStripAccents}, "\u0301a"));
  EXPECT_TRUE(start_remains({.kind = Kind::kReplace, .pattern = {"a"}, .content = "bc"}, "aa"));
  EXPECT_FALSE(start_remains({.kind = Kind::kReplace, .pattern = {"aa"}, .content = "bc"}, "aa"));
  EXPECT_FALSE(start_remains({.kind = Kind::kReplace, .pattern = {"a+", true}, .content = ""}, "ab"));
  EXPECT_TRUE(start_remains({.kind = Kind::kPrepend, .content = "x"}, "a"));
}

TEST(Decoder, WordsAndSpacesDependOnTheirPlace) {
  const auto decoder = TokenDecoder::Compile({{.kind = DecoderStep::Kind::kWordPiece, .content = "##"}});
  ASSERT_TRUE(decoder.ok());
  EXPECT_EQ(decoder->Bytes("word", true), "word");
  EXPECT_EQ(decoder->Bytes("word", false), " word");
  EXPECT_EQ(decoder->Bytes("##s", false), "s");
  EXPECT_EQ(decoder->Bytes(".", false), ".") << "cleaned up";
  const auto ends = TokenDecoder::Compile({{.kind = DecoderStep::Kind::kBpe, .content = "</w>"}});
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(ends->Bytes("a</w>", false), "a ");
  EXPECT_EQ(ends->DroppedAtEnd("a</w>"), 1u);
  EXPECT_EQ(ends->DroppedAtEnd("a"), 0u);
}

TEST(Decoder, WhatCannotBeStreamedIsRefused) {
  using Kind = DecoderStep::Kind;
  const DecoderStep fuse{.kind = Kind::kFuse}, fallback{.kind = Kind::kByteFallback};
  for (const Kind kind : {Kind::kReplace, Kind::kMetaspace, Kind::kWordPiece, Kind::kBpe, Kind::kByteLevel}) {
    EXPECT_EQ(TokenDecoder::Compile({fuse, {.kind = kind}}).status().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(TokenDecoder::Compile({fallback, {.kind = kind}}).status().code(), StatusCode::kUnimplemented);
  }
  EXPECT_TRUE(TokenDecoder::Compile({fallback, fuse, {.kind = Kind::kStrip, .content = " ", .start = 1}}).ok());
  EXPECT_FALSE(TokenDecoder::Compile({fuse, {.kind = Kind::kStrip, .content = " ", .stop = 1}}).ok());
  EXPECT_FALSE(TokenDecoder::Compile({fallback, {.kind = Kind::kStrip, .content = " ", .start = 1}}).ok());
}

TEST(Unigram, AnUnknownCharacterMayStandWhereALongerTokenBegins) {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kUnigram;
  spec.tokens = {"<unk>", "ab", "bcd"};
  spec.scores = {0, -1, -1};
  spec.unk_id = 0;
  const auto tokenizer = MustMake(spec);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("abcd", false, false), (std::vector<TokenId>{0, 2})) << "one unknown token, not two";
  EXPECT_EQ(tokenizer->Encode("abx", false, false), (std::vector<TokenId>{1, 0}));
  spec.scores[1] = std::nan("");
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kDataLoss);
  spec.scores.pop_back();
  EXPECT_EQ(MakeTokenizer(spec).status().code(), StatusCode::kDataLoss);
}

TEST(ByteTrie, FindsTextsAndKeepsTheLastOfEqualOnes) {
  const ByteTrie trie({{"a", 0}, {"abc", 1}, {"", 2}, {"abc", 3}, {"\xFF", 4}, {"b", 5}});
  const auto value = [&](std::string_view text) {
    int32_t node = ByteTrie::kRoot;
    for (const char c : text) {
      if (node != ByteTrie::kNone) node = trie.Next(node, c);
    }
    return node == ByteTrie::kNone ? -2 : trie.Value(node);
  };
  EXPECT_EQ(value("a"), 0);
  EXPECT_EQ(value("ab"), -1);
  EXPECT_EQ(value("abc"), 3);
  EXPECT_EQ(value("abcd"), -2);
  EXPECT_EQ(value("\xFF"), 4);
  EXPECT_EQ(value("c"), -2);
  EXPECT_EQ(value(""), -1);
  EXPECT_TRUE(ByteTrie().empty());
}

TEST(Base64, DecodesTextWithAndWithoutPadding) {
  std::string bytes;
  EXPECT_TRUE(DecodeBase64("aGk=", &bytes));
  EXPECT_EQ(bytes, "hi");
  EXPECT_TRUE(DecodeBase64("aGk", &bytes));
  EXPECT_EQ(bytes, "hi");
  EXPECT_TRUE(DecodeBase64("/+8A", &bytes));
  EXPECT_EQ(bytes, std::string("\xFF\xEF\0", 3));
  EXPECT_FALSE(DecodeBase64("a-k=", &bytes));
  EXPECT_FALSE(DecodeBase64("aGkab", &bytes));
  EXPECT_FALSE(DecodeBase64("a=Gk", &bytes));
}

TEST(PrecompiledMap, HostileBytesFindNothing) {
  std::string_view replacement;
  size_t size = 0;
  EXPECT_FALSE(PrecompiledMap::Read("abc").ok());
  EXPECT_FALSE(PrecompiledMap::Read(std::string("\x08\0\0\0abcd", 8)).ok());
  EXPECT_FALSE(PrecompiledMap::Read(std::string("\x03\0\0\0abcd", 8)).ok());
  EXPECT_FALSE(PrecompiledMap::Read("")->Find("a", true, &replacement, &size));
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::string bytes(4 + 32 + 3, '\0');
    bytes[0] = 32;
    unsigned state = seed * 2654435761u + 1;
    for (size_t i = 4; i < bytes.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      bytes[i] = static_cast<char>(seed % 3 == 0 || i % 4 < 2 ? state >> 24 : 0);
    }
    const auto map = PrecompiledMap::Read(bytes);
    ASSERT_TRUE(map.ok());
    for (const char* text : {"a", "ab", "\xC3\xA9", ""}) (void)map->Find(text, seed % 2 == 0, &replacement, &size);
  }
}

TEST(Grapheme, ClustersFollowTheRules) {
  const auto sizes = [](std::string_view text) {
    std::vector<size_t> out;
    for (; !text.empty(); text.remove_prefix(out.back())) out.push_back(GraphemeSize(text));
    return out;
  };
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(sizes("a\r\n\nb"), (Sizes{1, 2, 1, 1}));
  EXPECT_EQ(sizes("e\u0301\u0301x"), (Sizes{5, 1}));
  EXPECT_EQ(sizes("\u1100\u1161\u11A8\uAC01"), (Sizes{9, 3}));
  EXPECT_EQ(sizes("\U0001F1EB\U0001F1F7\U0001F1EB"), (Sizes{8, 4}));
  EXPECT_EQ(sizes("\U0001F469\u200D\U0001F467a"), (Sizes{11, 1}));
  EXPECT_EQ(sizes("a\u200D\U0001F467"), (Sizes{4, 4}));
  EXPECT_EQ(sizes("\n\u0301"), (Sizes{1, 2}));
}

}  // namespace
}  // namespace tactus::language
