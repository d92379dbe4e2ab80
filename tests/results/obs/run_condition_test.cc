// Conditions on a run and their metrics: syntax, verdicts and errors.
#include "results/obs/run_condition.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "results/obs/run_result.h"

namespace tactus::results {
namespace {

// A result in which every metric of `metric_test` has a different value.
RunResult SomeResult() {
  RunResult r;
  r.duration_s = 10;
  r.completed = 40;
  r.rejected = 3;
  r.objectives = {40, 30, {}, {}, {}, {}};
  r.tbt_ms = {true, 20, 21, 22, 23, 24, 25};
  ClassFigures chat;
  chat.stated = 10;
  chat.kept = 9;
  chat.ttft_ms = {true, 1, 2, 3, 4, 5, 6};
  r.classes["chat"] = chat;
  r.engine.emplace();
  r.engine->scheduling_delay_ms = {true, 1000, 1500, 1600, 1700, 1800, 1900};
  return r;
}

std::string ErrorOf(const std::string& text) {
  const auto parsed = RunCondition::Parse(text);
  return parsed.ok() ? "taken" : parsed.status().message();
}

bool Holds(const std::string& text) {
  const auto parsed = RunCondition::Parse(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.status().message());
  const auto verdicts = parsed->Check(RunJson(SomeResult()));
  bool all = true;
  for (const auto& verdict : verdicts) all = all && verdict.held;
  return all;
}

TEST(RunCondition, ComparesWithUnits) {
  for (const char* held : {"p99(tbt)<=24ms", "p99(tbt) < 0.0241s", "p99(tbt)<=24000us", "max(tbt)==25ms",
                           "p50(delay)<=2s", "p50(delay)<=0.025m", "mean(tbt)>=20ms", "rejected==3", "rejected>2",
                           "attainment>=75%", "attainment>=0.75", "goodput==3", "attainment(chat)>=90%",
                           "p99(ttft, chat)<=5ms", "p99(tbt)<=24ms and rejected<=3  and  duration<=10s", "failed==0"}) {
    EXPECT_TRUE(Holds(held)) << held;
  }
  for (const char* broken :
       {"p99(tbt)<24ms", "rejected==0", "attainment>0.75", "p50(delay)<=1499ms", "p99(tbt)<=24ms and rejected==0"}) {
    EXPECT_FALSE(Holds(broken)) << broken;
  }
}

TEST(RunCondition, AnUnknownMetricDoesNotHold) {
  for (const char* text : {"p99(ttft)<=1s", "p99(ttft)>=0", "attainment(batch)>=0", "mfu>=0", "cost<=5"})
    EXPECT_FALSE(Holds(text)) << text;
  const auto condition = RunCondition::Parse("p99(ttft)<=1s");
  const auto verdicts = condition->Check(RunJson(SomeResult()));
  EXPECT_EQ(VerdictText(condition->clauses()[0], verdicts[0]), "p99(ttft)<=1s: the run has no value");
}

TEST(RunCondition, ErrorsNameThePositionAndTheExpectedText) {
  const std::pair<const char*, std::vector<const char*>> kCases[] = {
      {"", {"position 1", "its end", "a clause such as"}},
      {"p99(tbt)<=100ms and", {"position 20", "its end"}},
      {"p99(tbt)<=100ms or rejected==0", {"position 17", "'or rejected==0'", "'and'"}},
      {"p98(tbt)<=100ms", {"position 1", "'p98' is not a metric", "p99", "ttft", "goodput"}},
      {"p99(itl)<=100ms", {"position 1", "'itl' is not a metric"}},
      {"rejected==0 and p99(itl)<=1s", {"position 17", "'itl'"}},
      {"p99(tbt)<=100", {"position 14", "is a time", "ms, s"}},
      {"p99(tbt)<=100req", {"position 14", "is a time"}},
      {"attainment>=99", {"position 15", "is a share", "99%"}},
      {"rejected==1ms", {"position 12", "takes no unit"}},
      {"rejected 0", {"position 10", "comparison", "=="}},
      {"p99(tbt)<=", {"position 11", "number"}},
      {"p99(tbt)<=-5ms", {"position 11", "number"}},
      {"p99(tbt)<=nan", {"position 11", "number"}},
      {"p99(tbt<=5ms", {"')' is missing"}},
      {"tbt<=5ms", {"many values", "p99(tbt)"}},
      {"p99(goodput)<=5", {"'goodput' is a single value"}},
      {"goodput(chat)>=1", {"no values by class"}},
  };
  for (const auto& [text, parts] : kCases) {
    const std::string error = ErrorOf(text);
    for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << text << ": " << error;
  }
  EXPECT_NE(ErrorOf(std::string(5000, 'x')).find("5000 bytes"), std::string::npos);
}

TEST(RunCondition, ANamedConditionExpandsToItsClauses) {
  const NamedCondition named[] = {{"strict-one", "p99(tbt)<=24ms and p50(delay)<=2s"}};
  const auto condition = RunCondition::Parse("strict-one and rejected==3", named);
  ASSERT_TRUE(condition.ok());
  EXPECT_EQ(condition->Text(), "p99(tbt)<=24ms and p50(delay)<=2s and rejected==3");
  const auto unknown = RunCondition::Parse("strict-two", named);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("whole conditions: strict-one"), std::string::npos);
}

TEST(RunMetric, EveryMetricIsAFieldOfTheResult) {
  // With every part of the result present, each metric's path exists, with a number or null.
  RunResult r = SomeResult();
  r.simulated.emplace();
  r.simulated->bubbles.emplace();
  Json json = RunJson(r);
  json["cost_per_million_tokens"] = json["cost_per_million_output_tokens"] = nullptr;  // only in simulations
                                                                                       // (sim_run.cc)
  for (const MetricInfo& m : Metrics()) {
    EXPECT_TRUE(json.contains(Json::json_pointer(m.path))) << m.name;
    if (m.of_class == nullptr) continue;
    EXPECT_TRUE(json["classes"]["chat"].contains(Json::json_pointer(m.of_class))) << m.name;
  }
}

TEST(RunMetric, NamesParseToTheSameMetric) {
  for (const RunMetric& metric : RunMetric::All()) {
    const auto again = RunMetric::Parse(metric.Name());
    ASSERT_TRUE(again.ok()) << metric.Name();
    EXPECT_EQ(again->Name(), metric.Name());
  }
  const auto list = RunMetric::ParseList("goodput, p99(ttft, chat),p50(delay)");
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[1].Name(), "p99(ttft, chat)");
  EXPECT_EQ((*list)[1].Value(RunJson(SomeResult())), 5.0);
  EXPECT_FALSE(RunMetric::ParseList("goodput,").ok());
}

}  // namespace
}  // namespace tactus::results
