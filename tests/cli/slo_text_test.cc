#include "cli/options/slo_text.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(SloText, ObjectivesMayComeInAnyOrder) {
  const auto all = ParseSlo("jct=10s,ttft=500ms,tbt=100us");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->ttft_ns, 500 * kMillisecond);
  EXPECT_EQ(all->tbt_ns, 100'000);
  EXPECT_EQ(all->jct_ns, 10 * kSecond);
  const auto one = ParseSlo("tbt=2s");
  EXPECT_EQ(one->tbt_ns, 2 * kSecond);
  EXPECT_EQ(one->ttft_ns, 0);
  EXPECT_EQ(one->jct_ns, 0);
  EXPECT_EQ(ParseSlo("")->ttft_ns, 0);
}

TEST(SloText, ARepeatedObjectiveIsRejected) {
  EXPECT_EQ(ParseSlo("ttft=500ms,ttft=1s").status().message(),
            "--slo: 'ttft=500ms,ttft=1s': ttft is given twice; give it once");
  EXPECT_EQ(ParseSlo("tbt=1s,jct=2s,tbt=1s").status().message(),
            "--slo: 'tbt=1s,jct=2s,tbt=1s': tbt is given twice; give it once");
}

TEST(SloMixText, ParsesClassesSharesAndRanges) {
  const auto mix = ParseSloMix("chat:0.5:ttft=10x,tbt=140..234ms;batch:0.2:none;job:1:jct=2..3.5x,ttft=0.1s..2s");
  ASSERT_TRUE(mix.ok()) << mix.status().message();
  ASSERT_EQ(mix->classes.size(), 3u);
  const sim::SloClass &chat = mix->classes[0], &batch = mix->classes[1], &job = mix->classes[2];
  EXPECT_EQ(chat.name, "chat");
  EXPECT_EQ(chat.share, 0.5);
  EXPECT_TRUE(chat.ttft.times_alone && chat.ttft.low == 10 && chat.ttft.high == 10);
  EXPECT_TRUE(!chat.tbt.times_alone && chat.tbt.low == 140e6 && chat.tbt.high == 234e6) << "the left end also in ms";
  EXPECT_EQ(chat.jct.high, 0);
  EXPECT_EQ(batch.share, 0.2);
  EXPECT_EQ(batch.ttft.high + batch.tbt.high + batch.jct.high, 0);
  EXPECT_TRUE(job.jct.times_alone && job.jct.low == 2 && job.jct.high == 3.5);
  EXPECT_TRUE(!job.ttft.times_alone && job.ttft.low == 1e8 && job.ttft.high == 2e9);
  EXPECT_TRUE(mix->needs_latency_alone());
  EXPECT_FALSE(ParseSloMix("a:1:tbt=5ms")->needs_latency_alone());
  EXPECT_TRUE(ParseSloMix("")->classes.empty());
}

TEST(SloMixText, ClassesMayHaveNoShares) {
  const auto mix = ParseSloMix("chat:ttft=10x;code:none");
  ASSERT_TRUE(mix.ok()) << mix.status().message();
  EXPECT_TRUE(mix->by_workload());
  EXPECT_EQ(mix->classes[0].ttft.high, 10);
  EXPECT_EQ(mix->classes[1].name, "code");
  EXPECT_FALSE(ParseSloMix("chat:1:ttft=10x")->by_workload());
}

TEST(SloMixText, ErrorsNameTheFaultyPart) {
  for (const auto& [text, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"chat", "1 fields instead of the 3"},
           {"chat:0.5", "'0.5' is not one of ttft=, tbt=, jct= and none"},
           {"a:none;b:1:none", "'b:1:none': some classes have a share and some have none"},
           {"a:1:none;b:none", "'b:none': some classes have a share and some have none"},
           {"chat:0.5:ttft=1s:tbt=1s", "4 fields"},
           {"chat:1:none;", "'': 1 fields"},
           {":1:none", "a class name has 1 to 64 bytes"},
           {"a:1:none;a:1:none", "class 'a' twice"},
           {"a:0:none", "share '0'"},
           {"a:-1:none", "share '-1'"},
           {"a:nan:none", "share 'nan'"},
           {"a:1:", "'' is not one of ttft=, tbt=, jct= and none"},
           {"a:1:none,ttft=1s", "'none' is not one of"},
           {"a:1:tpot=1s", "'tpot=1s' is not one of"},
           {"a:1:ttft=1s,ttft=2s", "'ttft' twice"},
           {"a:1:ttft=0", "'ttft=0' is not a duration above 0"},
           {"a:1:ttft=500", "'ttft=500' has no unit: write 500ms or 500s"},
           {"a:1:ttft=1..2", "'ttft=1..2' has no unit: write 2ms or 2s"},
           {"a:1:ttft=1s..2", "'ttft=1s..2' has no unit: write 2ms or 2s"},
           {"a:1:ttft=x", "'ttft=x' is no"},
           {"a:1:ttft=0x", "'ttft=0x' is no"},
           {"a:1:ttft=2..1s", "'ttft=2..1s' is no"},
           {"a:1:ttft=1s..3x", "'ttft=1s..3x' is no"},
           {"a:1:ttft=..3s", "'ttft=..3s' is no"},
           {"a:1:ttft=1s..", "'ttft=1s..' is no"},
           {"a:1:ttft=2s,jct=1s", "due after the whole answer"}}) {
    const auto mix = ParseSloMix(text);
    ASSERT_FALSE(mix.ok()) << text;
    EXPECT_NE(mix.status().message().find(why), std::string::npos) << mix.status().message() << "\nwanted " << why;
    EXPECT_EQ(mix.status().param(), "slo-mix");
  }
}

TEST(SloText, AnObjectiveWithoutAUnitIsRefusedWithBothReadings) {
  EXPECT_EQ(ParseSlo("ttft=500,tbt=50ms").status().message(), "--slo: ttft '500' has no unit: write 500ms or 500s");
  EXPECT_EQ(ParseSlo("ttft=500ms,tbt=0.5").status().message(), "--slo: tbt '0.5' has no unit: write 0.5ms or 0.5s");
}

TEST(SloText, InvalidObjectivesAreRejected) {
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
