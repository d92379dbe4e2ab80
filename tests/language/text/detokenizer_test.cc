// Streaming never splits a character, and its parts add up to Decode for any ids.
#include <unicode/normalizer2.h>

#include <random>

#include "golden_cases.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using Ids = std::vector<TokenId>;

TEST(Detokenizer, AnyIdsAddUpToDecode) {
  std::mt19937 random(11);
  for (const char* name : {"gpt2", "llama3", "llama2", "llama2_first"}) {
    const auto tokenizer = FromJson(name);
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 2000; ++round) {
      Ids ids(random() % 12);
      // Half of them low: byte tokens and parts of characters.
      for (TokenId& id : ids)
        id = static_cast<TokenId>(random() %
                                  (random() % 2 == 0 ? 260u : static_cast<unsigned>(tokenizer->vocab_size())));
      for (const bool skip : {false, true}) {
        Detokenizer detokenizer(tokenizer.get(), skip);
        std::string text;
        for (const TokenId id : ids) {
          const std::string piece = detokenizer.Append(id);
          ASSERT_TRUE(IsValidUtf8(piece));
          text += piece;
        }
        ASSERT_EQ(text + detokenizer.Flush(), tokenizer->Decode(ids, skip)) << name << testing::PrintToString(ids);
      }
    }
  }
}

TEST(Detokenizer, HoldsBackAnIncompleteCharacter) {
  const auto tokenizer = FromJson("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  // U+2190 has no merges in this vocabulary: three byte tokens.
  const Ids ids = tokenizer->Encode("\u2190", false, false);
  ASSERT_EQ(ids.size(), 3u);
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Append(ids[2]), "\u2190");
  EXPECT_EQ(detokenizer.Flush(), "");
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(tokenizer->FindToken("a")), "\uFFFDa");
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
}

TEST(Detokenizer, SentencePieceStripsOneSpaceAtTheStartOnly) {
  const auto tokenizer = FromJson("llama2");
  ASSERT_NE(tokenizer, nullptr);
  const TokenId the = tokenizer->FindToken("\u2581the"), bos = tokenizer->bos_id();
  ASSERT_GE(the, 0);
  EXPECT_EQ(Streamed(*tokenizer, Ids{the, the}, true), "the the");
  EXPECT_EQ(Streamed(*tokenizer, Ids{bos, the, the}, true), "the the");
  EXPECT_EQ(Streamed(*tokenizer, Ids{bos, the}, false), "<s> the");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("  two", true, true), true), "  two");
}

TEST(Unicode, FindsTheCompletePrefix) {
  const std::string text = "a\u00E9\u20AC\U0001F600";
  for (size_t size = 0; size <= text.size(); ++size) {
    const size_t whole = CompleteUtf8Prefix(std::string_view(text).substr(0, size));
    EXPECT_TRUE(IsValidUtf8(text.substr(0, whole)));
    EXPECT_LT(size - whole, 4u);
  }
  EXPECT_EQ(CompleteUtf8Prefix("a\xFF"), 2u);
  EXPECT_EQ(CompleteUtf8Prefix("\x80\x80\x80\x80"), 4u);
  EXPECT_EQ(CompleteUtf8Prefix("\xE2\x82"), 0u);
  EXPECT_EQ(CompleteUtf8Prefix("\xC0"), 1u);
}

TEST(Unicode, LongRunsOfMarksComposeLikeShortOnes) {
  // Runs of more than 64 marks are sorted by our code, with the same result: all these marks are older than Unicode 9.
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  ASSERT_TRUE(U_SUCCESS(error));
  const std::string parts[] = {"\u0301", "\u0316", "\u0344", "\u0F73", "\u0345", "\u05B0", "\u3099", "\u0308"};
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::string text = "x o";
    for (int i = 0; i < 40 + round; ++i) text += parts[random() % 8];
    if (round % 2 == 0) text += "y\u0316";
    std::string expected;
    nfc->normalize(icu::UnicodeString::fromUTF8(text), error).toUTF8String(expected);
    ASSERT_TRUE(NormalizeUnicode(NormalForm::kNfc, text) == expected) << "round " << round;
  }
}

}  // namespace
}  // namespace tactus::language
