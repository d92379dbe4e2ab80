#include "hub/listed_models.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tactus::hub {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::vector<ListedModel> Rows() {
  auto rows = ParseListedModels("# comment\n\nm:1b 0 o/m Q2\nm:1b 4 o/m Q4\nm:1b 8 o/m Q8\nn 2 o/n Q4\n");
  EXPECT_TRUE(rows.ok());
  return *rows;
}

std::string Chosen(int64_t memory, const std::set<std::string>& cached = {}, const std::string& name = "m:1b") {
  const auto rows = Rows();
  const ListedModel* row =
      ChooseListed(rows, name, memory, [&](const RemoteName& r) { return cached.count(r.selector) > 0; });
  return row == nullptr ? "none" : row->remote.selector;
}

TEST(ListedModels, TheMostThatFitsIsChosen) {
  EXPECT_EQ(Chosen(kGiB), "Q2");
  EXPECT_EQ(Chosen(4 * kGiB), "Q4");
  EXPECT_EQ(Chosen(8 * kGiB - 1), "Q4");
  EXPECT_EQ(Chosen(-1), "Q8");
  EXPECT_EQ(Chosen(kGiB, {}, "n"), "Q4");  // none fits: the smallest
  EXPECT_EQ(Chosen(kGiB, {}, "m"), "none");
}

TEST(ListedModels, AModelInTheCacheGoesBeforeOthersThatFit) {
  EXPECT_EQ(Chosen(8 * kGiB, {"Q2"}), "Q2");
  EXPECT_EQ(Chosen(8 * kGiB, {"Q2", "Q4"}), "Q4");
  EXPECT_EQ(Chosen(kGiB, {"Q8"}), "Q2");  // does not fit
}

TEST(ListedModels, FaultyRowsNameTheirLine) {
  for (const char* text :
       {"# x\nm 1 o/m", "# x\nm x o/m Q4", "# x\nm -1 o/m Q4", "# x\nm 1 o//m Q4", "# x\nm 1 o/m Q4 y"}) {
    const auto rows = ParseListedModels(text);
    ASSERT_FALSE(rows.ok()) << text;
    EXPECT_NE(rows.status().message().find("line 2"), std::string::npos) << rows.status().message();
  }
}

TEST(ListedModels, EveryNameHasARowForSmallMachinesAndRisingMemory) {
  std::map<std::string, int64_t> last;
  for (const ListedModel& row : ListedModels()) {
    const auto it = last.find(row.name);
    if (it == last.end()) {
      EXPECT_EQ(row.memory_bytes, 0) << row.name;
    } else {
      EXPECT_GT(row.memory_bytes, it->second) << row.name;
    }
    last[row.name] = row.memory_bytes;
    EXPECT_NE(row.remote.repository.find('/'), std::string::npos) << row.name;
    EXPECT_FALSE(ParseRemoteName(row.name, "https://huggingface.co")->has_value()) << row.name;
  }
  EXPECT_EQ(ListedNames().size(), last.size());
  for (const char* name : {"qwen3:0.6b", "gemma3:270m", "qwen3"}) EXPECT_EQ(last.count(name), 1) << name;
}

}  // namespace
}  // namespace tactus::hub
