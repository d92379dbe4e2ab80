// The exact text of a request's schedule: nanoseconds are not rounded.
#include "api/explain_text.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace tactus::api {
namespace {

using json = SortedJson;

void Add(SequenceTimeline* s, Cause cause, int64_t to_ns, int64_t steps, bool mixed = false) {
  s->segments.push_back({cause, mixed, s->end_ns, to_ns, steps});
  s->total_ns[static_cast<size_t>(cause)] += to_ns - s->end_ns;
  s->end_ns = to_ns;
}

RequestTimeline Ended() {
  RequestTimeline t;
  t.handle = 7;
  t.id = "a\"b";
  t.slo_class = "chat";
  t.ended = true;
  t.finish = FinishReason::kStop;
  t.prompt_tokens = 12;
  t.preemptions = 1;
  t.cache = {.tokens = 11, .disk_tokens = 8, .end = CacheEnd::kDamaged};
  SequenceTimeline& s = t.sequences.emplace_back();
  s.finish = FinishReason::kStop;
  s.completion_tokens = 3;
  Add(&s, Cause::kKv, 1, 0);
  Add(&s, Cause::kPrefill, 2000001, 2);
  Add(&s, Cause::kDecode, 1002000001, 9, true);
  s.ttft_ns = 2000001;
  s.longest_gap_ns = 700000000;
  s.longest_gap_end_ns = 1002000001;
  s.longest_gap_cause = Cause::kPassedOver;
  s.prefill_beside_others_ns = 1500000;
  return t;
}

TEST(ExplainText, HasEveryDigit) {
  RequestTimeline t = Ended();
  t.slo = {.ttft_ns = 1000000, .tbt_ns = 0, .jct_ns = 2000000000};
  t.misses[0] = {true, Cause::kPrefill, 1000001};
  EXPECT_EQ(
      ExplainText({t}),
      R"({"object":"request.schedule","id":"a\"b","request":7,"class":"chat","ended":true,"finish_reason":"stop",)"
      R"("prompt_tokens":12,"completion_tokens":3,"preemptions":1,"ttft_ms":2.000001,"e2e_ms":1002.000001,)"
      R"("cache":{"cached_tokens":11,"memory_tokens":3,"disk_tokens":8,"ended":"damaged"},)"
      R"("longest_gap":{"ms":700.000000,"from_ms":302.000001,"to_ms":1002.000001,"cause":"passed_over"},)"
      R"("objectives":[{"objective":"ttft","stated_ms":1.000000,"actual_ms":2.000001,"kept":false,"cause":"prefill",)"
      R"("cost_ms":1.000001},{"objective":"jct","stated_ms":2000.000000,"actual_ms":1002.000001,"kept":true}],)"
      R"("segments":[{"cause":"kv","from_ms":0.000000,"to_ms":0.000001,"steps":0},)"
      R"({"cause":"prefill","from_ms":0.000001,"to_ms":2.000001,"steps":2},)"
      R"({"cause":"decode","from_ms":2.000001,"to_ms":1002.000001,"steps":9,"mixed":true}],)"
      R"("totals_ms":{"kv":0.000001,"prefill":2.000000,"decode":1000.000000},"prefill_beside_others_ms":1.500000})");
}

TEST(ExplainText, UndecidedObjectivesAreNull) {
  RequestTimeline t;
  t.slo = {.ttft_ns = 1000000, .tbt_ns = 1000000, .jct_ns = 1000000};
  Add(&t.sequences.emplace_back(), Cause::kQueue, 3000000, 1);
  t.misses[2] = {true, Cause::kQueue, 2000000};
  const json e = json::parse(ExplainText({t}));
  EXPECT_EQ(e["id"], nullptr);
  EXPECT_EQ(e["ended"], false);
  EXPECT_EQ(e["finish_reason"], nullptr);
  EXPECT_EQ(e["ttft_ms"], nullptr);
  EXPECT_EQ(e["cache"], nullptr);
  EXPECT_EQ(e["longest_gap"], nullptr);
  EXPECT_EQ(e["objectives"][0]["kept"], nullptr);
  EXPECT_EQ(e["objectives"][0]["actual_ms"], nullptr);
  EXPECT_EQ(e["objectives"][1]["kept"], nullptr);
  EXPECT_EQ(e["objectives"][2]["kept"], false) << "late already";
  EXPECT_EQ(e["objectives"][2]["cause"], "queue");
}

TEST(ExplainText, ACancelledRequestKeepsNoObjective) {
  RequestTimeline t = Ended();
  t.finish = t.sequences[0].finish = FinishReason::kCancelled;
  t.slo.ttft_ns = 10000000000;
  const json e = json::parse(ExplainText({t}));
  EXPECT_EQ(e["objectives"][0]["kept"], false);
  EXPECT_FALSE(e["objectives"][0].contains("cause")) << "it was not late";
}

TEST(ExplainText, TheLatestPromptCountsForTheRequestAndEachSequenceIsListed) {
  RequestTimeline a = Ended(), b = Ended();
  b.handle = 8;
  a.id = "x-1-0";
  b.id = "x-1-1";
  Add(&b.sequences[0], Cause::kDecode, 1003000000, 1);
  b.sequences.push_back(a.sequences[0]);
  b.sequences[1].choice = 1;
  b.sequences[1].ttft_ns = 5;
  const json e = json::parse(ExplainText({a, b}));
  EXPECT_EQ(e["id"], "x-1");
  EXPECT_EQ(e["request"], 7);
  EXPECT_EQ(e["prompt_tokens"], 24);
  EXPECT_EQ(e["completion_tokens"], 9);
  EXPECT_EQ(e["e2e_ms"], 1003.0);
  EXPECT_EQ(e["ttft_ms"], 0.000005);
  EXPECT_EQ(e["segments"].size(), 4u);
  ASSERT_EQ(e["sequences"].size(), 3u);
  EXPECT_EQ(e["sequences"][0]["prompt"], 0);
  EXPECT_EQ(e["sequences"][2]["prompt"], 1);
  EXPECT_EQ(e["sequences"][2]["choice"], 1);
  EXPECT_EQ(e["sequences"][2]["e2e_ms"], 1002.000001);
}

TEST(ExplainText, TheLatestOfSeveralLatePromptsGivesTheCause) {
  RequestTimeline a = Ended(), b = Ended(), c = Ended();
  for (RequestTimeline* t : {&a, &b, &c}) t->slo.ttft_ns = 1000000;
  a.misses[0] = {true, Cause::kPrefill, 1000};
  b.misses[0] = {true, Cause::kQueue, 3000};
  c.misses[0] = {true, Cause::kKv, 2000};
  const json e = json::parse(ExplainText({a, b, c}));
  EXPECT_EQ(e["objectives"][0]["cause"], "queue");
  EXPECT_EQ(e["objectives"][0]["cost_ms"], 0.003);
}

TEST(ExplainTable, HasTheNumbersOfTheText) {
  RequestTimeline t = Ended();
  t.slo.ttft_ns = 1000000;
  t.misses[0] = {true, Cause::kPrefill, 1000001};
  const std::string text = ExplainTable({t});
  for (const char* expected :
       {"request 7 (a\"b): 12 prompt tokens, ended (stop) after 1002.000 ms\n", "first token after 2.000 ms\n",
        "longest gap 700.000 ms, up to 1002.000 ms: passed_over\n",
        "ttft of 1.000 ms: missed, 1.000 ms of it by prefill\n", "decode       9  (mostly)\n",
        "in all: kv 0.000 ms prefill 2.000 ms decode 1000.000 ms (of prefill beside others 1.500 ms)\n"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "in\n" << text;
  }
}

}  // namespace
}  // namespace tactus::api
