// `tactus bench`: load-tests any OpenAI-compatible endpoint and reports latency and throughput.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/json.h"
#include "base/json_text.h"
#include "base/objectives.h"
#include "base/one_line.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "cli/bench/alone_latency.h"
#include "cli/bench/load_generator.h"
#include "cli/commands/commands.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "cli/options/progress_line.h"
#include "cli/options/run_length_text.h"
#include "cli/options/run_out.h"
#include "cli/options/slo_text.h"
#include "cli/search/sim_cases.h"
#include "results/obs/run_result.h"
#include "sim/workload/offered_load.h"
#include "sim/workload/slo_mix.h"

namespace tactus::cli {
namespace {

struct BenchOptions : sim::OfferedLoad {
  LoadOptions load;
  std::string output, warmup = "0", measure;
  int64_t requests = 100, seeds = 1;
  bool json = false;
  RunOut run_out;
  Timeseries timeseries;
  DurationText timeout{600 * kSecond};

  template <class V>
  void VisitFields(V& v) {
    v.Group("Endpoint");
    v.Field("url", load.url, {.help = "the server: http://HOST:PORT"});
    v.Field("model", load.model, {.help = "model name in the requests; default: the first that /v1/models lists"});
    v.Field("api-key", load.api_key, {.help = "key that is sent as a bearer token", .secret = true});
    v.Field("endpoint", load.endpoint, {.choices = "completions|chat", .help = "the API to call"});
    v.Field("prompt-format", load.prompt_format,
            {.choices = "ids|text", .help = "prompts as token ids (exact lengths) or English words"});
    v.Field(
        "vocab-size", load.vocab_size,
        {.unit = "tokens", .min = 10, .max = 10000000, .help = "token ids of prompts are random numbers below this"});
    v.Field("timeout", timeout, {.unit = "duration", .help = "longest time for one request; 0: no limit"});
    sim::OfferedLoad::VisitFields(v);
    v.Field("slo-class", request_class, {.help = "the same as --request-class"});
    v.Field("requests", requests,
            {.unit = "requests", .min = 1, .max = 10000000, .help = "number of requests, without those of --warmup"});
    v.Field("warmup", warmup,
            {.help = "a number of extra requests that are sent first and not measured, or a time such as 60s after the "
                     "first request that is not measured; with a time the load's end is not measured either"});
    v.Field("measure", measure,
            {.help = "the measured part after the warm-up: a time such as 10m, or a number of requests; default: the "
                     "rest; after a warm-up time, up to the arrival of the last request"});
    v.Field("temperature", load.temperature, {.min = 0, .max = 2, .help = "sampling temperature; 0 is greedy"});
    v.Group("Report");
    v.Field("send-slo", load.send_slo,
            {.help = "send objectives and class with each request; without it the server does not get them, and only "
                     "the report uses them"});
    v.Field("seeds", seeds,
            {.unit = "seeds",
             .min = 1,
             .max = 1000,
             .help = "number of loads, run one after another with consecutive seeds from --seed; figures are means "
                     "with 95 % confidence intervals"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    run_out.VisitFields(v);
    timeseries.VisitFields(v);
    v.Field("output", output, {.alias = "o", .help = "write the result's JSON object to this file"});
  }
};

// The first model that the server lists; also reports early and clearly that no server answers.
constexpr size_t kMostNameBytes = 1024;  // of a model name

Result<std::string> FirstModel(const LoadOptions& load) {
  TACTUS_ASSIGN_OR_RETURN(http::Url url, http::ParseUrl(load.url));
  http::ClientRequest request;
  request.method = "GET";
  request.path = "/v1/models";
  if (!load.api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + load.api_key);
  TACTUS_ASSIGN_OR_RETURN(const http::HttpResponse response,
                          http::Fetch(url, std::move(request), 30 * kSecond, SystemClock()));
  if (response.status != 200) {
    return InvalidArgument(
        fmt::format("{}/v1/models answered {}: {}", load.url, response.status, OneLine(response.body)));
  }
  const Result<Json> read = json_text::ParseJson(response.body);
  const Json json = read.ok() ? *read : Json();
  if (json.is_object() && json.contains("data") && json["data"].is_array() && !json["data"].empty()) {
    const auto& first = json["data"][0];
    const std::string id = first.is_object() && first.contains("id") && first["id"].is_string()
                               ? first["id"].get<std::string>()
                               : std::string();
    if (!id.empty() && id.size() <= kMostNameBytes) return id;
  }
  return InvalidArgument(fmt::format("{}/v1/models lists no model; name one with --model", load.url));
}

std::string LoadText(const LoadProgress& p) {
  const double seconds = static_cast<double>(p.elapsed_ns) * 1e-9;
  return fmt::format("{} in flight, {} failed, {} rejected, {:.0f} tokens/s", p.sent - p.done, p.failed, p.rejected,
                     seconds > 0 ? static_cast<double>(p.tokens) / seconds : 0.0);
}

constexpr int64_t kMostWarmup = 10000;

// A warm-up of N requests sends N extra requests before the load; a warm-up time is part of the load.
Status ReadWindow(BenchOptions* options, ReportInput* input) {
  TACTUS_ASSIGN_OR_RETURN(const results::RunLength warmup, ParseRunLength("warmup", options->warmup));
  TACTUS_ASSIGN_OR_RETURN(input->measure, ParseRunLength("measure", options->measure));
  if (warmup.requests > kMostWarmup) {
    return InvalidArgument(
        fmt::format("--warmup is {} requests; it must be between 0 and {}", warmup.requests, kMostWarmup), "warmup");
  }
  if (input->measure.ns == 0 || input->measure.requests == 0) {
    return InvalidArgument(
        "--measure is 0, so nothing would be measured; give a time such as 60s, or a number of requests", "measure");
  }
  if (warmup.ns >= 0) input->warmup = warmup;
  options->load.warmup = std::max<int64_t>(warmup.requests, 0);
  return Status();
}

int FailBench(const Status& status, int code) {
  std::fprintf(stderr, "tactus bench: %s\n", status.message().c_str());
  return code;
}

// Prints the errors and returns the exit status. Rejections by an overloaded server (429, 503) are a result; failed
// requests, or a load without a completed request, are a failure.
int ExitStatus(const LoadResult& result) {
  const auto total = static_cast<int64_t>(result.records.size());
  const auto has = [&result](RequestRecord::Outcome outcome) {
    return std::any_of(result.records.begin(), result.records.end(),
                       [&](const RequestRecord& r) { return r.outcome == outcome; });
  };
  for (const std::string& line :
       {ReasonsText(result.failures, "failed", total), ReasonsText(result.rejections, "were refused", total)}) {
    if (!line.empty()) std::fprintf(stderr, "tactus bench: %s\n", line.c_str());
  }
  if (!result.warmup_error.empty())
    std::fprintf(stderr, "tactus bench: in the warm-up: %s\n", result.warmup_error.c_str());
  if (result.interrupted) return kExitInterrupted;
  const bool good = has(RequestRecord::Outcome::kCompleted) && !has(RequestRecord::Outcome::kFailed);
  return good ? kExitOk : kExitFailed;
}

// Wrong input is wrong usage; a file that cannot be read is a failure.
int CodeOf(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

struct Work {
  std::vector<sim::WorkloadRequest> requests;
  Slo slo;
  sim::SloMix slo_mix;
};

Result<Work> MakeWork(const BenchOptions& options) {
  Work work;
  TACTUS_ASSIGN_OR_RETURN(work.slo, ParseSlo(options.slo));
  TACTUS_ASSIGN_OR_RETURN(work.slo_mix, ParseSloMix(options.slo_mix));
  TACTUS_ASSIGN_OR_RETURN(const sim::ParsedLoad load, sim::ParseLoad(options));
  TACTUS_RETURN_IF_ERROR(sim::CheckClasses(work.slo_mix, load.spec));
  TACTUS_ASSIGN_OR_RETURN(work.requests, sim::MakeWorkload(load.spec, load.arrivals, options.requests,
                                                           static_cast<uint64_t>(options.seed)));
  return work;
}

// Draws the classes and objectives of --slo-mix. For multiples, measures on the server how long a request takes alone.
Status GiveObjectives(const BenchOptions& options, Work* work) {
  if (work->slo_mix.classes.empty()) return Status();
  std::vector<AlonePoint> points;
  if (work->slo_mix.needs_latency_alone()) {
    TACTUS_ASSIGN_OR_RETURN(
        points, MeasureAlone(options.load, work->requests, SystemClock(), [] { return InterruptCount() == 0; }));
    std::fprintf(stderr, "alone: %s\n", AloneText(points).c_str());
  }
  for (sim::WorkloadRequest& r : work->requests) {
    sim::DrawObjectives(
        work->slo_mix, options.load.seed,
        [&points](const sim::WorkloadRequest& request) { return AloneAt(points, request); }, &r);
  }
  return Status();
}

// The result of one load.
struct Bench {
  int code = kExitOk;
  RunResult run;
  Json json;
};

// Runs one load with the seed of `options.load`. Returns an error if the server cannot be measured or reached.
Result<Bench> RunOne(const BenchOptions& options, ReportInput input, Work work, results::RunFileWriter* file,
                     results::KeptSeries* series) {
  TACTUS_RETURN_IF_ERROR(GiveObjectives(options, &work));
  ProgressLine progress(SystemClock());
  auto result = RunLoad(options.load, work.requests, SystemClock(), [&progress](const LoadProgress& p) {
    progress.Show(p.done, p.total, "requests", LoadText(p));
    return InterruptCount() == 0;
  });
  progress.End();
  if (!result.ok()) return result.status();
  Bench bench;
  bench.code = ExitStatus(*result);
  input.records = std::move(result->records);
  bench.run = ResultOf(input);
  if (bench.code == kExitOk && bench.run.completed == 0) {
    bench.code =
        FailBench(InvalidArgument("no request of the measured part completed: shorten --warmup or lengthen the load"),
                  kExitFailed);
  }
  bench.json = results::RunJson(bench.run);
  bench.json["workload"] = options.workload;
  bench.json["model"] = options.load.model;
  bench.json["seed"] = static_cast<int64_t>(options.load.seed);
  AddRows(input, file, series);
  return bench;
}

// Names may be invalid UTF-8; invalid bytes are replaced.
int Write(const BenchOptions& options, const Json& json, const std::string& table, int code) {
  std::printf("%s", options.json ? (json_text::JsonText(json) + "\n").c_str() : table.c_str());
  if (options.output.empty()) return code;
  const Status written = ReplaceFile(options.output, json_text::JsonText(json, 1) + "\n", "output");
  return written.ok() ? code : FailBench(written, kExitFailed);
}

int CodeOfRun(const Status& status) {
  return status.code() == StatusCode::kCancelled         ? kExitInterrupted
         : status.code() == StatusCode::kInvalidArgument ? kExitUsage
                                                         : kExitFailed;
}

// Runs the loads one after another because they share the server. Stops at the first failure.
int RunLoads(BenchOptions options, const ReportInput& input) {
  RunSet set{"", {}};
  for (int64_t k = 0; k < options.seeds; ++k) {
    options.load.seed = static_cast<uint64_t>(options.seed);
    auto work = MakeWork(options);
    if (!work.ok()) return FailBench(work.status(), CodeOf(work.status()));
    auto bench = RunOne(options, input, std::move(*work), nullptr, nullptr);
    if (!bench.ok()) return FailBench(bench.status(), CodeOfRun(bench.status()));
    if (bench->code != kExitOk) {
      std::fprintf(stderr, "tactus bench: load %lld of %lld, seed %lld\n", static_cast<long long>(k + 1),
                   static_cast<long long>(options.seeds), static_cast<long long>(options.seed));
      return bench->code;
    }
    std::fprintf(stderr, "load %lld of %lld, seed %lld, is done\n", static_cast<long long>(k + 1),
                 static_cast<long long>(options.seeds), static_cast<long long>(options.seed));
    set.runs.push_back(std::move(bench->json));
    ++options.seed;
  }
  const Json json = RunSetJson(set);
  return Write(options, json, RunSetTable(json), kExitOk);
}

// --seeds runs several loads; outputs that describe a single load are rejected with it.
Status CheckOutputs(const BenchOptions& options) {
  if (options.seeds > 1) {
    const bool file = !options.run_out.path.empty();
    if (file || options.timeseries.interval.ns != 0) {
      const char* flag = file ? "run-out" : "timeseries";
      return InvalidArgument(
          fmt::format("--{} describes a single load, and --seeds {} runs several: leave one out", flag, options.seeds),
          flag);
    }
    if (const int64_t most = std::numeric_limits<int64_t>::max() - options.seeds; options.seed > most) {
      return InvalidArgument(
          fmt::format("--seed {} is too large for --seeds {}; give at most {}", options.seed, options.seeds, most),
          "seed");
    }
  }
  TACTUS_RETURN_IF_ERROR(CheckApart({{"run-out", options.run_out.path}, {"output", options.output}}));
  return options.output.empty() ? Status() : CheckWritable(options.output, "output");
}

}  // namespace

int BenchCommand(const Args& args) {
  BenchOptions options;
  CommandLine line("bench", "--url URL (--rate R | --concurrency N) [options]",
                   "Load-tests an OpenAI-compatible server.");
  line.Add(options);
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.load.url.empty())
    return FailBench(InvalidArgument("--url is missing: give the server as http://HOST:PORT"), kExitUsage);
  auto work = MakeWork(options);
  if (!work.ok()) return FailBench(work.status(), CodeOf(work.status()));
  if (const auto url = http::ParseUrl(options.load.url); !url.ok()) return FailBench(url.status(), kExitUsage);
  ReportInput input;
  if (const Status status = ReadWindow(&options, &input); !status.ok()) return FailBench(status, kExitUsage);
  options.load.slo = work->slo;
  options.load.slo_class = options.request_class;
  options.load.concurrency = options.concurrency;
  options.load.ignore_eos = options.ignore_eos;
  options.load.seed = static_cast<uint64_t>(options.seed);
  options.load.timeout_ns = options.timeout.ns;
  input.rate_asked_per_s = options.rate;
  input.concurrency = options.load.concurrency;
  input.slo = work->slo;
  input.slo_class = options.request_class;
  if (const Status status = CheckOutputs(options); !status.ok()) return FailBench(status, CodeOf(status));
  if (work->slo.any()) std::fprintf(stderr, "objectives of --slo: %s\n", ObjectivesText(work->slo).c_str());
  for (const sim::SloClass& c : work->slo_mix.classes)
    std::fprintf(stderr, "objectives of class '%s': %s\n", Printable(c.name).c_str(), ObjectivesText(c).c_str());
  RunOut run_out = options.run_out;
  const auto series = KeepSeries(options.timeseries, &run_out);
  if (!series.ok()) return FailBench(series.status(), kExitUsage);
  const auto run_file = OpenRunFile(run_out, line, results::RunFileWriter::WhenBehind::kWait);
  if (!run_file.ok()) return FailBench(run_file.status(), CodeOf(run_file.status()));
  if (options.load.model.empty()) {
    auto model = FirstModel(options.load);
    if (!model.ok()) return FailBench(model.status(), kExitFailed);
    options.load.model = *model;
  }

  CatchInterrupt();
  if (options.seeds > 1) return RunLoads(options, input);
  auto bench = RunOne(options, input, std::move(*work), run_file->get(), series->get());
  if (!bench.ok()) return FailBench(bench.status(), CodeOfRun(bench.status()));
  if (*run_file != nullptr) {
    if (const Status written = (*run_file)->Close(json_text::JsonText(bench->json) + "\n"); !written.ok())
      bench->code = FailBench(written, kExitFailed);
  }
  std::string table = results::RunTable(bench->run);
  if (*series != nullptr) {
    bench->json["timeseries"] = (*series)->ToJson();
    table += "\n" + (*series)->Table();
  }
  return Write(options, bench->json, table, bench->code);
}

}  // namespace tactus::cli
