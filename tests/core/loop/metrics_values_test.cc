// Each figure of the exposition text and of the result object has its own source. Here every source has a different
// number.
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "core/loop/metrics.h"

namespace tactus::metrics_values_test {
namespace {

constexpr DurationNs kMs = 1'000'000;

EngineStats DistinctStats() {
  EngineStats s;
  s.running = 2;
  s.waiting = 3;
  s.kv_blocks_total = 1000;
  s.kv_blocks_in_use = 250;
  s.kv_blocks_cached = 7;
  s.steps = 11;
  s.prompt_tokens = 13;
  s.generation_tokens = 17;
  s.preemptions = 19;
  s.recomputed_tokens = 23;
  s.swap_blocks_total = 29;
  s.swap_blocks_used = 31;
  s.swapped_sequences = 37;
  s.swapped_out_blocks = 41;
  s.swapped_in_blocks = 43;
  s.prefix_query_tokens = 47;
  s.prefix_hit_tokens = 53;
  s.finished_stop = 59;
  s.finished_length = 61;
  s.finished_cancelled = 67;
  s.finished_error = 71;
  s.budget_utilization = 0.125;
  s.kv_utilization = 0.375;
  s.plan_hash = 0xabc;
  return s;
}

class Figures {
 public:
  core::EngineMetrics metrics{"m", core::KvCacheConfig{1000, 16, 8, 10, true}, 512};

  // The value of the line that starts with `name{` and has `label`; fails if there is none.
  double Of(const std::string& name, const std::string& label = "") {
    std::istringstream lines(metrics.Text(DistinctStats()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name + "{") && line.find(label) != std::string::npos)
        return std::stod(line.substr(line.rfind(' ')));
    }
    ADD_FAILURE() << "no " << name << " with " << label;
    return -1;
  }
  SortedJson Result() { return SortedJson::parse(ToJson(metrics.Outcome(DistinctStats()))); }
};

TEST(MetricsValues, EachStatisticHasItsOwnMetric) {
  Figures f;
  const std::pair<const char*, double> plain[] = {
      {"vllm:num_requests_running", 2},
      {"vllm:num_requests_waiting", 3},
      {"vllm:kv_cache_usage_perc", 0.25},
      {"vllm:prompt_tokens_total", 13},
      {"vllm:generation_tokens_total", 17},
      {"vllm:num_preemptions_total", 19},
      {"vllm:prefix_cache_queries_total", 47},
      {"vllm:prefix_cache_hits_total", 53},
      {"tactus_steps_total", 11},
      {"tactus_recomputed_tokens_total", 23},
      {"tactus_swap_blocks", 29},
      {"tactus_swap_blocks_used", 31},
      {"tactus_swapped_sequences_total", 37},
      {"tactus_swapped_out_blocks_total", 41},
      {"tactus_swapped_in_blocks_total", 43},
      {"tactus_kv_blocks_cached", 7},
      {"tactus_kv_blocks_in_use", 250},
      {"tactus_kv_blocks", 1000},
      {"tactus_token_budget", 512},
      {"tactus_token_budget_utilization", 0.125},
      {"tactus_kv_utilization", 0.375},
  };
  for (const auto& [name, value] : plain) EXPECT_EQ(f.Of(name), value) << name;
  EXPECT_EQ(f.Of("vllm:request_success_total", "\"stop\""), 59);
  EXPECT_EQ(f.Of("vllm:request_success_total", "\"length\""), 61);
  EXPECT_EQ(f.Of("vllm:request_success_total", "\"abort\""), 67);
  EXPECT_EQ(f.Of("vllm:request_success_total", "\"error\""), 71);
  EXPECT_EQ(f.Of("vllm:cache_config_info", "block_size=\"16\",num_gpu_blocks=\"1000\",enable_prefix_caching=\"True\""),
            1);
  EXPECT_EQ(f.Of("vllm:lora_requests_info", "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\""), 1);
  const auto result = f.Result();
  EXPECT_EQ(result["preemptions"], 19);
  EXPECT_EQ(result["recomputed_tokens"], 23);
  EXPECT_EQ(result["swapped_sequences"], 37);
  EXPECT_EQ(result["swapped_blocks"], 41 + 43);
  EXPECT_EQ(result["steps"], 11);
  EXPECT_EQ(result["plan_hash"], "0000000000000abc");
  EXPECT_EQ(result["budget_utilization"], 0.125);
  EXPECT_EQ(result["kv_utilization"], 0.375);
}

core::RequestDoneEvent Done(const std::shared_ptr<const Request>& request) {
  core::RequestDoneEvent d;
  d.request = request;
  d.arrival_ns = 1000 * kMs;
  d.scheduled_ns = 1400 * kMs;
  d.first_token_ns = 2000 * kMs;
  d.done_ns = 11000 * kMs;
  d.prompt_tokens = 3;
  d.completion_tokens = 7;
  d.finish = FinishReason::kLength;
  return d;
}

TEST(MetricsValues, RequestTimesAreBetweenTheRightEvents) {
  Figures f;
  const auto request = std::make_shared<Request>();
  request->stop.max_tokens = 40;
  request->n = 3;
  const core::RequestDoneEvent done[] = {Done(request), Done(request)};
  core::StepEvents events;
  events.done = done;
  f.metrics.OnStep(events);
  const auto near = [&](const char* name, double value) {
    EXPECT_NEAR(f.Of(std::string(name) + "_sum"), value, 1e-9) << name;
  };
  near("vllm:request_queue_time_seconds", 2 * 0.4);
  near("vllm:request_prefill_time_seconds", 2 * 0.6);
  near("vllm:request_decode_time_seconds", 2 * 9);
  near("vllm:request_inference_time_seconds", 2 * 9.6);
  near("vllm:request_params_max_tokens", 2 * 40);
  near("vllm:request_params_n", 2 * 3);
  near("vllm:e2e_request_latency_seconds", 2 * 10);
  near("vllm:request_prompt_tokens", 2 * 3);
  near("vllm:request_generation_tokens", 2 * 7);
  const auto result = f.Result();
  EXPECT_EQ(result["requests"]["completed"], 2);
  EXPECT_EQ(result["requests"]["failed"], 0);
  EXPECT_DOUBLE_EQ(result["request_throughput"].get<double>(), 0.2);
  EXPECT_DOUBLE_EQ(result["input_token_throughput"].get<double>(), 0.6);
  EXPECT_DOUBLE_EQ(result["output_token_throughput"].get<double>(), 1.4);
  EXPECT_NEAR(result["normalized_ttft_ms"]["mean"].get<double>(), 1000.0 / 3, 1e-3);
  EXPECT_NEAR(result["tpot_ms"]["mean"].get<double>(), 1500.0, 1e-3);
  EXPECT_NEAR(result["scheduling_delay_ms"]["mean"].get<double>(), 400.0, 1e-3);
}

TEST(MetricsValues, MissingEventsAreNotMeasured) {
  Figures f;
  const auto request = std::make_shared<Request>();
  core::RequestDoneEvent one = Done(request), never = Done(request), failed = Done(request), two = Done(request);
  one.completion_tokens = 1;  // no gap between tokens
  two.completion_tokens = 2;  // the fewest tokens with a gap
  never.scheduled_ns = never.first_token_ns = 0;
  never.finish = FinishReason::kCancelled;
  failed.finish = FinishReason::kError;
  const core::RequestDoneEvent done[] = {one, never, failed, two};
  core::StepEvents events;
  events.done = done;
  f.metrics.OnStep(events);
  EXPECT_EQ(f.Of("vllm:request_queue_time_seconds_count"), 3) << "one was never scheduled, one failed later";
  EXPECT_EQ(f.Of("vllm:e2e_request_latency_seconds_count"), 2);
  EXPECT_EQ(f.Of("vllm:request_inference_time_seconds_count"), 2);
  const auto result = f.Result();
  EXPECT_EQ(result["requests"]["completed"], 2);
  EXPECT_EQ(result["requests"]["failed"], 2);
  ASSERT_FALSE(result["tpot_ms"].is_null()) << "two tokens have a gap between them";
  EXPECT_NEAR(result["tpot_ms"]["max"].get<double>(), 9000.0, 1e-3);
  EXPECT_NEAR(result["tpot_ms"]["mean"].get<double>(), 9000.0, 1e-3);
}

// On a virtual clock a request may be scheduled at 0.
TEST(MetricsValues, RequestScheduledAtTimeZeroCounts) {
  Figures f;
  core::RequestDoneEvent d = Done(std::make_shared<Request>());
  d.arrival_ns = d.scheduled_ns = 0;
  core::StepEvents events;
  events.done = {&d, 1};
  f.metrics.OnStep(events);
  EXPECT_EQ(f.Of("vllm:request_queue_time_seconds_count"), 1);
}

TEST(MetricsValues, StepsGapsAndDecisionsAreCounted) {
  Figures f;
  core::StepRecord good, bad;
  good.prefill_tokens = 30;
  good.decode_tokens = 4;
  good.start_ns = 5 * kMs;
  good.end_ns = 12 * kMs;
  good.predicted_ns = 10 * kMs;
  good.ok = true;
  bad.prefill_tokens = 100;
  bad.start_ns = 0;
  bad.end_ns = 500 * kMs;
  bad.predicted_ns = 3 * kMs;
  bad.ok = false;
  core::StepRecord unpredicted = good;
  unpredicted.predicted_ns = 0;
  const core::StepRecord steps[] = {good, bad};
  const core::GapEvent gaps[] = {{40 * kMs, 3, true}, {6 * kMs, 5, false}};
  core::StepEvents events;
  events.steps = steps;
  events.gaps = gaps;
  events.decision_ns = 200;
  f.metrics.OnStep(events);
  core::StepEvents nothing;
  nothing.decision_ns = -1;  // no plan in this pass
  f.metrics.OnStep(nothing);
  EXPECT_EQ(f.Of("vllm:iteration_tokens_total_sum"), 134);
  EXPECT_EQ(f.Of("vllm:iteration_tokens_total_count"), 2);
  EXPECT_EQ(f.Of("tactus_executor_errors_total"), 1);
  EXPECT_EQ(f.Of("tactus_step_seconds_count"), 1) << "a failed step has no time";
  EXPECT_NEAR(f.Of("tactus_step_seconds_sum"), 0.007, 1e-12);
  events = {};
  events.steps = {&unpredicted, 1};
  f.metrics.OnStep(events);
  EXPECT_NEAR(f.Of("tactus_predicted_step_seconds_total"), 0.01, 1e-12);
  EXPECT_NEAR(f.Of("tactus_measured_step_seconds_total"), 0.007, 1e-12) << "only of the steps with a prediction";
  EXPECT_EQ(f.Of("tactus_step_measured_to_predicted_count"), 1);
  EXPECT_NEAR(f.Of("tactus_step_measured_to_predicted_sum"), 0.7, 1e-12);
  EXPECT_EQ(f.Of("tactus_step_time_correction"), 1);
  EXPECT_EQ(f.Of("vllm:time_to_first_token_seconds_count"), 3);
  EXPECT_NEAR(f.Of("vllm:time_to_first_token_seconds_sum"), 0.12, 1e-12);
  EXPECT_EQ(f.Of("vllm:inter_token_latency_seconds_count"), 5);
  EXPECT_NEAR(f.Of("vllm:inter_token_latency_seconds_sum"), 0.03, 1e-12);
  EXPECT_NEAR(f.Of("tactus_decision_seconds", "quantile=\"0.5\""), 200e-9, 1e-15);
  EXPECT_NEAR(f.Of("tactus_decision_seconds", "quantile=\"0.99\""), 200e-9, 1e-15);
  f.metrics.CountRejected({}, "", "full");
  f.metrics.CountRejected({}, "", "full");
  EXPECT_EQ(f.Of("tactus_requests_rejected_total"), 2);
  EXPECT_EQ(f.Result()["requests"]["rejected"], 2);
  EXPECT_NEAR(f.Result()["decision_us"]["p50"].get<double>(), 0.2, 1e-9);
}

TEST(MetricsValues, TheLastSixteenStepsAreListedOldestFirst) {
  Figures f;
  EXPECT_EQ(f.metrics.LastSteps(), "");
  for (int i = 1; i <= 18; ++i) {
    core::StepRecord record;
    record.step = i;
    record.start_ns = 5 * kMs;
    record.end_ns = 12 * kMs;
    record.predicted_ns = i == 18 ? 10 * kMs : 0;
    record.prefill_tokens = 30;
    record.decode_tokens = 4;
    record.preemptions = 2;
    record.ok = i != 17;
    core::StepEvents events;
    events.steps = {&record, 1};
    f.metrics.OnStep(events);
  }
  const std::string text = f.metrics.LastSteps();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 16) << text;
  EXPECT_TRUE(text.starts_with("step 3: 7.000 ms (predicted nothing), 30 prompt tokens, 4 decodes, 2 preemptions\n"))
      << text;
  EXPECT_TRUE(
      text.ends_with("2 preemptions, failed\nstep 18: 7.000 ms (predicted 10.000 ms), 30 prompt tokens, 4 decodes, "
                     "2 preemptions\n"))
      << text;
}

TEST(MetricsValues, SlosAreCountedByClassAndResult) {
  Figures f;
  auto chat = std::make_shared<Request>(), batch = std::make_shared<Request>();
  chat->slo = {1000 * kMs, 0, 0};
  chat->slo_class = "chat";
  batch->slo = {0, 0, 9999 * kMs};
  batch->slo_class = "batch";
  core::RequestDoneEvent late = Done(chat), never = Done(chat);
  late.first_token_ns += 1;
  never.first_token_ns = 0;
  never.finish = FinishReason::kStop;
  const core::RequestDoneEvent done[] = {Done(chat), late, never, Done(batch)};
  core::StepEvents events;
  events.done = done;
  f.metrics.OnStep(events);
  EXPECT_EQ(f.Of("tactus_slo_requests_total", "class=\"chat\",kept=\"true\""), 1) << "exactly at the limit is kept";
  EXPECT_EQ(f.Of("tactus_slo_requests_total", "class=\"chat\",kept=\"false\""), 2);
  EXPECT_EQ(f.Of("tactus_slo_requests_total", "class=\"batch\",kept=\"true\""), 0);
  EXPECT_EQ(f.Of("tactus_slo_requests_total", "class=\"batch\",kept=\"false\""), 1);
  const auto result = f.Result();
  EXPECT_EQ(result["classes"]["chat"]["stated"], 3);
  EXPECT_EQ(result["classes"]["chat"]["kept"], 1);
  EXPECT_TRUE(result["classes"]["chat"]["jct_attainment"].is_null());
  EXPECT_EQ(result["classes"]["batch"]["jct_attainment"], 0.0);
  EXPECT_DOUBLE_EQ(result["slo_attainment"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(result["goodput"].get<double>(), 0.1);  // one in ten seconds
}

TEST(MetricsValues, MissedObjectivesAreCountedByCause) {
  Figures f;
  auto chat = std::make_shared<Request>();
  chat->slo = {1000 * kMs, 0, 0};
  chat->slo_class = "chat";
  core::RequestDoneEvent late = Done(chat), gone = Done(chat);
  late.first_token_ns += 3000 * kMs;
  late.misses[0] = {true, Cause::kPlaces, 7};
  gone.finish = FinishReason::kCancelled;
  const core::RequestDoneEvent done[] = {Done(chat), late, gone};
  core::StepEvents events;
  events.done = done;
  f.metrics.OnStep(events);
  f.metrics.CountRejected(chat->slo, "chat", "full");
  EXPECT_EQ(f.Of("tactus_slo_goodput_requests_total", "class=\"chat\""), 1);
  EXPECT_EQ(f.Of("tactus_slo_attainment", "class=\"chat\""), 0.25);
  const std::string ttft = "class=\"chat\",objective=\"ttft\"";
  EXPECT_EQ(f.Of("tactus_slo_misses_total", ttft + ",cause=\"places\""), 1);
  EXPECT_EQ(f.Of("tactus_slo_misses_total", ttft + ",cause=\"cancelled\""), 1);
  EXPECT_EQ(f.Of("tactus_slo_misses_total", ttft + ",cause=\"refused\""), 1);
  // Two first tokens came exactly in time, one after four times the objective; the refused request had none.
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_bucket", ttft + ",le=\"-4\""), 0);
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_bucket", ttft + ",le=\"-2\""), 1);
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_bucket", ttft + ",le=\"-0.1\""), 1);
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_bucket", ttft + ",le=\"0\""), 3);
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_sum", ttft), -3);
  EXPECT_EQ(f.Of("tactus_slo_slack_ratio_count", ttft), 3);
}

// 1 s was measured for predictions of 0.8 s, 1.25 s and none; the gate refused another request.
TEST(MetricsValues, GatePredictionsAreComparedWithMeasuredTtft) {
  Figures f;
  auto chat = std::make_shared<Request>();
  chat->slo = {500 * kMs, 0, 0};
  chat->slo_class = "chat";
  core::RequestDoneEvent early = Done(chat), late = Done(chat), refused = Done(chat);
  early.predicted_ttft_ns = 800 * kMs;
  late.predicted_ttft_ns = 1250 * kMs;
  refused.predicted_ttft_ns = 9000 * kMs;
  refused.refused = true;
  refused.finish = FinishReason::kError;
  refused.scheduled_ns = refused.first_token_ns = 0;
  const core::RequestDoneEvent done[] = {early, late, Done(chat), refused};
  core::StepEvents events;
  events.done = done;
  f.metrics.OnStep(events);
  EXPECT_EQ(f.Of("tactus_ttft_measured_to_predicted_count"), 2);
  EXPECT_DOUBLE_EQ(f.Of("tactus_ttft_measured_to_predicted_sum"), 1.25 + 0.8);
  EXPECT_EQ(f.Of("tactus_requests_rejected_total"), 1);
  EXPECT_EQ(f.Of("tactus_slo_misses_total", "class=\"chat\",objective=\"ttft\",cause=\"refused\""), 1);
  const auto result = f.Result();
  EXPECT_EQ(result["requests"]["rejected"], 1);
  EXPECT_EQ(result["requests"]["failed"], 0);
  EXPECT_NEAR(result["ttft_prediction_error"]["p50"].get<double>(), 0.2, 0.002);
  EXPECT_NEAR(result["ttft_prediction_error"]["p99"].get<double>(), 0.25, 0.002);
}

}  // namespace
}  // namespace tactus::metrics_values_test
