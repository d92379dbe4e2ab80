// Lines of an input of any length, split at any place by the pieces in which it is read.
#include "offline/job/job_input.h"

#include <sys/resource.h>

#include "base/rng.h"
#include "offline/job/job_folder.h"

namespace tactus::offline {
namespace {

class JobInputTest : public JobFolder {
 protected:
  // (place, text) of each line; checks that each can be read again.
  std::vector<std::pair<LinePlace, std::string>> ScanAll(const std::string& text, int64_t most_bytes) {
    Write(files_.input, text);
    const auto input = JobInput::Open(files_.input);
    EXPECT_TRUE(input.ok()) << input.status().ToString();
    std::vector<std::pair<LinePlace, std::string>> lines;
    const auto scanned = (*input)->Scan(most_bytes,
                                        [&](LinePlace place, std::string_view line) {
                                          lines.emplace_back(place, line);
                                          return Status();
                                        },
                                        {});
    EXPECT_TRUE(scanned.ok());
    EXPECT_EQ(*scanned, *(*input)->Hash({})) << "one content, two hashes";
    for (const auto& [place, line] : lines) {
      const auto again = (*input)->Read(place);
      EXPECT_TRUE(again.ok());
      if (place.bytes <= most_bytes) {
        EXPECT_EQ(*again, line) << place.number;
      }
    }
    return lines;
  }
};

TEST_F(JobInputTest, ALineEndsWithItsLineFeedOrTheFile) {
  EXPECT_EQ(ScanAll("", 100).size(), 0u);
  EXPECT_EQ(ScanAll("a\n", 100).size(), 1u);
  const auto lines = ScanAll("a\n\nbc", 100);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].second, "");
  EXPECT_EQ(lines[2].second, "bc");
  EXPECT_EQ(lines[2].first.number, 3);
  EXPECT_EQ(lines[2].first.offset, 3);
}

TEST_F(JobInputTest, OnlyTheLengthOfALineBeyondTheLimitIsKept) {
  const auto lines = ScanAll("123\n1234\n12345\n1", 4);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].second, "1234") << "the longest";
  EXPECT_EQ(lines[2].second, "");
  EXPECT_EQ(lines[2].first.bytes, 5);
  EXPECT_EQ(lines[3].second, "1");
}

TEST_F(JobInputTest, PiecesEndAnywhereInALine) {
  Rng rng(5);
  std::string text;
  std::vector<std::string> expected;
  while (text.size() < (size_t{5} << 20)) {
    // Some lines end with a piece of 1 MiB, some just before or after it, some are longer than a piece.
    const auto to_end = static_cast<int64_t>((size_t{1} << 20) - text.size() % (size_t{1} << 20));
    const int64_t lengths[] = {
        to_end, to_end - 1, to_end + 1, rng.UniformInt(0, 1500), rng.UniformInt(0, 400000), (int64_t{1} << 20) + 5};
    const int64_t length = std::max<int64_t>(0, lengths[rng.UniformInt(0, 5)]);
    std::string line(static_cast<size_t>(length), static_cast<char>('a' + expected.size() % 26));
    text += line + "\n";
    expected.push_back(std::move(line));
  }
  const auto lines = ScanAll(text, int64_t{2} << 20);
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(lines[i].second == expected[i]) << i;
  const auto shorter = ScanAll(text, 1000);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(shorter[i].first.offset, lines[i].first.offset) << i;
    EXPECT_TRUE(shorter[i].second == (expected[i].size() <= 1000 ? expected[i] : "")) << i;
  }
}

TEST_F(JobInputTest, AGzippedFileHasTheLinesOfItsContent) {
  const unsigned char bytes[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x4b, 0xe4, 0xe2,
                                 0x4a, 0x4a, 0x06, 0x00, 0x95, 0xf5, 0x2a, 0x83, 0x05, 0x00, 0x00, 0x00};
  const std::string packed(reinterpret_cast<const char*>(bytes), sizeof(bytes));
  const auto lines = ScanAll(packed, 100);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].second, "bc");
  EXPECT_EQ(lines[2].first.offset, 3) << "of the content";
  const auto input = JobInput::Open(files_.input);
  EXPECT_EQ((*input)->bytes(), 5);
  EXPECT_FALSE((*input)->Changed());
  Append(files_.input, "x");
  EXPECT_TRUE((*input)->Changed()) << "the file itself";
  Write(files_.input, packed);
  EXPECT_NE(JobInput::Open(files_.input, {.most_bytes = 4}).status().message().find("exceeds the limit of 4 bytes"),
            std::string::npos);
  EXPECT_TRUE(JobInput::Open(files_.input, {.most_bytes = 5}).ok());
  EXPECT_EQ(JobInput::Open(files_.input, {}, [](int64_t) { return false; }).status().code(), StatusCode::kCancelled);
  Write(files_.input, packed.substr(0, packed.size() - 1));
  const Status cut = JobInput::Open(files_.input).status();
  EXPECT_EQ(cut.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(cut.message().find("is gzipped and cut off"), std::string::npos) << cut.message();
}

TEST_F(JobInputTest, AFileThatCannotBeReadAgainIsRefused) {
  EXPECT_EQ(JobInput::Open(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_NE(JobInput::Open("/dev/null").status().message().find("not a regular file"), std::string::npos);
  EXPECT_NE(JobInput::Open(folder_.string()).status().message().find("not a regular file"), std::string::npos);
}

TEST_F(JobInputTest, AFileThatCannotBeOpenedNowIsReportedAsUnavailable) {
  WriteInput(3);
  std::filesystem::create_symlink("loop", Path("loop"));
  EXPECT_EQ(JobInput::Open(Path("loop")).status().code(), StatusCode::kInvalidArgument);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  const Status status = JobInput::Open(files_.input).status();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_TRUE(JobInput::Open(files_.input).ok());
}

TEST_F(JobInputTest, AnInterruptEndsReading) {
  WriteInput(3);
  const auto input = JobInput::Open(files_.input);
  EXPECT_EQ((*input)->Hash([](int64_t) { return false; }).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace tactus::offline
