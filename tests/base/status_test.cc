#include "tactus/status.h"

#include <gtest/gtest.h>

#include <set>

#include "base/check.h"
#include "tactus/request.h"

namespace tactus {
namespace {

TEST(Status, TextHasCodeMessageAndOption) {
  EXPECT_EQ(Status().ToString(), "ok");
  EXPECT_EQ(Status(StatusCode::kNotFound, "no model").ToString(), "not found: no model");
  EXPECT_EQ(InvalidArgument("--tp 3 does not divide", "tp").ToString(),
            "invalid argument: --tp 3 does not divide (tp)");
}

TEST(Status, EveryCodeHasAName) {
  const std::pair<StatusCode, const char*> kNames[] = {{StatusCode::kOk, "ok"},
                                                       {StatusCode::kInvalidArgument, "invalid argument"},
                                                       {StatusCode::kUnauthenticated, "unauthenticated"},
                                                       {StatusCode::kNotFound, "not found"},
                                                       {StatusCode::kTooLarge, "too large"},
                                                       {StatusCode::kResourceExhausted, "resource exhausted"},
                                                       {StatusCode::kUnavailable, "unavailable"},
                                                       {StatusCode::kCancelled, "cancelled"},
                                                       {StatusCode::kDeadlineExceeded, "deadline exceeded"},
                                                       {StatusCode::kDataLoss, "data loss"},
                                                       {StatusCode::kUnimplemented, "unimplemented"},
                                                       {StatusCode::kInternal, "internal error"}};
  for (const auto& [code, name] : kNames) EXPECT_STREQ(StatusCodeName(code), name);
}

TEST(FinishReason, EveryReasonHasAName) {
  const std::pair<FinishReason, const char*> kNames[] = {{FinishReason::kNone, "none"},
                                                         {FinishReason::kStop, "stop"},
                                                         {FinishReason::kLength, "length"},
                                                         {FinishReason::kCancelled, "cancelled"},
                                                         {FinishReason::kError, "error"}};
  for (const auto& [reason, name] : kNames) EXPECT_STREQ(FinishReasonName(reason), name);
}

// A broken invariant reports the place, the expression and the caller's message; the hook is called first, once.
TEST(CheckDeathTest, ABrokenInvariantIsReportedAndStops) {
  EXPECT_DEATH(TACTUS_CHECK_MSG(1 + 1 == 3, "sums are off"),
               "status_test.cc:[0-9]+: broken invariant: 1 \\+ 1 == 3: sums are off");
  EXPECT_DEATH(TACTUS_CHECK(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3\n");
  EXPECT_DEATH(
      {
        SetCheckHook([](const std::string& report) { std::fprintf(stderr, "heard <%s>\n", report.c_str()); });
        TACTUS_CHECK_MSG(false, "twice");
      },
      "heard <.*status_test.cc:[0-9]+: broken invariant: false: twice>");
  EXPECT_EQ(SetCheckHook(nullptr), nullptr);
}

}  // namespace
}  // namespace tactus
