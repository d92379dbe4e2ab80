#include "base/csv.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> cells = {"left over"};
  SplitCells(line, &cells);
  return cells;
}

TEST(Csv, EveryCommaEndsACell) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(Cells("a,b c,"), (Views{"a", "b c", ""}));
  EXPECT_EQ(Cells(",a"), (Views{"", "a"}));
  EXPECT_EQ(Cells(","), (Views{"", ""}));
  EXPECT_EQ(Cells("a"), (Views{"a"}));
  EXPECT_EQ(Cells(""), (Views{""}));
}

TEST(Csv, LinesAreTakenOneByOneAndTheLastNeedsNoEnd) {
  std::string_view text = "a\n\nb\r\nc";
  EXPECT_EQ(TakeLine(&text), "a");
  EXPECT_EQ(TakeLine(&text), "");
  EXPECT_EQ(TakeLine(&text), "b\r");
  EXPECT_EQ(TakeLine(&text), "c");
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(TakeLine(&text), "");
  text = "a\n";
  TakeLine(&text);
  EXPECT_TRUE(text.empty()) << "a final line break begins no further line";
}

TEST(Csv, BlanksAtTheEndsAreTrimmed) {
  EXPECT_EQ(Trimmed(" \ta b\r"), "a b");
  EXPECT_EQ(Trimmed("a"), "a");
  EXPECT_EQ(Trimmed(" \r\t"), "");
  EXPECT_EQ(Trimmed(""), "");
}

}  // namespace
}  // namespace tactus
