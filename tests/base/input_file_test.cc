#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace tactus {
namespace {

namespace fs = std::filesystem;

class InputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("input_file_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string Pipe() const {
    const std::string path = (folder_ / "pipe").string();
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  fs::path folder_;
};

TEST_F(InputFileTest, AFileOfExactlyTheLimitIsReadAndOneByteMoreIsNot) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{200'000}}) {
    const std::string path = Write("f", std::string(size, 'x'));
    auto text = ReadInputFile(path, static_cast<int64_t>(size));
    ASSERT_TRUE(text.ok()) << size << ": " << text.status().message();
    EXPECT_EQ(text->size(), size);
    if (size == 0) continue;
    text = ReadInputFile(path, static_cast<int64_t>(size) - 1);
    ASSERT_EQ(text.status().code(), StatusCode::kTooLarge) << size;
    EXPECT_NE(text.status().message().find(path), std::string::npos);
    EXPECT_NE(text.status().message().find(std::to_string(size - 1)), std::string::npos) << text.status().message();
  }
}

// A successful call does not reset the errno of an earlier failure.
TEST_F(InputFileTest, AnEarlierErrnoIsIgnored) {
  auto file = InputFile::Open(Write("f", "text"), 100);
  ASSERT_TRUE(file.ok()) << file.status().message();
  errno = EINTR;
  const auto text = file->ReadAll();
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "text");
}

TEST_F(InputFileTest, ADeviceWithoutAnEndIsRefusedAtTheLimit) {
  EXPECT_EQ(ReadInputFile("/dev/zero", 1 << 20).status().code(), StatusCode::kTooLarge);
  auto file = InputFile::Open("/dev/zero", int64_t{1} << 40);
  ASSERT_TRUE(file.ok());
  std::string line;
  const auto read = file->ReadLine(&line, 1 << 20);
  ASSERT_EQ(read.status().code(), StatusCode::kTooLarge);
  EXPECT_NE(read.status().message().find("line 1"), std::string::npos) << read.status().message();
  EXPECT_NE(read.status().message().find("1048576"), std::string::npos) << read.status().message();
}

TEST_F(InputFileTest, MissingFilesAndFoldersAreNamed) {
  const std::string missing = (folder_ / "missing").string();
  EXPECT_EQ(ReadInputFile(missing, 10).status().code(), StatusCode::kNotFound);
  EXPECT_NE(ReadInputFile(missing, 10).status().message().find(missing), std::string::npos);
  EXPECT_EQ(ReadInputFile(folder_.string(), 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ReadInputFile(folder_.string(), 10).status().message().find("a folder"), std::string::npos);
}

TEST_F(InputFileTest, APipeIsReadToItsEndAndTimesOutWithoutAWriter) {
  const std::string path = Pipe();
  const auto silent = ReadInputFile(path, 10, 30);
  ASSERT_EQ(silent.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(silent.status().message().find(path), std::string::npos) << silent.status().message();
  std::thread writer([&] { std::ofstream(path) << std::string(100'000, 'y'); });
  const auto text = ReadInputFile(path, 1 << 20);
  writer.join();
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->size(), 100'000u);
}

TEST_F(InputFileTest, LinesAreCutAtTheirEndsOnly) {
  const std::string longest(70'000, 'z');
  auto file = InputFile::Open(Write("lines", "a\n\n" + longest + "\r\nlast"), 1 << 20);
  ASSERT_TRUE(file.ok());
  std::vector<std::string> lines;
  for (std::string line; file->ReadLine(&line, 70'001).value();) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "", longest + "\r", "last"}));
  auto tight = InputFile::Open((folder_ / "lines").string(), 1 << 20);
  std::string line;
  ASSERT_TRUE(tight->ReadLine(&line, 70'000).value() && tight->ReadLine(&line, 70'000).value());
  EXPECT_NE(tight->ReadLine(&line, 70'000).status().message().find("line 3"), std::string::npos);
  auto ended = InputFile::Open(Write("ended", "a\n"), 1 << 20);
  EXPECT_TRUE(ended->ReadLine(&line, 10).value());
  EXPECT_FALSE(ended->ReadLine(&line, 10).value());
}

}  // namespace
}  // namespace tactus
