// Error texts of invalid JSON.
#include "base/json_text.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "compute/exec/allocation_count.h"

namespace tactus {
namespace {

std::string Complaint(const std::string& text) {
  const auto parsed = json_text::ParseJson(text, {});
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.status().message();
}

TEST(JsonText, ErrorsHaveThePlaceAndNoInput) {
  EXPECT_EQ(Complaint("{\"a\": 1e999}"), "invalid JSON at line 1, column 11: number overflow parsing");
  const std::string cut = Complaint("[1,\n 2,");
  EXPECT_EQ(cut.find("invalid JSON at line 2, column "), 0u) << cut;
  const std::string bad = Complaint("{\"a\": \"\x01 secret\"}");
  EXPECT_EQ(bad.find("secret"), std::string::npos) << bad;
  EXPECT_NE(bad.find("control character"), std::string::npos) << bad;
}

// Without memory an allocation throws, and an exception from a destructor ends the process.
TEST(JsonText, AValueIsDestroyedWithoutAnAllocation) {
  if (test::AllocationCount() < 0) GTEST_SKIP() << "sanitizers replace operator new";
  const std::string text =
      R"({"list": [1, [2, ["three", {"four": [[], {}, null, 5.5]}]]], "text": "longer than a short string is"})";
  auto ordered = json_text::ParseJson(text);
  auto sorted = json_text::ParseSortedJson(text);
  ASSERT_TRUE(ordered.ok() && sorted.ok());
  auto* first = new Json(std::move(*ordered));
  auto* second = new SortedJson(std::move(*sorted));
  const int64_t before = test::AllocationCount();
  delete first;
  delete second;
  EXPECT_EQ(test::AllocationCount() - before, 0);
}

TEST(JsonText, ANulByteIsRefused) {
  for (const size_t behind : {0u, 5u}) {
    std::string text = "{\"a\":\n1}";
    text += '\0';
    text.append(behind, 'x');
    EXPECT_EQ(Complaint(text), "invalid JSON at line 2, column 3: a NUL byte");
    EXPECT_FALSE(json_text::ParseSortedJson(text).ok());
  }
  EXPECT_EQ(Complaint(std::string(1, '\0')), "invalid JSON at line 1, column 1: a NUL byte");
}

TEST(JsonText, SortedValuesHaveADepthLimit) {
  const auto nested = [](int levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_TRUE(json_text::ParseSortedJson(nested(64)).ok());
  for (const std::string& text : {nested(65), std::string(1'000'000, '['), "[\"\\\"]\"," + nested(64) + "]"}) {
    const auto read = json_text::ParseSortedJson(text);
    ASSERT_FALSE(read.ok()) << text.substr(0, 100);
    EXPECT_EQ(read.status().message(), "invalid JSON: nested deeper than 64 levels, the limit");
  }
  EXPECT_TRUE(json_text::ParseSortedJson("[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"]").ok())
      << "brackets in strings nest nothing";
  EXPECT_EQ(json_text::ParseSortedJson("[1,").status().message(), "invalid JSON");
}

}  // namespace
}  // namespace tactus
