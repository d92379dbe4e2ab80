#include "hub/file_names.h"

#include <gtest/gtest.h>

namespace tactus::hub {
namespace {

TEST(FileNames, SafePathsStayInTheirFolder) {
  for (const char* path : {"a", "a/b.json", "additional_chat_templates/tool use.jinja", "..a", "a..", ".hidden"})
    EXPECT_TRUE(IsSafePath(path)) << path;
  for (const char* path : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/..", "./a", "a\\b", "a\nb", "a\x7f"})
    EXPECT_FALSE(IsSafePath(path)) << path;
  EXPECT_FALSE(IsSafePath(std::string(300, 'a')));
  EXPECT_FALSE(IsSafePath(std::string("a\0b", 3)));
}

TEST(FileNames, FileOfAUrlIsDecodedAndHasNoQuery) {
  EXPECT_EQ(FileOfUrl("https://h/a/m%20x.gguf?download=true#y"), "m x.gguf");
  EXPECT_EQ(FileOfUrl("https://h/a/100%.gguf"), "100%.gguf");
  EXPECT_EQ(FileOfUrl("https://h/..%2fx"), "../x");  // IsSafePath allows it only below the folder
}

TEST(FileNames, QuotingKeepsPlainCharacters) {
  EXPECT_EQ(UrlQuoted("a b/c~1.x", true), "a%20b/c~1.x");
  EXPECT_EQ(UrlQuoted("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(UrlQuoted("\xc3\xa4?#", true), "%C3%A4%3F%23");
}

TEST(FileNames, HexHasExactlyTheDigits) {
  EXPECT_TRUE(IsHex("0123abCD", 8));
  EXPECT_FALSE(IsHex("0123abCD", 7));
  EXPECT_FALSE(IsHex("0123abCg", 8));
}

TEST(FileNames, SplitPartsHaveNumbers) {
  const auto split = SplitPartOf("Q4/m-00002-of-00003.gguf");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->stem, "Q4/m");
  EXPECT_EQ(split->part, 2);
  EXPECT_EQ(split->parts, 3);
  EXPECT_EQ(NameOfPart(*split, 1), "Q4/m-00001-of-00003.gguf");
  for (const char* name :
       {"m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-1-of-3.gguf", "m-00001-of-00003.bin",
        "m-0000x-of-00003.gguf", "m-00001_of_00003.gguf", "00001-of-00003.gguf"})
    EXPECT_FALSE(SplitPartOf(name).has_value()) << name;
}

}  // namespace
}  // namespace tactus::hub
