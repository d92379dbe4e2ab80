// Texts of any length and shape: tokenised in work that grows linearly, counted in steps instead of time; ended early
// when stopped; refused by their size where they can never fit.
#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include "base/rng.h"
#include "golden_cases.h"
#include "language/text/bpe.h"
#include "language/text/gguf_pre_tokenizers.h"
#include "language/text/merge_by_rank.h"
#include "language/text/regex.h"
#include "language/text/tokenizer.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

// Deterministic numbers from 0 to n - 1.
class Draw {
 public:
  explicit Draw(uint32_t seed) : seed_(seed) {}
  uint32_t operator()(uint32_t n) { return Philox4x32({seed_, 7}, {count_++, 0, 0, 0})[0] % n; }

 private:
  uint32_t seed_, count_ = 0;
};

// The rule itself, implemented literally and slowly.
std::vector<TokenId> MergedByTheRule(const MergeTable& merges, std::vector<TokenId> ids) {
  while (true) {
    MergeTable::Merge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Merge merge = merges.Find(ids[i], ids[i + 1]);
      if (merge.rank >= 0 && (best.rank < 0 || merge.rank < best.rank)) best = merge, at = i;
    }
    if (best.rank < 0) return ids;
    ids[at] = best.result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

std::vector<TokenId> Merged(const MergeTable& merges, std::vector<TokenId> ids) {
  MergePairs(merges, &ids);
  return ids;
}

// Powers of two of one symbol, as vocabularies have for spaces.
MergeTable Doubling(int levels) {
  MergeTable merges;
  for (TokenId id = 0; id < levels; ++id) merges.Add(id, id, {id, id + 1});
  return merges;
}

TEST(MergePairs, EqualsTheRuleOnRandomTablesAndTexts) {
  // Tables without any order of ranks: a merge may create a pair of a lower rank than its own, and results may repeat.
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    const uint32_t letters = 2 + draw(4), symbols = letters + 1 + draw(40);
    MergeTable merges;
    for (uint32_t rank = 0; rank < 3 * symbols; ++rank) {
      merges.Add(static_cast<TokenId>(draw(symbols)), static_cast<TokenId>(draw(symbols)),
                 {static_cast<int32_t>(draw(2 * symbols)), static_cast<TokenId>(draw(symbols))});
    }
    std::vector<TokenId> text(25 + draw(120));
    for (TokenId& id : text) id = static_cast<TokenId>(draw(letters));
    ASSERT_EQ(Merged(merges, text), MergedByTheRule(merges, text)) << "seed " << seed;
  }
}

TEST(MergePairs, EqualsTheRuleOnRunsAndPatterns) {
  const MergeTable doubling = Doubling(10);
  MergeTable mixed = Doubling(6);  // 0: a; 20: b; ab, (ab)(ab), ba ranked below and above the runs
  mixed.Add(0, 20, {3, 30});
  mixed.Add(30, 30, {1, 31});
  mixed.Add(20, 0, {9, 32});
  mixed.Add(20, 20, {0, 33});
  mixed.Add(33, 0, {2, 34});
  for (size_t size = 25; size < 300; size += 7) {
    std::vector<TokenId> run(size, 0), period2(size, 0), period3(size, 0), ends(size, 0);
    for (size_t i = 0; i < size; ++i) {
      if (i % 2 == 1) period2[i] = 20;
      if (i % 3 != 0) period3[i] = 20;
    }
    ends.back() = 20;
    for (const std::vector<TokenId>& text : {run, period2, period3, ends}) {
      ASSERT_EQ(Merged(doubling, text), MergedByTheRule(doubling, text)) << size;
      ASSERT_EQ(Merged(mixed, text), MergedByTheRule(mixed, text)) << size;
    }
  }
}

TEST(MergePairs, StepsOfARunGrowWithItsLength) {
  const MergeTable merges = Doubling(16);
  const auto steps = [&](size_t size) {
    std::vector<TokenId> run(size, 0);
    return MergePairs(merges, &run);
  };
  const int64_t small = steps(1 << 14), large = steps(1 << 18);
  EXPECT_GT(small, 1 << 14);
  EXPECT_LE(large, 16 * small + 4096) << "16 times the text took "
                                      << static_cast<double>(large) / static_cast<double>(small)
                                      << " times the steps: " << small << ", " << large;
}

TEST(MergePairs, StepsOfAPatternGrowWithItsLength) {
  MergeTable merges;
  merges.Add(0, 1, {0, 2});
  for (TokenId id = 2; id < 20; ++id) merges.Add(id, id, {id, id + 1});
  const auto steps = [&](size_t size) {
    std::vector<TokenId> text(size, 0);
    for (size_t i = 1; i < size; i += 2) text[i] = 1;
    return MergePairs(merges, &text);
  };
  EXPECT_LE(steps(1 << 18), 16 * steps(1 << 14) + 4096);
}

TEST(MergePairs, AStoppedRunEndsAtTheNextCheck) {
  const std::atomic<bool> flag{true};
  const MergeTable merges = Doubling(16);
  std::vector<TokenId> run(1 << 20, 0);
  EXPECT_LT(MergePairs(merges, &run, StopToken(&flag)), 10000) << "steps after the stop";
}

TEST(MergeByRank, AStopDuringTheMergesEndsThem) {
  std::atomic<bool> flag{false};
  int merges = 0;
  std::vector<RankedLink> links;
  MergeByRank(
      1 << 16, StopToken(&flag), [](int32_t, int32_t) { return 0; },
      [&](int32_t, int32_t) { flag.store(true), ++merges; }, &links);
  EXPECT_GE(merges, 1);
  EXPECT_LE(merges, 4096) << "merges after the first one, which set the stop";
}

// Encode checks the stop at every stage: the flag is set before, so the result must be empty.
TEST(StoppedTokenizer, ReturnsNothing) {
  const std::atomic<bool> flag{true};
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm", "llama2", "llama2_first", "kinds/t5", "kinds/gemma",
                           "kinds/unigram_fallback", "kinds/falcon"}) {
    const auto tokenizer = FromJson(name);
    EXPECT_TRUE(tokenizer->Encode(std::string(1 << 20, ' '), true, true, StopToken(&flag)).empty()) << name;
  }
}

// Work that grows with the square of the text would not end here.
TEST(LongText, EveryKindOfTokenizerEncodesAndDecodesIt) {
  for (const char* name : {"t5", "albert", "unigram_fallback", "gemma_across_words", "bert", "words_nfkc", "word_ends",
                           "o200k", "falcon", "scripts"}) {
    const auto tokenizer = FromJson(std::string("kinds/") + name);
    ASSERT_NE(tokenizer, nullptr) << name;
    for (const char* unit :
         {"a", " ", "1", "\n", "'", "aB", "\u00E9", "\u0301\u0316", "\u65E5", "\u2581", " a", "e\u0301"}) {
      std::string text;
      while (text.size() < 100'000) text += unit;
      const std::vector<TokenId> ids = tokenizer->Encode(text, true, true);
      EXPECT_TRUE(Streamed(*tokenizer, ids, true) == tokenizer->Decode(ids, true)) << name << " " << unit;
    }
  }
}

// --- Split patterns

// Number of pattern items that a split of `text` tries. Callouts before every item disable optimisations: an upper
// bound.
int64_t SplitSteps(const std::string& pattern, const std::string& text) {
  const auto rewritten = RewritePattern(pattern);
  EXPECT_TRUE(rewritten.ok());
  int error = 0;
  size_t place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT, &error, &place, nullptr);
  EXPECT_NE(code, nullptr);
  if (code == nullptr) return 0;
  int64_t steps = 0;
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_set_callout(
      context, [](pcre2_callout_block*, void* count) { return ++*static_cast<int64_t*>(count), 0; }, &steps);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t from = 0; from < text.size();) {
    if (pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context) < 0) break;
    const size_t end = pcre2_get_ovector_pointer(data)[1];
    from = std::max(end, from + 1);
  }
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  pcre2_code_free(code);
  return steps;
}

TEST(SplitPatterns, StepsGrowWithTheTextOnRunsOfAnything) {
  const auto repeat = [](const std::string& text, size_t times) {
    std::string out;
    for (size_t k = 0; k < times; ++k) out += text;
    return out;
  };
  const char* units[] = {" ",  "\n", " \n",      "\t ",          "a",        "1",     "!", "'", "'s", "a1",
                         " a", " !", "\xC3\xA9", "\xE4\xB8\xAD", "\xCC\x81", "\r\n  "};
  std::set<std::string> patterns;
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "seed-coder", "bailingmoe",
                           "exaone-moe", "bloom", "deepseek-v3", "deepseek-coder", "falcon"}) {
    TokenizerSpec spec;
    ASSERT_TRUE(ApplyPreTokenizerName(name, &spec).ok()) << name;
    for (const PreTokenizerStep& step : spec.pre_tokenizers) {
      if (step.pattern.is_regex) patterns.insert(step.pattern.text);
    }
  }
  EXPECT_GT(patterns.size(), 15u);
  for (const std::string& pattern : patterns) {
    for (const char* unit : units) {
      for (const char* end : {"", "x", "\n", "!"}) {
        const int64_t small = SplitSteps(pattern, repeat(unit, 1000) + end),
                      large = SplitSteps(pattern, repeat(unit, 8000) + end);
        EXPECT_LE(large, 9 * small + 1000)
            << pattern << " on '" << unit << "' before '" << end << "': " << small << ", " << large;
      }
    }
  }
}

// --- Bounds from bytes

TEST(LeastTokens, IsNeverAboveEncodesCount) {
  const std::string pieces[] = {" ",
                                "  ",
                                "\n",
                                "\t",
                                "a",
                                "the",
                                "The quick",
                                "1",
                                "2024",
                                "!",
                                "...",
                                "<|im_start|>",
                                "<s>",
                                "</s>",
                                "<|endoftext|>",
                                "\xC3\xA9",
                                "e\xCC\x81",
                                "\xE4\xB8\xAD",
                                "\xF0\x9F\x99\x82",
                                "\xE2\x96\x81",
                                "\xE1\xBE\xBE\xCC\x88\xCC\x81",
                                "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                "\xE2\x84\xAA",
                                "\x80",
                                "\xF0\x9F"};
  size_t bounded = 0;
  for (const char* name : {"gpt2",
                           "gpt2_prefix",
                           "llama2",
                           "llama2_always",
                           "llama2_first",
                           "llama3",
                           "qwen2",
                           "smollm",
                           "kinds/o200k",
                           "kinds/gemma",
                           "kinds/tekken",
                           "kinds/t5",
                           "kinds/bert",
                           "kinds/unigram_fallback",
                           "kinds/neox",
                           "kinds/split_removed",
                           "kinds/scripts",
                           "kinds/metaspace_never",
                           "kinds/word_ends",
                           "kinds/albert"}) {
    const auto tokenizer = FromJson(name);
    for (uint32_t seed = 0; seed < 200; ++seed) {
      Draw draw(seed);
      std::string text;
      const uint32_t one = draw(2) == 0 ? draw(std::size(pieces)) : std::size(pieces);  // runs, and mixtures
      for (uint32_t k = draw(60); k > 0; --k) text += pieces[one < std::size(pieces) ? one : draw(std::size(pieces))];
      const auto count = static_cast<int64_t>(tokenizer->Encode(text, false, true).size());
      ASSERT_LE(tokenizer->LeastTokens(text), count) << name << ": " << text;
      bounded += tokenizer->LeastTokens(text) > 0;
    }
  }
  EXPECT_GT(bounded, 200u) << "no tokenizer here has a bound";
}

TokenizerSpec Letters() {
  TokenizerSpec spec;
  AddByteLevel(&spec);
  spec.tokens = {"a", "b", "ab", "abab", "<x>"};
  spec.merges = {{"a", "b"}, {"ab", "ab"}};
  spec.unk_id = 4;
  return spec;
}

TEST(LeastTokens, CountsByTheLongestToken) {
  const std::string text(4000, 'a');
  EXPECT_EQ(MustMake(Letters())->LeastTokens(text), 1000);
  EXPECT_EQ(MustMake(Letters())->LeastTokens(""), 0);
  EXPECT_EQ(MustMake(Letters())->LeastTokens("aaaaa"), 2) << "rounded up";
  TokenizerSpec spec = Letters();
  spec.normalizers = {{.kind = NormalizerStep::Kind::kNfc}};
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 250) << "normalising may shrink it to a quarter";
  spec = Letters();
  spec.added = {{"<longest>", 4, true, false, false, false, false}};
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 400) << "an added token of 9 bytes, and a dummy prefix";
}

TEST(LeastTokens, CountsNoTextThatATokenMayConsume) {
  const std::string text = "aaaa" + std::string(4000, ' ');
  TokenizerSpec spec = Letters();
  spec.fuse_unknown = true;
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 0) << "one unknown token for any run of them";
  spec = Letters();
  spec.unk_id = -1;
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 0) << "unknown bytes are dropped";
  spec = Letters();
  spec.pre_tokenizers.insert(
      spec.pre_tokenizers.begin(),
      {.kind = PreTokenizerStep::Kind::kSplit, .pattern = {" "}, .behavior = SplitBehavior::kRemoved});
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 0) << "a split that drops its matches";
  for (const bool left : {false, true}) {
    spec = Letters();
    spec.added = {{"<x>", 4, true, left, !left, false, false}};
    EXPECT_EQ(MustMake(spec)->LeastTokens(text), 1) << "the added token beside it consumes white space";
    EXPECT_LE(MustMake(spec)->Encode("<x>" + std::string(4000, ' ') + "<x>", false, true).size(), 2u);
  }
  spec = Letters();
  spec.normalizers = {{.kind = NormalizerStep::Kind::kCollapseSpaces}};
  EXPECT_EQ(MustMake(spec)->LeastTokens(text), 1);
}

// --- White space consumed by added tokens

TEST(AddedTokens, RunsOfStrippingTokensEqualSingleOnes) {
  // "  " consumes the white space after it: every later pair within it ends where it ends.
  TokenizerSpec spec = Letters();
  spec.added = {{"  ", 4, false, false, true, false, false}};
  const auto tokenizer = MustMake(spec);
  EXPECT_EQ(tokenizer->Encode("ab      ab", false, true), (std::vector<TokenId>{2, 4, 4, 4, 2}));
}

}  // namespace
}  // namespace tactus::language
