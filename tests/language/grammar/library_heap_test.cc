#include "language/grammar/library_heap.h"

#include <gtest/gtest.h>

#include <memory>

#include "language/grammar/llg_vocabulary.h"
#include "language/grammar/llguidance.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/small_vocabulary.h"

namespace tactus::language {
namespace {

TEST(LibraryHeap, CountsALibrarysAllocationsAndFrees) {
  TACTUS_NEEDS_LLGUIDANCE();
  const auto llg = LoadLlguidance();
  const auto vocabulary = LlgVocabulary::Make(*llg, SmallVocabulary());
  ASSERT_TRUE(vocabulary.ok());
  std::vector<uint32_t> mask((*vocabulary)->mask_words());
  int64_t rule = 0, clone = 0;
  std::unique_ptr<Matcher> matcher, other;
  {
    const HeapCharge charge(&rule);
    matcher = Matcher::Of(*vocabulary, "json_schema", R"({"type": "integer", "multipleOf": 4999})");
    ASSERT_TRUE(matcher->FillMask(mask.data(), mask.size()));
    {
      const HeapCharge inner(&clone);  // the innermost charge counts
      other = matcher->Clone();
    }
  }
  EXPECT_GT(rule, 500'000);  // a state for each remainder
  EXPECT_GT(clone, 500'000);
  const int64_t before = rule;
  matcher->Clone().reset();  // no charge is active
  EXPECT_EQ(rule, before);
  {
    const HeapCharge charge(&clone);
    other.reset();
  }
  EXPECT_EQ(clone, 0);
}

TEST(LibraryHeap, AFunctionOfNoLibraryIsNotCounted) {
  int local = 0;
  EXPECT_FALSE(CountHeapOf(&local));
}

}  // namespace
}  // namespace tactus::language
