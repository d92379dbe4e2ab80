#include "cli/commands/sim_replay.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "compute/kernels/thread_pool.h"
#include "core/loop/metrics.h"
#include "cost/cost_model.h"
#include "cost/step_tables/step_table.h"
#include "engine/step_times/profile_model.h"
#include "results/obs/run_result.h"
#include "sim/replay/replay_model.h"

namespace tactus::cli {
namespace {

Json RecordedJson(const core::ReplayReport& r) {
  return {{"recorded_by", r.program_version},
          {"scheduler", r.scheduler},
          {"complete", r.complete},
          {"requests", r.arrivals},
          {"steps_recorded", r.steps_recorded},
          {"steps_replayed", r.steps_replayed},
          {"plan_hash_recorded", fmt::format("{:016x}", r.plan_hash_recorded)},
          {"plan_hash_replayed", fmt::format("{:016x}", r.plan_hash_replayed)},
          {"first_difference", r.first_difference < 0 ? Json(nullptr) : Json(r.first_difference)},
          {"identical", r.steps_recorded > 0 ? Json(r.identical()) : Json(nullptr)}};
}

double Error(double measured, double predicted) {
  return measured > 0 ? predicted / measured - 1 : 0;
}

Json ErrorJson(const Summary& measured, const Summary& predicted) {
  if (!measured.known || !predicted.known) return nullptr;
  return {{"p50", Error(measured.p50, predicted.p50)},
          {"p90", Error(measured.p90, predicted.p90)},
          {"p99", Error(measured.p99, predicted.p99)}};
}

void PrintTable(const sim::ModelReplay& m) {
  std::printf("step time: median absolute error %.2f %%, P90 %.2f %%, sum %+.2f %% over %lld steps\n",
              100 * m.errors.median_abs, 100 * m.errors.p90_abs, 100 * m.errors.total,
              static_cast<long long>(m.errors.steps));
  std::printf("%-12s %12s %12s %9s\n", "Times (ms)", "measured", "predicted", "error");
  const auto row = [](const std::string& name, double measured, double predicted) {
    std::printf("%-12s %12.2f %12.2f %+8.2f %%\n", name.c_str(), measured, predicted, 100 * Error(measured, predicted));
  };
  row("duration", 1000 * m.measured.duration_s, 1000 * m.predicted.duration_s);
  const std::pair<const char*, Summary RunResult::*> figures[] = {
      {"TTFT", &RunResult::ttft_ms}, {"gap", &RunResult::tbt_ms}, {"total", &RunResult::e2e_ms}};
  for (const auto& [name, figure] : figures) {
    const Summary &a = m.measured.*figure, &b = m.predicted.*figure;
    if (!a.known || !b.known) continue;
    row(std::string(name) + " P50", a.p50, b.p50);
    row(std::string(name) + " P90", a.p90, b.p90);
    row(std::string(name) + " P99", a.p99, b.p99);
  }
}

// The value of a line such as "threads = 2" in the options of a recording; empty if there is none.
std::string OptionOf(const std::string& started_with, const std::string& name) {
  const std::string line = name + " = ";
  for (size_t at = 0; at < started_with.size();) {
    const size_t end = std::min(started_with.find('\n', at), started_with.size());
    if (started_with.compare(at, line.size(), line) == 0)
      return started_with.substr(at + line.size(), end - at - line.size());
    at = end + 1;
  }
  return "";
}

// Where `tactus profile` stores the step times of a recorded server, if this is its machine. Where it chose its device
// itself and its model is no longer there: the CPU's. kNotFound: it ran on a device that is not here.
Result<std::string> DefaultProfileOf(const std::string& started_with) {
  EngineOptions options;
  options.model = OptionOf(started_with, "model");
  const std::string threads = OptionOf(started_with, "threads"), device = OptionOf(started_with, "device");
  options.threads = std::atoi(threads.c_str());
  if (!device.empty()) options.device = device;
  if (options.device != "cpu") {
    options.load_format = "dummy";  // any model of a server
    const auto here = engine::DefaultProfilePath(options, SystemClock());
    if (here.ok()) return here;
    if (options.device != "auto") {
      return NotFound(fmt::format("the step times of the recorded device cannot be found here ({}): name a file of "
                                  "'tactus profile' with --cost",
                                  here.status().message()),
                      "cost");
    }
  }
  const auto count = options.threads > 0 ? options.threads : int64_t{compute::UsableCores()};
  return engine::DefaultProfilePath(options.model, fmt::format("{}t", count));
}

struct Model {
  std::unique_ptr<StepTimeModel> step_time;
  std::string about;
};

Result<Model> MakeModel(const SimReplayOptions& o) {
  if (!o.device.empty()) {
    if (o.model.empty()) return InvalidArgument("--model is missing beside --device", "model");
    cost::Deployment d;
    d.model = o.model;
    d.device = o.device;
    d.tp = static_cast<int32_t>(o.tp);
    TACTUS_ASSIGN_OR_RETURN(std::unique_ptr<cost::CostModel> made, cost::CostModel::Create(d));
    std::string about = made->Describe();
    return Model{std::move(made), std::move(about)};
  }
  std::string path = o.cost;
  if (path.empty()) {
    core::TraceHeader header;
    core::ReplayHooks hooks;
    hooks.header = &header;
    TACTUS_RETURN_IF_ERROR(core::ReplayTrace(o.file, hooks).status());
    if (OptionOf(header.started_with, "model").empty())
      return InvalidArgument("--cost FILE is missing: the recording does not name its model", "cost");
    TACTUS_ASSIGN_OR_RETURN(path, DefaultProfileOf(header.started_with));
  }
  auto profile = cost::LoadStepProfile(path);
  if (!profile.ok() && profile.status().code() == StatusCode::kNotFound) {
    return NotFound(
        fmt::format("no step times at '{}': measure them with 'tactus profile', or name a file with --cost", path),
        "cost");
  }
  if (!profile.ok()) return profile.status();
  std::string about = fmt::format("{}: {}", path, (*profile)->Describe());
  return Model{std::move(profile).value(), std::move(about)};
}

int FailReplay(const Status& status) {
  std::fprintf(stderr, "tactus sim --replay: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

int Write(const SimReplayOptions& o, Json result, const results::KeptSeries* series) {
  if (series != nullptr) {
    if (!o.json) std::printf("\n%s", series->Table().c_str());
    result["timeseries"] = series->ToJson();
  }
  const std::string text =
      result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";  // paths may be invalid UTF-8
  if (o.json) std::printf("%s", text.c_str());
  if (o.output.empty()) return kExitOk;
  const Status written = ReplaceFile(o.output, text, "output");
  return written.ok() ? kExitOk : FailReplay(written);
}

int Close(core::RunRecorder* recorder, const RunResult& result) {
  if (recorder == nullptr) return kExitOk;
  const Status written = recorder->Close(ToJson(result));
  return written.ok() ? kExitOk : FailReplay(written);
}

int ReplayRecorded(const SimReplayOptions& o, core::RunRecorder* recorder, const results::KeptSeries* series) {
  core::EngineMetrics metrics("", {}, 0, true);
  core::ReplayHooks hooks;
  hooks.recorder = recorder;
  if (recorder != nullptr) hooks.sink = &metrics;
  const auto report = core::ReplayTrace(o.file, hooks);
  if (!report.ok()) return FailReplay(report.status());
  if (!o.json) {
    std::printf("%lld requests, %lld steps recorded, %lld replayed under %s\n",
                static_cast<long long>(report->arrivals), static_cast<long long>(report->steps_recorded),
                static_cast<long long>(report->steps_replayed), report->scheduler.c_str());
    std::printf("plan hash recorded %016llx, replayed %016llx: %s\n",
                static_cast<unsigned long long>(report->plan_hash_recorded),
                static_cast<unsigned long long>(report->plan_hash_replayed),
                report->steps_recorded == 0 ? "nothing to compare"
                : report->identical()       ? "identical"
                                            : "DIFFERENT");
  }
  if (!report->complete) std::fprintf(stderr, "the recording was not closed; its complete part was replayed\n");
  if (const int code = Close(recorder, metrics.Outcome(report->stats)); code != kExitOk) return code;
  if (const int code = Write(o, RecordedJson(*report), series); code != kExitOk) return code;
  if (report->steps_recorded == 0) {
    return FailReplay(DataLoss(
        fmt::format("'{}' has no steps, so nothing was compared; record a run that answers requests", o.file)));
  }
  return report->identical() ? kExitOk : kExitFailed;
}

Status WriteSteps(const std::string& path, const std::vector<sim::StepPrediction>& steps) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms,predicted_ms\n";
  for (const sim::StepPrediction& s : steps) {
    out << fmt::format("{},{},{},{},{:.4f},{:.4f}\n", s.prefill_tokens, s.prefill_context, s.decodes,
                       s.decode_context_tokens, static_cast<double>(s.measured_ns) * 1e-6,
                       static_cast<double>(s.predicted_ns) * 1e-6);
  }
  out.close();
  return out ? Status() : DataLoss(fmt::format("cannot write '{}'", path));
}

int ReplayModel(const SimReplayOptions& o, core::RunRecorder* recorder, const results::KeptSeries* series) {
  auto model = MakeModel(o);
  if (!model.ok()) return FailReplay(model.status());
  std::fprintf(stderr, "step times: %s\n", model->about.c_str());
  auto replay = sim::ReplayWithModel(o.file, *model->step_time, recorder);
  if (!replay.ok()) return FailReplay(replay.status());
  replay->most.chunks = {&replay->most_chunk, 1};
  const std::string beyond = model->step_time->Extrapolation(replay->most);
  if (!beyond.empty()) std::fprintf(stderr, "outside the measured range: %s\n", beyond.c_str());
  Json result = {{"recorded", RecordedJson(replay->recorded)},
                 {"step_time",
                  {{"model", model->about},
                   {"steps", replay->errors.steps},
                   {"median_abs_error", replay->errors.median_abs},
                   {"p90_abs_error", replay->errors.p90_abs},
                   {"total_error", replay->errors.total},
                   {"extrapolation", beyond}}},
                 {"measured", results::RunJson(replay->measured)},
                 {"predicted", results::RunJson(replay->predicted)},
                 {"error",
                  {{"ttft", ErrorJson(replay->measured.ttft_ms, replay->predicted.ttft_ms)},
                   {"tbt", ErrorJson(replay->measured.tbt_ms, replay->predicted.tbt_ms)},
                   {"e2e", ErrorJson(replay->measured.e2e_ms, replay->predicted.e2e_ms)}}}};
  if (!o.steps_out.empty()) {
    if (const Status status = WriteSteps(o.steps_out, replay->steps); !status.ok()) return FailReplay(status);
  }
  if (const int code = Close(recorder, replay->predicted); code != kExitOk) return code;
  if (!o.json) PrintTable(*replay);
  return Write(o, std::move(result), series);
}

}  // namespace

int SimReplay(const SimReplayOptions& options, std::unique_ptr<results::RunFileWriter> run_file,
              results::KeptSeries* series) {
  if (!options.steps_out.empty()) {
    if (const Status status = CheckWritable(options.steps_out, "steps-out"); !status.ok()) return FailReplay(status);
  }
  std::optional<core::RunRecorder> recorder;
  if (run_file != nullptr || series != nullptr) recorder.emplace(std::move(run_file), kNever, series);
  core::RunRecorder* const told = recorder ? &*recorder : nullptr;
  return options.times == "model" ? ReplayModel(options, told, series) : ReplayRecorded(options, told, series);
}

}  // namespace tactus::cli
