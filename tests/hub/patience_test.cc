// The waits between tries of a request.
#include <gtest/gtest.h>

#include "hub/transfers.h"

namespace tactus::hub {
namespace {

Answer Status503(const char* retry_after = nullptr) {
  Answer answer;
  answer.status = 503;
  if (retry_after != nullptr) answer.headers = {{"retry-after", retry_after}};
  return answer;
}

TEST(Patience, WaitsDoubleUntilSomethingArrives) {
  Settings settings;
  settings.tries = 4;
  Patience patience(settings);
  EXPECT_EQ(patience.Next(Status503()), kSecond / 2);
  EXPECT_EQ(patience.Next(Status503()), kSecond);
  patience.Reset();
  EXPECT_EQ(patience.Next(Status503()), kSecond / 2);
  EXPECT_EQ(patience.Next(Status503()), kSecond);
  EXPECT_EQ(patience.Next(Status503()), 2 * kSecond);
  EXPECT_EQ(patience.Next(Status503()), std::nullopt);  // the fourth try has failed
}

TEST(Patience, NoWaitIsLongerThanTheLongest) {
  Settings settings;
  settings.tries = 100;
  Patience patience(settings);
  for (int i = 0; i < 99; ++i) EXPECT_LE(*patience.Next(Status503()), settings.longest_wait_ns);
}

TEST(Patience, TheServersWaitIsKept) {
  const Settings settings;
  EXPECT_EQ(Patience(settings).Next(Status503("7")), 7 * kSecond);
  EXPECT_EQ(Patience(settings).Next(Status503("0")), 0);
  EXPECT_EQ(Patience(settings).Next(Status503("60")), 60 * kSecond);
  EXPECT_EQ(Patience(settings).Next(Status503("61")), std::nullopt);
  EXPECT_EQ(Patience(settings).Next(Status503("Wed, 21 Oct 2015 07:28:00 GMT")), kSecond / 2);
}

TEST(Patience, OnlyFaultsThatMayPassAreTriedAgain) {
  const Settings settings;
  Answer answer;
  for (const int status : {408, 429, 500, 502, 504}) {
    answer.status = status;
    EXPECT_TRUE(Patience(settings).Next(answer).has_value()) << status;
  }
  for (const int status : {400, 401, 403, 404, 410, 416}) {
    answer.status = status;
    EXPECT_FALSE(Patience(settings).Next(answer).has_value()) << status;
    EXPECT_TRUE(Patience(settings).Next(answer, true).has_value()) << status;
  }
  answer.status = 200;
  answer.error = "cut";
  EXPECT_TRUE(Patience(settings).Next(answer).has_value());
  answer.certificate = true;
  EXPECT_FALSE(Patience(settings).Next(answer).has_value());
}

TEST(Answer, SizesComeFromItsHead) {
  Answer answer;
  answer.status = 206;
  answer.headers = {{"content-range", "bytes 100-199/5000"}, {"content-length", "100"}};
  EXPECT_EQ(answer.TotalBytes(), 5000);
  EXPECT_EQ(answer.FirstByte(), 100);
  answer.headers[0].second = "bytes 100-199/*";
  EXPECT_EQ(answer.TotalBytes(), -1);
  answer = {};
  answer.status = 200;
  EXPECT_EQ(answer.TotalBytes(), -1);
  answer.headers = {{"content-length", "100"}};
  EXPECT_EQ(answer.TotalBytes(), 100);
  EXPECT_EQ(answer.FirstByte(), 0);
}

}  // namespace
}  // namespace tactus::hub
