#include "base/service_class.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace tactus {
namespace {

TEST(ServiceClass, TextRoundTrips) {
  const auto classes =
      ParseServiceClasses({"interactive:ttft=500ms,tbt=50ms,weight=4,gate=shed", "batch:gate=off,share=20%",
                           "report:jct=2m,gate=queue,weight=0.5,share=0.07"});
  ASSERT_TRUE(classes.ok()) << classes.status().message();
  ASSERT_EQ(classes->size(), 3u);
  EXPECT_EQ((*classes)[0].name, "interactive");
  EXPECT_EQ((*classes)[0].slo, (Slo{.ttft_ns = 500 * kMillisecond, .tbt_ns = 50 * kMillisecond}));
  EXPECT_EQ((*classes)[0].weight, 4);
  EXPECT_FALSE((*classes)[1].slo.any());
  EXPECT_EQ((*classes)[1].weight, 1);
  EXPECT_EQ((*classes)[2].slo.jct_ns, 120 * kSecond);
  EXPECT_EQ((*classes)[0].share, 0);
  EXPECT_EQ((*classes)[1].share, 0.2);
  EXPECT_EQ((*classes)[2].share, 0.07);
  EXPECT_EQ((*classes)[0].gate + " " + (*classes)[1].gate + " " + (*classes)[2].gate, "predict none queue");
  std::vector<std::string> texts;
  for (const ServiceClass& c : *classes) texts.push_back(TextOf(c));
  const auto again = ParseServiceClasses(texts);
  ASSERT_TRUE(again.ok()) << again.status().message();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*again)[i].name, (*classes)[i].name);
    EXPECT_EQ((*again)[i].slo, (*classes)[i].slo);
    EXPECT_EQ((*again)[i].weight, (*classes)[i].weight);
    EXPECT_EQ((*again)[i].share, (*classes)[i].share);
    EXPECT_EQ((*again)[i].gate, (*classes)[i].gate);
  }
  EXPECT_EQ(FindServiceClass(*classes, "batch"), 2);
  EXPECT_EQ(FindServiceClass(*classes, "bat"), 0);
}

TEST(ServiceClass, ErrorsNameTheInvalidPart) {
  const auto refused = [](const std::vector<std::string>& texts, const std::string& why) {
    const auto classes = ParseServiceClasses(texts);
    ASSERT_FALSE(classes.ok()) << texts.back();
    EXPECT_EQ(classes.status().param(), "slo-class");
    EXPECT_NE(classes.status().message().find(why), std::string::npos) << classes.status().message();
  };
  refused({":ttft=1s"}, "a class has a name");
  refused({"a:ttf=1s"}, "'ttf=1s' is none of");
  refused({"a:ttft"}, "ttft '' is no duration");
  refused({"a:ttft=500"}, "ttft '500' has no unit: write 500ms or 500s");
  refused({"a:ttft=0s"}, "ttft '0s' is no duration above 0");
  refused({"a:ttft=1s,ttft=2s"}, "ttft twice");
  refused({"a:gate=predict"}, "gate 'predict' is none of off, queue and shed");
  refused({"a:weight=0"}, "weight '0' is no number from 0.01 to 100");
  refused({"a:weight=nan"}, "weight 'nan'");
  refused({"a:weight=101"}, "weight '101'");
  refused({"a:share=0"}, "share '0' is no share above 0 and up to 100%, such as 20% or 0.2");
  refused({"a:share=20"}, "share '20'");
  refused({"a:share=%"}, "share '%'");
  refused({"a:share=101%"}, "share '101%'");
  refused({"a:share=nan"}, "share 'nan'");
  refused({"a:share=60%", "b:share=50%"}, "are 110 % together; at most 100 %");
  refused({"a:ttft=2s,jct=1s"}, "due after the whole answer");
  refused({"a:ttft=1s", "a"}, "class 'a' is declared twice");
  EXPECT_TRUE(ParseServiceClasses({"a:share=60%", "b:share=30%", "c:share=10%"}).ok());
  std::vector<std::string> many;
  for (size_t i = 0; i <= kMostServiceClasses; ++i) many.push_back("class " + std::to_string(i));
  refused(many, "more than 32 classes");
}

TEST(ServiceClass, ClassObjectivesDoNotContradictTheRequest) {
  const auto classes = ParseServiceClasses({"chat:ttft=2s,jct=10s"});
  Request quick, patient;
  quick.slo_class = patient.slo_class = "chat";
  quick.slo.jct_ns = kSecond;
  patient.slo.ttft_ns = 20 * kSecond;
  ASSERT_TRUE(ApplyServiceClass(*classes, &quick).ok() && ApplyServiceClass(*classes, &patient).ok());
  EXPECT_EQ(quick.slo, (Slo{.jct_ns = kSecond})) << "its answer is due before the class's first token";
  EXPECT_EQ(patient.slo, (Slo{.ttft_ns = 20 * kSecond})) << "its first token is due after the class's whole answer";
}

TEST(ServiceClass, ARequestKeepsItsStatedObjectives) {
  const auto classes = ParseServiceClasses({"chat:ttft=1s,tbt=100ms"});
  Request r;
  r.slo_class = "chat";
  r.slo.tbt_ns = 5;
  ASSERT_TRUE(ApplyServiceClass(*classes, &r).ok());
  EXPECT_EQ(r.slo, (Slo{.ttft_ns = kSecond, .tbt_ns = 5}));
  Request none;
  ASSERT_TRUE(ApplyServiceClass(*classes, &none).ok());
  EXPECT_FALSE(none.slo.any());
  Request unknown;
  unknown.slo_class = "gold";
  const Status refused = ApplyServiceClass(*classes, &unknown);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.param(), "slo.class");
  EXPECT_NE(refused.message().find("'gold' is unknown; this server has chat"), std::string::npos) << refused.message();
  EXPECT_TRUE(ApplyServiceClass({}, &unknown).ok()) << "without declared classes a class is a label";
}

}  // namespace
}  // namespace tactus
