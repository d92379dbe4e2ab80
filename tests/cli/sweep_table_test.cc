// A sweep's table: its file, resuming from it, and files that it rejects.
#include "cli/search/sweep_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tactus::cli {
namespace {

using Row = SweepTable::Row;

class SweepTableTest : public testing::Test {
 protected:
  SweepTableTest()
      : path_((std::filesystem::path(testing::TempDir()) /
               (std::string("sweep_") + testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv"))
                  .string()) {
    std::filesystem::remove(path_);
  }
  ~SweepTableTest() override { std::filesystem::remove(path_); }
  Result<SweepTable> Open(const std::string& base = "b1",
                          std::vector<std::string> columns = {"rate", "seed", "goodput", "error", "base"}) {
    return SweepTable::Open(path_, std::move(columns), 2, base);
  }
  std::string Text() const {
    std::ifstream in(path_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  const std::string path_;
};

TEST_F(SweepTableTest, RowsAreWrittenAtOnceAndSortedAtTheEnd) {
  auto table = Open();
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_TRUE(table->Add({"2", "0", "1.5", "", "b1"}).ok());
  EXPECT_EQ(Text(), "rate,seed,goodput,error,base\n2,0,1.5,,b1\n");
  ASSERT_TRUE(table->Add({"1", "0", "0.5", "", "b1"}).ok());
  ASSERT_TRUE(table->Finish({{"1", "0"}, {"2", "0"}}).ok());
  EXPECT_EQ(Text(), "rate,seed,goodput,error,base\n1,0,0.5,,b1\n2,0,1.5,,b1\n");
}

TEST_F(SweepTableTest, ResumesFromItsRowsAndRerunsAnIncompleteOne) {
  {
    auto table = Open();
    ASSERT_TRUE(table->Add({"1", "0", "0.5", "", "b1"}).ok());
  }
  std::ofstream(path_, std::ios::app) << "2,0,0.";
  auto table = Open();
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_NE(table->Find({"1", "0"}), nullptr);
  EXPECT_EQ(table->Find({"2", "0"}), nullptr);
  ASSERT_TRUE(table->Add({"2", "0", "0.7", "", "b1"}).ok());
  EXPECT_EQ(Text(), "rate,seed,goodput,error,base\n1,0,0.5,,b1\n2,0,0.7,,b1\n");
}

TEST_F(SweepTableTest, KeepsRowsOfOtherRuns) {
  auto table = Open();
  ASSERT_TRUE(table->Add({"9", "0", "9.5", "", "b1"}).ok());
  ASSERT_TRUE(table->Add({"1", "0", "0.5", "", "b1"}).ok());
  ASSERT_TRUE(table->Finish({{"1", "0"}}).ok());
  EXPECT_EQ(Text(), "rate,seed,goodput,error,base\n1,0,0.5,,b1\n9,0,9.5,,b1\n");
}

TEST_F(SweepTableTest, RefusesAFileOfAnotherSweep) {
  std::ofstream(path_) << "rate,seed,throughput,error,base\n";
  auto table = Open();
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.status().message().find("column 3 is 'throughput', here 'goodput'"), std::string::npos)
      << table.status().message();
  std::ofstream(path_) << "rate,seed,goodput,error,base\n1,0,0.5,,other\n";
  EXPECT_NE(Open().status().message().find("line 2: it belongs to a sweep with other options"), std::string::npos);
  std::ofstream(path_) << "rate,seed,goodput,error,base\n1,0\n";
  EXPECT_NE(Open().status().message().find("2 cells instead of 5"), std::string::npos);
  EXPECT_NE(SweepTable::Open("/dev/null", {"a", "base"}, 1, "b").status().message().find("not a regular file"),
            std::string::npos);
}

TEST_F(SweepTableTest, ACellThatIsNotANumberIsRejected) {
  std::ofstream(path_) << "rate,seed,goodput,error,base\n1,0,,why not,b1\n2,0,abc,,b1\n";
  EXPECT_NE(Open().status().message().find("line 3: column goodput is 'abc', which is not a number"), std::string::npos)
      << Open().status().message();
}

TEST_F(SweepTableTest, ResumesFromAFileSavedByASpreadsheet) {
  std::ofstream(path_) << "\xef\xbb\xbfrate,seed,goodput,error,base\r\n1,0,0.5,,b1\r\n";
  auto table = Open();
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_NE(table->Find({"1", "0"}), nullptr);
  EXPECT_EQ(Text(), "rate,seed,goodput,error,base\n1,0,0.5,,b1\n");
}

TEST_F(SweepTableTest, TwoSweepsCannotShareAFile) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = Open();
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("another sweep is writing to it"), std::string::npos);
  ASSERT_TRUE(first->Finish({}).ok());
  EXPECT_TRUE(Open().ok());
}

TEST_F(SweepTableTest, CellsContainNoCsvSpecialCharacters) {
  EXPECT_EQ(SweepTable::Cell("random:in=5,out=6 \"x\"\n"), "random:in=5;out=6 'x'_");
  auto table = Open();
  ASSERT_TRUE(table->Add({"a,b", "0", "1", "no, \"really\"", "b1"}).ok());
  EXPECT_NE(table->Find({"a,b", "0"}), nullptr);
  ASSERT_TRUE(table->Finish({}).ok());
  auto again = Open();
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_NE(again->Find({"a,b", "0"}), nullptr);
}

}  // namespace
}  // namespace tactus::cli
