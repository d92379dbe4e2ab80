#include "http/server_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/json_text.h"
#include "support/temp_folder.h"

namespace tactus::http {
namespace {

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ServerLog, LevelsAndFormats) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/log";
  const auto log = ServerLog::Open({.log_level = "warning", .log_format = "json", .log_file = path});
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  EXPECT_FALSE((*log)->shows(LogLevel::kInfo));
  (*log)->Line("a fact");
  (*log)->Line("warning: \"quoted\"\nand a second line");
  (*log)->Line("error: broken");
  std::istringstream lines(TextOf(path));
  std::vector<std::pair<std::string, std::string>> said;
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = json_text::ParseJson(line);
    ASSERT_TRUE(parsed.ok()) << line;
    said.emplace_back(json_text::TextOf(*parsed, "level"), json_text::TextOf(*parsed, "message"));
  }
  EXPECT_EQ(said, (std::vector<std::pair<std::string, std::string>>{{"warning", "\"quoted\"\nand a second line"},
                                                                    {"error", "broken"}}));
}

TEST(ServerLog, ALineOfTextStaysOneLine) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/log";
  const auto log = ServerLog::Open({.log_level = "info", .log_format = "text", .log_file = path});
  (*log)->Line("one\ntwo");
  const std::string text = TextOf(path);
  EXPECT_TRUE(text.ends_with("Z info    one two\n")) << text;
}

TEST(ServerLog, ReopenContinuesInTheFileOfTheName) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/log";
  const auto log = ServerLog::Open({.log_level = "info", .log_format = "text", .log_file = path});
  (*log)->Line("first");
  ASSERT_EQ(rename(path.c_str(), (path + ".1").c_str()), 0);
  ASSERT_TRUE((*log)->Reopen().ok());
  (*log)->Line("second");
  EXPECT_EQ(TextOf(path).find("first"), std::string::npos);
  EXPECT_NE(TextOf(path).find("second"), std::string::npos);
  EXPECT_EQ(TextOf(path + ".1").find("second"), std::string::npos);
  EXPECT_EQ(ServerLog::Open({.log_level = "info", .log_format = "text", .log_file = folder.path() + "/no/log"})
                .status()
                .param(),
            "log-file");
}

TEST(ServerLog, AReaderThatStopsLosesLinesAndDelaysNoCaller) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  std::string text;
  {
    auto log = ServerLog::Open({.log_level = "info", .log_format = "text", .log_file = path});
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    const std::string line(1000, 'x');
    for (int i = 0; i < 4000; ++i) (*log)->WriteLater(LogLevel::kInfo, line, "");  // 4 MB, before anything is read
    std::thread end([&log] { log->reset(); });
    std::array<char, 65536> piece;
    fcntl(reader, F_SETFL, 0);
    for (ssize_t size = 0; (size = read(reader, piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<size_t>(size));
    end.join();
  }
  close(reader);
  EXPECT_NE(text.find("lines of the access log were lost"), std::string::npos);
  EXPECT_GT(text.size(), size_t{1} << 19) << "what fits into the queue is written";
  EXPECT_LT(text.size(), size_t{3} << 20);
}

}  // namespace
}  // namespace tactus::http
