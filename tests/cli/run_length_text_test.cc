#include "cli/options/run_length_text.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(RunLengthText, ParsesATimeOrANumberOfRequests) {
  EXPECT_FALSE(ParseRunLength("warmup", "")->given());
  const auto time = ParseRunLength("warmup", "90s");
  EXPECT_EQ(time->ns, 90 * kSecond);
  EXPECT_EQ(time->requests, -1);
  EXPECT_EQ(ParseRunLength("warmup", "1.5m")->ns, 90 * kSecond);
  const auto requests = ParseRunLength("warmup", "90");
  EXPECT_EQ(requests->requests, 90);
  EXPECT_EQ(requests->ns, -1);
  EXPECT_EQ(ParseRunLength("warmup", "0")->requests, 0);
}

TEST(RunLengthText, RejectsOtherText) {
  for (const char* text : {"-1", "-1s", "1.5", "s", "1d", "10 20", "99999999999999999999", "inf", "nan"}) {
    const auto length = ParseRunLength("measure", text);
    ASSERT_FALSE(length.ok()) << text;
    EXPECT_NE(length.status().message().find(text), std::string::npos) << length.status().message();
    EXPECT_EQ(length.status().param(), "measure");
  }
}

}  // namespace
}  // namespace tactus::cli
