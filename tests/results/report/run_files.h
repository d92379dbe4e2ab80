// Small run files for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "results/obs/run_file.h"

namespace tactus::test {

// A temporary folder, removed with the object.
class TempFolder {
 public:
  TempFolder() : path_(std::filesystem::temp_directory_path() / ("tactus_report_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  const std::filesystem::path path_;
};

struct RunSpec {
  std::string scheduler = "sarathi-serve", rate = "8", slo_class = "chat", command = "sim", interval = "1s";
  bool closed = true;
};

// Two requests, of which the first misses its TBT objective, four steps and one interval.
inline void WriteRun(const std::string& path, const RunSpec& spec) {
  results::RunAbout about;
  about.command = spec.command;
  about.program = "0.1.0";
  about.options = {
      {"scheduler", spec.scheduler}, {"rate", spec.rate}, {"run-out", path}, {"run-interval", spec.interval}};
  about.stated = {"rate", "run-out"};
  auto file = results::RunFileWriter::Create(path, about, results::RunFileWriter::WhenBehind::kWait);
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (int64_t i = 0; i < 4; ++i) {
    results::RunStep step;
    step.replica = static_cast<int32_t>(i % 2);
    step.step = i;
    step.start_ns = i * 50 * kMillisecond;
    step.end_ns = step.start_ns + 80 * kMillisecond;  // overlaps with the next, as in a pipeline
    step.prompt_tokens = i == 0 ? 512 : 0;
    step.prompts = i == 0;
    step.decodes = i;
    step.running = 2;
    step.waiting = 1;
    step.kv_used = 0.5;
    step.longest_gap_ns = i == 2 ? 180 * kMillisecond : 40 * kMillisecond;
    (*file)->Add(step);
  }
  for (int64_t i = 0; i < 2; ++i) {
    results::RunRequest request;
    request.number = i;
    request.id = i == 0 ? "an \\id" : "";
    request.replica = 0;
    request.arrival_ns = i * 10 * kMillisecond;
    request.scheduled_ns = request.arrival_ns + 5 * kMillisecond;
    request.first_token_ns = request.arrival_ns + 60 * kMillisecond;
    request.done_ns = request.arrival_ns + 200 * kMillisecond;
    request.prompt_tokens = 256;
    request.output_tokens = 4;
    request.finish = "length";
    request.slo_class = spec.slo_class;
    request.slo.tbt_ns = 100 * kMillisecond;
    if (i == 0) request.missed_by[1] = "prefill";
    (*file)->Add(request);
  }
  results::RunInterval interval;
  interval.arrived = interval.completed = 2;
  interval.output_tokens = 8;
  interval.gap_ms = {.known = true, .p50 = 40, .p99 = 180, .max = 180};
  interval.ttft_ms = {.known = true, .p50 = 60, .p99 = 60, .max = 60};
  (*file)->Add(interval);
  if (!spec.closed) return;
  const Status closed = (*file)->Close(
      R"({"requests": {"completed": 2, "failed": 0, "rejected": 0}, "request_rate_asked": 8, "goodput": 4,
          "ttft_ms": {"mean": 60, "p50": 60, "p90": 60, "p95": 60, "p99": 61, "max": 61},
          "tbt_ms": {"mean": 60, "p50": 40, "p90": 180, "p95": 180, "p99": 180, "max": 180},
          "e2e_ms": null, "classes": {")" +
      spec.slo_class + R"(": {"slo_attainment": 0.5, "tbt_attainment": 0.5}}})");
  ASSERT_TRUE(closed.ok()) << closed.message();
}

}  // namespace tactus::test
