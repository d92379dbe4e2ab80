// Questions to the simulator: the commands and loads that they become, and their answers.
#include "serve/sim_question.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "serve/child_program.h"

namespace tactus::serve {
namespace {

class SimQuestionTest : public testing::Test {
 protected:
  SimQuestionTest() {
    basis_.step_times = "/times.csv";
    basis_.max_model_len = 2048;
    basis_.kv_blocks = 77;
    PastRequest first;
    first.arrival_ns = 5 * kSecond;
    first.prompt_tokens = 600;
    first.completion_tokens = 9;
    first.slo.tbt_ns = 50 * kMillisecond;
    first.slo_class = "a,\"b\"";
    first.finish = FinishReason::kStop;
    first.ttft_ns = 30 * kMillisecond;
    first.e2e_ns = kSecond;
    first.longest_gap_ns = 40 * kMillisecond;
    first.text_ids = {12, 34};
    PastRequest second = first;
    second.arrival_ns += 1500 * kMillisecond;
    second.slo = {};
    second.slo_class.clear();
    second.text_ids.clear();
    second.ttft_ns = 50 * kMillisecond;
    basis_.past = {first, second};
  }
  static bool Has(const SimCommand& command, std::string_view arg) {
    return std::find(command.args.begin(), command.args.end(), arg) != command.args.end();
  }
  static constexpr DurationNs kSecond = 1'000'000'000, kMillisecond = 1'000'000;
  SimBasis basis_;
};

TEST_F(SimQuestionTest, TheRecordedLoadIsATrace) {
  const auto question = ParseWhatIf("{}", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_EQ(question->same.load,
            "arrival_s,prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,slo_class,priority,"
            "prefix_hash_ids\n"
            "0.000000000,600,9,,50,,\"a,\"\"b\"\"\",0,12 34\n"
            "1.500000000,600,9,,,,,0,\n");
  EXPECT_EQ(question->changed.load, question->same.load);
}

TEST_F(SimQuestionTest, BothRunsHaveTheServersOptions) {
  basis_.options.max_num_seqs = 7;
  basis_.options.slo_class = {"a:ttft=1s", "b:tbt=1s"};
  basis_.options.trace_out = "/recording";
  basis_.options.prefix_caching = false;
  const auto question = ParseWhatIf("{}", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  for (const SimCommand& command : {question->same, question->changed}) {
    for (const char* arg : {"--cost=/times.csv", "--max-model-len=2048", "--kv-blocks=77", "--max-num-seqs=7",
                            "--slo-class=a:ttft=1s", "--slo-class=b:tbt=1s", "--prefix-caching=off", "--json"}) {
      EXPECT_TRUE(Has(command, arg)) << arg << " is not in " << CommandText(command);
    }
    EXPECT_EQ(CommandText(command).find("recording"), std::string::npos)
        << "a simulation must not write the server's file";
    EXPECT_EQ(CommandText(command).find("--max-queue"), std::string::npos) << "defaults are left out";
  }
}

TEST_F(SimQuestionTest, ChangesAreInTheSecondRunOnly) {
  const auto question = ParseWhatIf(
      R"({"scheduler": "orca", "token_budget": 256, "tbt_slo_ms": 0, "rate_factor": 1.5, "replicas": 3})", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  for (const char* arg : {"--scheduler=orca", "--max-num-batched-tokens=256", "--tbt-slo=none", "--replicas=3",
                          "--workload=trace:/proc/self/fd/3:scale=1.5"}) {
    EXPECT_TRUE(Has(question->changed, arg)) << arg << " is not in " << CommandText(question->changed);
    EXPECT_FALSE(Has(question->same, arg)) << arg;
  }
  EXPECT_TRUE(Has(question->same, "--workload=trace:/proc/self/fd/3"));
}

TEST_F(SimQuestionTest, WrongFieldsAreNamed) {
  for (const auto& [body, param, part] :
       {std::tuple(R"({"rate": 2})", "rate", "the fields are scheduler, token_budget"),
        {R"({"replicas": 65})", "replicas", "from 1 to 64"},
        {R"({"replicas": "2"})", "replicas", "replicas is \"2\"; it must be a whole number from 1 to 64"},
        {R"({"replicas": 1.5})", "replicas", "replicas is 1.5; it must be a whole number"},
        {R"({"token_budget": 0.5})", "token_budget",
         "token_budget is 0.5; it must be a whole number from 0 to 1048576"},
        {R"({"rate_factor": 101})", "rate_factor", "rate_factor is 101; it must be a number from 0.01 to 100"},
        {R"({"scheduler": ""})", "scheduler", "scheduler is \"\"; it must be a string that is not empty"},
        {R"({"scheduler": 3})", "scheduler", "scheduler is 3; it must be a string"}}) {
    const Status status = ParseWhatIf(body, basis_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_EQ(status.param(), param) << body;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(ParseWhatIf("[]", basis_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SimQuestionTest, LengthsAreWholeAndATraceIsNotEmpty) {
  for (const auto& [body, part] :
       {std::pair(R"({"rate": 1, "prompt_tokens": 5.5, "output_tokens": 5})", "prompt_tokens is 5.5"),
        {R"({"rate": 1, "prompt_tokens": 5, "output_tokens": 0.5})", "output_tokens is 0.5"},
        {R"({"rate": 1, "trace": ""})", "trace is \"\"; it must be a string that is not empty"}}) {
    const Status status = ParseCapacity(body, basis_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_TRUE(ParseCapacity(R"({"rate": 1, "prompt_tokens": 5.0, "output_tokens": 1e2})", basis_).ok());
}

TEST_F(SimQuestionTest, FoldersOfTheServerAreInNoAnswer) {
  basis_.step_times = "/home/someone/.cache/tactus/times.csv";
  const auto question = ParseWhatIf("{}", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_TRUE(Has(question->changed, "--cost=/home/someone/.cache/tactus/times.csv")) << "the child needs the folder";
  EXPECT_NE(CommandText(question->changed).find("--cost=times.csv"), std::string::npos);
  EXPECT_EQ(CommandText(question->changed).find("someone"), std::string::npos);
  const Status unreadable =
      ErrorOf(InvalidArgument("tactus sim: /home/someone/.cache/tactus/times.csv:3: no time"), question->changed);
  EXPECT_EQ(unreadable.code(), StatusCode::kInternal) << "no other question would help";
  EXPECT_EQ(unreadable.message(), "tactus sim: times.csv:3: no time");
  const Status trace = ErrorOf(InvalidArgument("tactus sim: /proc/self/fd/3:2: 3 cells"), question->changed);
  EXPECT_EQ(trace.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(trace.message(), "tactus sim: load.csv:2: 3 cells");
}

TEST_F(SimQuestionTest, WithoutStepTimesOrLoadThereIsAReason) {
  SimBasis bare = basis_;
  bare.past.clear();
  EXPECT_EQ(ParseWhatIf("{}", bare).status().code(), StatusCode::kUnavailable);
  EXPECT_NE(ParseWhatIf("{}", bare).status().message().find("ten minutes"), std::string::npos);
  bare.step_times.clear();
  EXPECT_NE(ParseWhatIf("{}", bare).status().message().find("tactus profile"), std::string::npos);
}

TEST_F(SimQuestionTest, CapacityOfStatedLengthsNeedsNoPast) {
  basis_.past.clear();
  const auto question =
      ParseCapacity(R"({"rate": 2, "prompt_tokens": 500, "output_tokens": 100, "ttft_ms": 800, "share": 0.9})", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_EQ(question->rate, 2);
  EXPECT_EQ(question->command.load, "");
  for (const char* arg : {"capacity", "--workload=random:in=500,out=100", "--slo=ttft=800ms",
                          "--until=attainment>=90% and rejected==0", "--requests=300", "--from=0.1", "--to=40"}) {
    EXPECT_TRUE(Has(question->command, arg)) << arg << " is not in " << CommandText(question->command);
  }
}

TEST_F(SimQuestionTest, ALoadOfStatedLengthsLastsAMinuteAtItsRate) {
  const auto question = ParseCapacity(R"({"rate": 20, "prompt_tokens": 5, "output_tokens": 5})", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_TRUE(Has(question->command, "--requests=1200")) << CommandText(question->command);
}

TEST_F(SimQuestionTest, CapacityOfThePastTakesItsRate) {
  const auto question = ParseCapacity("{}", basis_);
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_NEAR(question->rate, 2 / 2.5, 1e-9) << "two requests from the first arrival to the last end";
  EXPECT_NE(question->command.load, "");
}

TEST_F(SimQuestionTest, CapacityNeedsARateAndBothLengths) {
  for (const char* body : {R"({"prompt_tokens": 5, "output_tokens": 5})", R"({"rate": 1, "prompt_tokens": 5})",
                           R"({"trace": "prompt_tokens,output_tokens\n5,5\n"})",
                           R"({"rate": 1, "trace": "x", "prompt_tokens": 5, "output_tokens": 5})"}) {
    EXPECT_EQ(ParseCapacity(body, basis_).status().code(), StatusCode::kInvalidArgument) << body;
  }
}

TEST_F(SimQuestionTest, AnAnswerSaysWhetherTheRateIsHeld) {
  const std::string found =
      R"({"until": "u", "configurations": [{"capacity": {"mean": 3, "low": 2, "high": 4}, "why_none": null}]})";
  for (const auto& [rate, holds] : {std::pair(2.0, "yes"), {3.0, "uncertain"}, {4.5, "no"}}) {
    CapacityQuestion question;
    question.rate = rate;
    const auto answer = CapacityText(found, question);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(Json::parse(*answer)["holds"], holds) << rate;
  }
  const auto none = CapacityText(R"({"configurations": [{"capacity": null, "why_none": "no such metric"}]})", {});
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(none.status().message(), "no such metric");
  EXPECT_EQ(CapacityText("Segmentation fault", {}).status().code(), StatusCode::kDataLoss);
}

TEST_F(SimQuestionTest, ASearchThatEndsAtItsRangeSaysAtWhichSide) {
  const auto at = [](const char* held, const char* broke) {
    const auto answer = CapacityText(fmt::format(R"({{"configurations": [{{"capacity": null, "why_none": "w", "seeds": [
                    {{"held": {}, "broke": {}}}, {{"held": {}, "broke": {}}}]}}]}})",
                                                 held, broke, held, broke),
                                     {});
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return Json::parse(*answer);
  };
  const Json all = at(R"({"value": 40})", "null"), nothing = at("null", R"({"value": 0.1})");
  EXPECT_EQ(all["holds"], "yes");
  EXPECT_EQ(all["at_least"], 40);
  EXPECT_EQ(all["below"], nullptr);
  EXPECT_EQ(nothing["holds"], "no");
  EXPECT_EQ(nothing["below"], 0.1);
  EXPECT_EQ(nothing["at_least"], nullptr);
}

TEST_F(SimQuestionTest, WhatHappenedHasTheNamesOfAResult) {
  const Json happened = Json::parse(HappenedText(basis_.past));
  EXPECT_EQ(happened["requests"]["completed"], 2);
  EXPECT_EQ(happened["slo_attainment"], 1.0);
  EXPECT_EQ(happened["ttft_ms"]["p50"], 30.0);
  EXPECT_EQ(happened["ttft_ms"]["p99"], 50.0);
  EXPECT_EQ(happened["longest_gap_ms"]["max"], 40.0);
  basis_.past[0].late = true;
  EXPECT_EQ(Json::parse(HappenedText(basis_.past))["slo_attainment"], 0.0) << "of the one that stated an objective";
  EXPECT_EQ(HappenedText({}), "null");
}

TEST_F(SimQuestionTest, ACommandCanBeTyped) {
  const SimCommand command{{"sim", "--until=a>=9% and b==0", std::string("--workload=trace:") + ChildRun::kInput}, "x"};
  EXPECT_EQ(CommandText(command), "tactus sim '--until=a>=9% and b==0' --workload=trace:load.csv");
  EXPECT_EQ(CommandText({{"sim", "--model=it's `x`"}, ""}), R"(tactus sim '--model=it'\''s `x`')");
}

}  // namespace
}  // namespace tactus::serve
