#include "base/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tactus {
namespace {

namespace fs = std::filesystem;

class OutputFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "output_file";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Text(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  fs::path folder_;
};

TEST_F(OutputFile, TheCheckLeavesNothingBehindAndNothingChanged) {
  EXPECT_TRUE(CheckWritable(Path("new.json"), "output").ok());
  EXPECT_FALSE(fs::exists(Path("new.json")));
  std::ofstream(Path("old.json")) << "old";
  EXPECT_TRUE(CheckWritable(Path("old.json"), "output").ok());
  EXPECT_EQ(Text(Path("old.json")), "old");
}

TEST_F(OutputFile, UnwritablePathsAreNamed) {
  for (const std::string& path : {folder_.string(), std::string("/proc/nothing/here.json")}) {
    const Status status = CheckWritable(path, "output");
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << path;
    EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
  }
}

TEST_F(OutputFile, AFileIsReplacedThroughItsLinkAndNothingElseIsLeft) {
  std::ofstream(Path("real.csv")) << "old";
  fs::create_symlink("real.csv", Path("link.csv"));
  ASSERT_TRUE(ReplaceFile(Path("link.csv"), "new", "output").ok());
  EXPECT_EQ(Text(Path("real.csv")), "new");
  EXPECT_TRUE(fs::is_symlink(Path("link.csv")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(OutputFile, AReplacedFileKeepsItsPermissions) {
  std::ofstream(Path("mine.csv")) << "old";
  const auto rights = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(Path("mine.csv"), rights);
  ASSERT_TRUE(ReplaceFile(Path("mine.csv"), "new", "output").ok());
  EXPECT_EQ(fs::status(Path("mine.csv")).permissions(), rights);
}

TEST_F(OutputFile, TwoOutputsInOneFileAreRefused) {
  fs::create_directories(folder_ / "a");
  const Status one = CheckApart({{"csv", Path("a/x")}, {"output", Path("a/../a/x")}});
  EXPECT_EQ(one.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(one.message().find("--csv and --output are one file"), std::string::npos) << one.message();
  EXPECT_TRUE(CheckApart({{"csv", Path("x")}, {"output", Path("y")}, {"trace-out", ""}, {"steps-out", ""}}).ok());
  EXPECT_TRUE(CheckApart({{"csv", "/dev/null"}, {"output", "/dev/null"}}).ok());
}

TEST_F(OutputFile, AnUncommittedReplacementChangesNothing) {
  std::ofstream(Path("trace.json")) << "old";
  {
    auto replacement = FileReplacement::Open(Path("trace.json"), "perfetto");
    ASSERT_TRUE(replacement.ok()) << replacement.status().message();
    std::fputs("half", replacement->file());
  }
  EXPECT_EQ(Text(Path("trace.json")), "old");
  {
    auto replacement = FileReplacement::Open(Path("trace.json"), "perfetto");
    ASSERT_TRUE(replacement.ok()) << replacement.status().message();
    std::fputs("new", replacement->file());
    EXPECT_TRUE(replacement->Commit().ok());
  }
  EXPECT_EQ(Text(Path("trace.json")), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_EQ(FileReplacement::Open("/proc/nothing/here", "perfetto").status().code(), StatusCode::kDataLoss);
}

// As a signal handler does before it ends the process.
TEST_F(OutputFile, UnfinishedFilesAreRemovedWithTheProcess) {
  ASSERT_TRUE(ReplaceFile(Path("trace.json"), "old", "output").ok());
  {
    auto replacement = FileReplacement::Open(Path("trace.json"), "perfetto");
    ASSERT_TRUE(replacement.ok()) << replacement.status().message();
    std::fputs("new", replacement->file());
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
    RemoveUnfinishedFiles();
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  }
  std::vector<std::unique_ptr<UnfinishedFile>> many;
  for (int i = 0; i < 40; ++i) many.push_back(std::make_unique<UnfinishedFile>(Path("none")));
  many.clear();
  const UnfinishedFile again(Path("trace.json"));
  RemoveUnfinishedFiles();
  EXPECT_FALSE(fs::exists(Path("trace.json"))) << "slots are freed";
}

TEST_F(OutputFile, AFullDeviceIsAnErrorAndStaysADevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(ReplaceFile("/dev/full", "text", "output").code(), StatusCode::kDataLoss);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace tactus
