// The exposition text is read by a strict parser, and the figures are compared with hand-counted events.
#include "core/loop/metrics.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace tactus::core {
namespace {

// Accepts only the Prometheus text format, version 0.0.4: every family has HELP and TYPE before its samples and appears
// once, samples are unique, histogram buckets are cumulative and end with +Inf equal to _count.
class StrictReader {
 public:
  struct Family {
    std::string type;
    std::map<std::string, double> samples;  // "name{labels}" as written
  };
  std::map<std::string, Family> families;
  std::string error;

  explicit StrictReader(const std::string& text) {
    if (text.empty() || text.back() != '\n') {
      error = "does not end in a line feed";
      return;
    }
    size_t at = 0;
    while (error.empty() && at < text.size()) {
      const size_t end = text.find('\n', at);
      Line(text.substr(at, end - at));
      at = end + 1;
    }
    for (const auto& [name, family] : families) {
      if (error.empty() && family.type == "histogram") CheckHistogram(name, family);
    }
  }

 private:
  static bool NameChar(char c, bool first) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' ||
           (!first && std::isdigit(static_cast<unsigned char>(c)) != 0);
  }
  static std::string Name(const std::string& s, size_t* at) {
    const size_t begin = *at;
    while (*at < s.size() && NameChar(s[*at], *at == begin)) ++*at;
    return s.substr(begin, *at - begin);
  }
  void Line(const std::string& line) {
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
      size_t at = 7;
      const std::string name = Name(line, &at);
      if (name.empty() || at >= line.size() || line[at] != ' ') {
        error = "bad comment: " + line;
        return;
      }
      if (line[2] == 'H') {
        if (!helped_.insert(name).second) error = "second HELP: " + line;
        return;
      }
      const std::string type = line.substr(at + 1);
      if (type != "counter" && type != "gauge" && type != "histogram") error = "bad type: " + line;
      if (helped_.count(name) == 0 || !families.emplace(name, Family{type, {}}).second)
        error = "TYPE without HELP or twice: " + line;
      current_ = name;
      return;
    }
    size_t at = 0;
    const std::string name = Name(line, &at);
    std::string family = name;
    const auto known = families.find(current_);
    if (known != families.end() && known->second.type == "histogram") {
      for (const char* suffix : {"_bucket", "_sum", "_count"}) {
        if (name == current_ + suffix) family = current_;
      }
    }
    if (name.empty() || family != current_) {
      error = "sample outside its family: " + line;
      return;
    }
    if (at < line.size() && line[at] == '{') {
      ++at;
      std::set<std::string> labels;
      while (at < line.size() && line[at] != '}') {
        const std::string label = Name(line, &at);
        if (label.empty() || label.find(':') != std::string::npos || !labels.insert(label).second) {
          error = "bad label: " + line;
          return;
        }
        if (line.compare(at, 2, "=\"") != 0) {
          error = "bad label: " + line;
          return;
        }
        for (at += 2; at < line.size() && line[at] != '"'; ++at) {
          if (line[at] == '\\' && std::string("\\\"n").find(line[++at]) == std::string::npos) {
            error = "bad escape: " + line;
            return;
          }
        }
        ++at;
        if (at < line.size() && line[at] == ',') ++at;
      }
      ++at;
    }
    if (at >= line.size() || line[at] != ' ') {
      error = "no value: " + line;
      return;
    }
    const std::string number = line.substr(at + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0') {
      error = "bad value: " + line;
      return;
    }
    if (families[current_].type != "gauge" && !(value >= 0)) error = "a counter below zero: " + line;
    if (!families[current_].samples.emplace(line.substr(0, at), value).second) error = "sample twice: " + line;
    order_[current_].push_back({line.substr(0, at), value});
  }
  void CheckHistogram(const std::string& name, const Family& family) {
    double previous = 0, infinite = -1;
    for (const auto& [sample, value] : order_[name]) {
      if (!sample.starts_with(name + "_bucket")) continue;
      if (value < previous) error = "buckets fall: " + sample;
      previous = value;
      if (sample.find("le=\"+Inf\"") != std::string::npos) infinite = value;
    }
    for (const auto& [sample, value] : family.samples) {
      if (sample.starts_with(name + "_count") && value != infinite) error = "count is not the +Inf bucket: " + sample;
    }
    if (infinite < 0) error = name + " has no +Inf bucket";
  }

  std::set<std::string> helped_;
  std::string current_;
  std::map<std::string, std::vector<std::pair<std::string, double>>> order_;
};

constexpr DurationNs kMs = 1'000'000;

struct Scene {
  EngineMetrics metrics{"a \"model\"", KvCacheConfig{100, 16, 8, 10, true}, 512};
  EngineStats stats;

  void Done(DurationNs first, DurationNs longest, DurationNs total, Slo slo, const char* name,
            FinishReason finish = FinishReason::kStop) {
    auto request = std::make_shared<Request>();
    request->slo = slo;
    request->slo_class = name;
    RequestDoneEvent done;
    done.request = request;
    done.arrival_ns = 1000 * kMs;
    done.scheduled_ns = 1001 * kMs;
    done.first_token_ns = done.arrival_ns + first;
    done.done_ns = done.arrival_ns + total;
    done.longest_gap_ns = longest;
    done.prompt_tokens = 20;
    done.completion_tokens = 11;
    done.finish = finish;
    StepEvents events;
    events.done = {&done, 1};
    metrics.OnStep(events);
  }
};

TEST(Metrics, TextIsValidAndHasEveryName) {
  Scene scene;
  scene.Done(10 * kMs, 5 * kMs, 60 * kMs, {100 * kMs, 0, 0}, "chat");
  scene.metrics.CountRejected({}, "", "full");
  scene.stats.kv_blocks_total = 100;
  scene.stats.kv_blocks_in_use = 25;
  scene.stats.finished_stop = 1;
  const std::string text = scene.metrics.Text(scene.stats);
  const StrictReader read(text);
  ASSERT_EQ(read.error, "") << text;
  for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                           "vllm:cache_config_info", "vllm:lora_requests_info"}) {
    ASSERT_TRUE(read.families.count(name)) << name;
    EXPECT_EQ(read.families.at(name).type, "gauge") << name;
  }
  for (const char* name :
       {"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:request_success_total"}) {
    ASSERT_TRUE(read.families.count(name)) << name;
    EXPECT_EQ(read.families.at(name).type, "counter") << name;
  }
  for (const char* name :
       {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds", "vllm:request_params_max_tokens", "vllm:request_params_n",
        "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:iteration_tokens_total"}) {
    ASSERT_TRUE(read.families.count(name)) << name;
    EXPECT_EQ(read.families.at(name).type, "histogram") << name;
  }
  for (const char* name : {"tactus_slo_goodput_requests_total", "tactus_slo_attainment", "tactus_slo_slack_ratio",
                           "tactus_slo_misses_total"}) {
    EXPECT_TRUE(read.families.count(name)) << name;
  }
  for (const auto& [name, family] : read.families) {
    EXPECT_TRUE(name.starts_with("vllm:") || name.starts_with("tactus_")) << name;
    for (const auto& [sample, value] : family.samples) {
      EXPECT_NE(sample.find("model_name=\"a \\\"model\\\"\",engine=\"0\""), std::string::npos) << sample;
    }
  }
  EXPECT_NE(text.find("vllm:kv_cache_usage_perc{model_name=\"a \\\"model\\\"\",engine=\"0\"} 0.25\n"),
            std::string::npos);
  EXPECT_NE(text.find("block_size=\"16\",num_gpu_blocks=\"100\""), std::string::npos);
}

TEST(Metrics, ReaderRefusesInvalidText) {
  for (const char* bad :
       {"x 1", "x 1\n", "# HELP x h\n# TYPE x counter\nx 1\nx 1\n", "# HELP x h\n# TYPE x gauge\nx{a=1} 2\n",
        "# HELP x h\n# TYPE x gauge\nx one\n", "# TYPE x gauge\nx 1\n",
        "# HELP x h\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"+Inf\"} 1\nx_count 1\nx_sum 1\n"}) {
    EXPECT_NE(StrictReader(bad).error, "") << bad;
  }
}

TEST(Metrics, SloIsKeptOnlyIfAllObjectivesAre) {
  Scene scene;
  const Slo all{20 * kMs, 10 * kMs, 100 * kMs};
  scene.Done(20 * kMs, 10 * kMs, 100 * kMs, all, "a");                        // kept, exactly at the limit
  scene.Done(21 * kMs, 10 * kMs, 100 * kMs, all, "a");                        // first token late
  scene.Done(20 * kMs, 11 * kMs, 100 * kMs, all, "a");                        // one gap too long
  scene.Done(20 * kMs, 10 * kMs, 101 * kMs, all, "a");                        // total too late
  scene.Done(20 * kMs, 10 * kMs, 100 * kMs, all, "a", FinishReason::kError);  // failed
  scene.Done(500 * kMs, 500 * kMs, 900 * kMs, {}, "a");                       // no objectives: not counted
  scene.Done(1 * kMs, 500 * kMs, 900 * kMs, {2 * kMs, 0, 0}, "b");            // kept its only objective
  const auto result = SortedJson::parse(ToJson(scene.metrics.Outcome(scene.stats)));
  EXPECT_DOUBLE_EQ(result["slo_attainment"].get<double>(), 2.0 / 6.0);
  EXPECT_DOUBLE_EQ(result["jct_attainment"].get<double>(), 3.0 / 5.0);  // three in time, one late, one failed
  EXPECT_TRUE(result["classes"]["b"]["jct_attainment"].is_null());
  EXPECT_DOUBLE_EQ(result["goodput"].get<double>(), 2 / 0.9);  // two from the first arrival to the last end
  EXPECT_DOUBLE_EQ(result["classes"]["a"]["slo_attainment"].get<double>(), 0.2);
  EXPECT_DOUBLE_EQ(result["classes"]["b"]["slo_attainment"].get<double>(), 1.0);
  EXPECT_EQ(result["requests"]["completed"], 6);
  EXPECT_EQ(result["requests"]["failed"], 1);
}

TEST(Metrics, UnknownFiguresAreNull) {
  Scene scene;
  const auto result = SortedJson::parse(ToJson(scene.metrics.Outcome(scene.stats)));
  for (const char* name :
       {"ttft_ms", "normalized_ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "scheduling_delay_ms", "goodput",
        "slo_attainment", "decision_us", "budget_utilization", "kv_utilization", "request_throughput"}) {
    ASSERT_TRUE(result.contains(name)) << name;
    EXPECT_TRUE(result[name].is_null()) << name;
  }
  EXPECT_EQ(result["steps"], 0);
  EXPECT_EQ(result["plan_hash"], "0000000000000000");
}

TEST(Metrics, FiguresOfOneRequestMatchHandCalculation) {
  Scene scene;
  scene.Done(40 * kMs, 9 * kMs, 140 * kMs, {}, "");
  const GapEvent gaps[] = {{40 * kMs, 1, true}, {6 * kMs, 1, false}, {14 * kMs, 1, false}};
  StepEvents events;
  events.gaps = gaps;
  scene.metrics.OnStep(events);
  const auto result = SortedJson::parse(ToJson(scene.metrics.Outcome(scene.stats)));
  const auto near = [](double value, double expected) { EXPECT_NEAR(value / expected, 1.0, 0.005) << value; };
  near(result["ttft_ms"]["p50"].get<double>(), 40);
  near(result["normalized_ttft_ms"]["mean"].get<double>(), 2);  // 40 ms over 20 prompt tokens
  near(result["tbt_ms"]["mean"].get<double>(), 10);
  near(result["tbt_ms"]["max"].get<double>(), 14);
  near(result["tpot_ms"]["p99"].get<double>(), 10);  // 100 ms over 10 gaps
  near(result["e2e_ms"]["p50"].get<double>(), 140);
  near(result["scheduling_delay_ms"]["p50"].get<double>(), 1);
  near(result["input_token_throughput"].get<double>(), 20 / 0.14);
  near(result["output_token_throughput"].get<double>(), 11 / 0.14);
}

}  // namespace
}  // namespace tactus::core
