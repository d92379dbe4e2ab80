#include "fleet/router/replica_report.h"

#include <gtest/gtest.h>

namespace tactus::fleet {
namespace {

std::string State(const std::string& field, const std::string& value) {
  std::string text = R"({"status":"ready","version":"1","model":"m","running":3,"waiting":2,"waiting_tokens":100,)"
                     R"("free_kv_tokens":600,"kv_tokens":1000,"step_tokens":512})";
  if (field.empty()) return text;
  const size_t at = text.find("\"" + field + "\":") + field.size() + 3;
  return text.replace(at, text.find_first_of(",}", at) - at, value);
}

TEST(TactusStateTest, ReadsAServersState) {
  const auto report = ParseTactusState(State("", ""));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->ready);
  EXPECT_EQ(report->model, "m");
  EXPECT_EQ(report->version, "1");
  EXPECT_EQ(report->state.running, 3);
  EXPECT_EQ(report->waiting_requests, 2);
  EXPECT_EQ(report->state.waiting_tokens, 100);
  EXPECT_EQ(report->state.free_kv_tokens, 600);
  EXPECT_EQ(report->state.kv_tokens, 1000);
  EXPECT_EQ(report->state.step_tokens, 512);
}

TEST(TactusStateTest, ALoadingServerIsNotReady) {
  const auto report = ParseTactusState(R"({"status":"loading","version":"1"})");
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->ready);
  EXPECT_EQ(report->why, "loading");
}

TEST(TactusStateTest, InvalidFiguresAreErrorsThatNameTheField) {
  for (const char* field : {"running", "waiting", "waiting_tokens", "free_kv_tokens", "kv_tokens", "step_tokens"}) {
    for (const char* value : {"-1", "1e9", "null", "\"3\"", "18446744073709551615", "9000000000000000000"}) {
      const auto report = ParseTactusState(State(field, value));
      ASSERT_FALSE(report.ok()) << field << " " << value;
      EXPECT_NE(report.status().message().find(field), std::string::npos) << report.status().message();
    }
  }
  EXPECT_FALSE(ParseTactusState(State("free_kv_tokens", "1001")).ok());  // more than the total
  EXPECT_FALSE(ParseTactusState(State("model", "\"" + std::string(1000, 'x') + "\"")).ok());
  for (const char* body : {"", "<html>", "[]", "{}", "{\"status\":5}"})
    EXPECT_FALSE(ParseTactusState(body).ok()) << body;
}

const std::string kVllm =
    "# HELP vllm:num_requests_running x\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 4.0\n"
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3.0\n"
    "vllm:num_requests_waiting_by_reason{reason=\"x\"} 9.0\n"
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n"
    "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1.0\n";

TEST(VllmMetricsTest, ReadsAServersMetrics) {
  const auto report = ParseVllmMetrics(kVllm, 100);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->state.running, 4);
  EXPECT_EQ(report->waiting_requests, 3);
  EXPECT_EQ(report->state.waiting_tokens, 300);
  EXPECT_EQ(report->state.kv_tokens, 16000);
  EXPECT_EQ(report->state.free_kv_tokens, 12000);
}

TEST(VllmMetricsTest, OtherMetricsAreRefused) {
  EXPECT_FALSE(ParseVllmMetrics("", 1).ok());
  EXPECT_FALSE(ParseVllmMetrics("process_cpu_seconds_total 5\n", 1).ok());
  for (const char* value : {"NaN", "-1", "+Inf", "x"}) {
    std::string text = kVllm;
    text.replace(text.find(" 4.0"), 4, " " + std::string(value));
    EXPECT_FALSE(ParseVllmMetrics(text, 1).ok()) << value;
  }
}

TEST(ModelNamesTest, ReadsTheListUpToTheFirstInvalidEntry) {
  EXPECT_EQ(*ParseModelNames(R"({"object":"list","data":[{"id":"a"},{"id":"b"}]})"),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*ParseModelNames(R"({"data":[{"id":"a"},{"id":5},{"id":"c"}]})"), (std::vector<std::string>{"a"}));
  for (const char* body : {"", "{}", "{\"data\":[]}", "{\"data\":[5]}", "{\"data\":[{\"id\":5}]}"})
    EXPECT_FALSE(ParseModelNames(body).ok()) << body;
}

}  // namespace
}  // namespace tactus::fleet
