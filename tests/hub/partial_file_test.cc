#include "hub/partial_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = int64_t{1} << 20;

class PartialFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  PartialFile Open(int64_t bytes, int connections = 1) {
    auto file = PartialFile::Open(path_, bytes, connections);
    if (!file.ok()) throw std::runtime_error(file.status().message());
    return std::move(*file);
  }
  std::string Content(const std::string& path) const {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  const std::string folder_ = testing::TempDir() + "/partial", path_ = folder_ + "/a/file.tactus";
};

TEST_F(PartialFileTest, PiecesCoverTheFile) {
  for (const int64_t bytes : {int64_t{1}, kPiece, kPiece + 1, 5 * kPiece - 1, int64_t{200} << 20}) {
    PartialFile file = Open(bytes, 2);
    int64_t at = 0;
    for (const auto& piece : file.pieces()) {
      EXPECT_EQ(piece.begin, at);
      EXPECT_GT(piece.bytes, 0);
      at += piece.bytes;
    }
    EXPECT_EQ(at, bytes);
    EXPECT_GE(file.pieces()[0].bytes, std::min(bytes, kPiece));
    EXPECT_LE(file.pieces()[0].bytes, 64 * kPiece);
  }
  EXPECT_EQ(Open(int64_t{200} << 20, 2).pieces().size(), 16);
}

TEST_F(PartialFileTest, ARecordIsContinued) {
  const std::string data(kPiece, 'x');
  {
    PartialFile file = Open(3 * kPiece);
    file.set_validator("\"v\"");
    ASSERT_TRUE(file.Write(0, data).ok());
    ASSERT_TRUE(file.Write(2, "abc").ok());
    file.Save();
    ASSERT_TRUE(file.Write(2, "def").ok());  // not in the record
  }
  PartialFile file = Open(3 * kPiece, 8);
  EXPECT_TRUE(file.continued());
  EXPECT_EQ(file.validator(), "\"v\"");
  EXPECT_EQ(file.done(), kPiece + 3);
  EXPECT_EQ(file.Contiguous(), kPiece);
  EXPECT_FALSE(file.complete());
  char read[4] = "";
  EXPECT_EQ(*file.Read(2 * kPiece, read, 3), 3);
  EXPECT_STREQ(read, "abc");
}

TEST_F(PartialFileTest, ARecordOfAnotherSizeOrWithoutDataIsDropped) {
  const auto begin = [this] {
    PartialFile file = Open(2 * kPiece);
    ASSERT_TRUE(file.Write(0, "abc").ok());
    file.Save();
  };
  begin();
  EXPECT_FALSE(Open(2 * kPiece + 1).continued());
  begin();
  fs::resize_file(path_, kPiece);
  EXPECT_FALSE(Open(2 * kPiece).continued());
  begin();
  for (const char* record :
       {"", "{", "[]", R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": [3]})",
        R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": [3, 0, 0]})",
        R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": [1048577, 0]})",
        R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": [-1, 0]})",
        R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": ["3", 0]})",
        R"({"bytes": 2097152, "piece_bytes": 0, "validator": "", "done": [3, 0]})",
        R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": 5, "done": [3, 0]})"}) {
    std::ofstream(path_ + ".json") << record;
    PartialFile file = Open(2 * kPiece);
    EXPECT_FALSE(file.continued()) << record;
    EXPECT_EQ(file.done(), 0) << record;
    EXPECT_EQ(file.validator(), "") << record;
  }
  std::ofstream(path_ + ".json") << R"({"bytes": 2097152, "piece_bytes": 1048576, "validator": "", "done": [3, 0]})";
  EXPECT_TRUE(Open(2 * kPiece).continued());
}

TEST_F(PartialFileTest, ARestartIsOnePieceFromTheBeginning) {
  PartialFile file = Open(2 * kPiece);
  ASSERT_TRUE(file.Write(1, "abc").ok());
  file.Save();
  ASSERT_TRUE(file.Restart().ok());
  EXPECT_FALSE(fs::exists(path_ + ".json"));
  ASSERT_EQ(file.pieces().size(), 1);
  EXPECT_EQ(file.pieces()[0].bytes, 2 * kPiece);
  EXPECT_EQ(file.done(), 0);
  file.Save();
  EXPECT_FALSE(Open(2 * kPiece).continued());
}

TEST_F(PartialFileTest, MoreThanAPieceHasIsRefused) {
  PartialFile file = Open(2);
  EXPECT_EQ(file.Write(0, "abc").code(), StatusCode::kDataLoss);
  EXPECT_TRUE(file.Write(0, "ab").ok());
  EXPECT_TRUE(file.complete());
}

TEST_F(PartialFileTest, ACompleteFileGetsItsName) {
  const std::string path = folder_ + "/a/file";
  {
    PartialFile file = Open(5);
    ASSERT_TRUE(file.Write(0, "hello").ok());
    file.Save();
    ASSERT_TRUE(file.MoveTo(path).ok());
  }
  EXPECT_EQ(Content(path), "hello");
  EXPECT_FALSE(fs::exists(path_) || fs::exists(path_ + ".json"));
}

TEST_F(PartialFileTest, AFileOfUnknownSizeEndsWhereTheServerEnds) {
  PartialFile file = Open(-1);
  ASSERT_TRUE(file.Write(0, "hello").ok());
  EXPECT_FALSE(file.complete());
  EXPECT_EQ(file.Contiguous(), 5);
  file.Save();
  EXPECT_FALSE(fs::exists(path_ + ".json"));
  file.EndAt(5);
  EXPECT_TRUE(file.complete());
  EXPECT_EQ(file.bytes(), 5);
}

TEST_F(PartialFileTest, AnEmptyFileIsComplete) {
  EXPECT_TRUE(Open(0).complete());
}

}  // namespace
}  // namespace tactus::hub
