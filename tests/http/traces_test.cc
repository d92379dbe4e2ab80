#include "http/traces.h"

#include <gtest/gtest.h>

#include <set>

namespace tactus::http {
namespace {

TraceContext Of(const std::string& traceparent) {
  HttpRequest request;
  request.headers.emplace_back("Traceparent", traceparent);
  return BeginTrace(request);
}

const std::string kTrace = "0af7651916cd43dd8448eb211c80319c", kSpan = "b7ad6b7169203331";

TEST(TraceContextTest, AValidHeaderIsContinued) {
  const TraceContext context = Of("00-" + kTrace + "-" + kSpan + "-01");
  EXPECT_EQ(context.trace.high, 0x0af7651916cd43ddu);
  EXPECT_EQ(context.trace.low, 0x8448eb211c80319cu);
  EXPECT_EQ(context.parent, 0xb7ad6b7169203331u);
  EXPECT_NE(context.span, context.parent);
  EXPECT_TRUE(context.sampled);
  EXPECT_FALSE(Of("00-" + kTrace + "-" + kSpan + "-00").sampled);
  EXPECT_TRUE(Of("00-" + kTrace + "-" + kSpan + "-03").sampled) << "only the lowest flag counts";
  EXPECT_EQ(Of("cc-" + kTrace + "-" + kSpan + "-01-more").parent, context.parent) << "a later version has more fields";
}

TEST(TraceContextTest, AnInvalidHeaderBeginsATrace) {
  const std::string zeros(32, '0');
  std::set<uint64_t> traces;
  for (const std::string& bad : {std::string(), "00-" + kTrace + "-" + kSpan, "00-" + kTrace + "-" + kSpan + "-01-more",
                                 "00-" + zeros + "-" + kSpan + "-01", "00-" + kTrace + "-" + zeros.substr(16) + "-01",
                                 "ff-" + kTrace + "-" + kSpan + "-01", "00-" + kTrace + "-" + kSpan + "-0x",
                                 "0g-" + kTrace + "-" + kSpan + "-01", "00_" + kTrace + "-" + kSpan + "-01",
                                 "00-0AF7651916CD43DD8448EB211C80319C-" + kSpan + "-01"}) {
    const TraceContext context = Of(bad);
    EXPECT_EQ(context.parent, 0u) << bad;
    EXPECT_TRUE(context.sampled) << bad;
    EXPECT_NE(context.span, 0u) << bad;
    traces.insert(context.trace.low);
  }
  EXPECT_EQ(traces.size(), 10u) << "two traces have one id";
}

TEST(TraceContextTest, TheHeaderOfAChildNamesItsSpan) {
  const TraceContext parent = Of("00-" + kTrace + "-" + kSpan + "-01"), child = ChildOf(parent);
  EXPECT_EQ(child.parent, parent.span);
  const TraceContext next = Of(TraceParentText(child));
  EXPECT_EQ(next.trace, parent.trace);
  EXPECT_EQ(next.parent, child.span);
  EXPECT_EQ(TraceParentText(Of("00-" + kTrace + "-" + kSpan + "-00")).substr(52), "-00");
}

}  // namespace
}  // namespace tactus::http
