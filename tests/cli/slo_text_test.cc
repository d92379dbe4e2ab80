#include "cli/slo_text.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(SloText, EveryPartAndAnyOrder) {
  const auto all = ParseSlo("jct=10s,ttft=500ms,tbt=100us");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->ttft_ns, 500 * kMillisecond);
  EXPECT_EQ(all->tbt_ns, 100'000);
  EXPECT_EQ(all->jct_ns, 10 * kSecond);
  const auto one = ParseSlo("tbt=2");
  EXPECT_EQ(one->tbt_ns, 2 * kSecond);
  EXPECT_EQ(one->ttft_ns, 0);
  EXPECT_EQ(one->jct_ns, 0);
  EXPECT_EQ(ParseSlo("")->ttft_ns, 0);
}

TEST(SloText, WhatIsNoObjectiveIsRefused) {
  for (const char* text :
       {"ttft", "ttft=", "ttft=0", "ttft=-1s", "x=1s", "ttft=1s tbt=2s", "=1s", ",", "ttft,tbt=1s"}) {
    const auto slo = ParseSlo(text);
    ASSERT_FALSE(slo.ok()) << text;
    EXPECT_NE(slo.status().message().find(text), std::string::npos);
    EXPECT_EQ(slo.status().param(), "slo");
  }
}

}  // namespace
}  // namespace tactus::cli
