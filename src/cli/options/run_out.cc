#include "cli/options/run_out.h"

#include <fmt/format.h>

#include "base/output_file.h"
#include "tactus/version.h"

namespace tactus::cli {
namespace {

Status CheckInterval(const char* flag, DurationNs interval_ns) {
  constexpr DurationNs kLeast = kMillisecond, kMost = 24 * 3600 * kSecond;
  if (interval_ns >= kLeast && interval_ns <= kMost) return Status();
  return InvalidArgument(fmt::format("--{} is {}; it must be between {} and {}", flag, FormatDuration(interval_ns),
                                     FormatDuration(kLeast), FormatDuration(kMost)),
                         flag);
}

}  // namespace

Result<std::unique_ptr<results::KeptSeries>> KeepSeries(const Timeseries& timeseries, RunOut* out) {
  const DurationNs interval_ns = timeseries.interval.ns;
  if (interval_ns == 0) return std::unique_ptr<results::KeptSeries>();
  TACTUS_RETURN_IF_ERROR(CheckInterval("timeseries", interval_ns));
  if (out->interval.ns != RunOut().interval.ns && out->interval.ns != interval_ns) {
    return InvalidArgument(
        fmt::format("--timeseries is {} and --run-interval {}: a run has one time series; leave --run-interval out",
                    FormatDuration(interval_ns), FormatDuration(out->interval.ns)),
        "timeseries");
  }
  out->interval.ns = interval_ns;
  return std::make_unique<results::KeptSeries>(interval_ns);
}

Status CheckRunOut(const RunOut& out) {
  if (out.path.empty()) return Status();
  TACTUS_RETURN_IF_ERROR(CheckInterval("run-interval", out.interval.ns));
  return CheckWritable(out.path, "run-out");
}

Result<std::unique_ptr<results::RunFileWriter>> OpenRunFile(const RunOut& out, const CommandLine& line,
                                                            results::RunFileWriter::WhenBehind when_behind) {
  TACTUS_RETURN_IF_ERROR(CheckRunOut(out));
  if (out.path.empty()) return std::unique_ptr<results::RunFileWriter>();
  results::RunAbout about;
  about.command = line.command();
  about.program = Version();
  about.interval_ns = out.interval.ns;
  for (const FieldBinding& field : line.fields()) {
    if (field.spec.secret) continue;
    about.options.emplace_back(field.name, FieldText(field));
    if (about.options.back().second != field.default_text) about.stated.push_back(field.name);
  }
  return results::RunFileWriter::Create(out.path, about, when_behind);
}

Result<std::unique_ptr<core::RunRecorder>> OpenEngineRecorder(const RunOut& out, const CommandLine& line,
                                                              Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(auto file, OpenRunFile(out, line, results::RunFileWriter::WhenBehind::kGiveUp));
  if (file == nullptr) return std::unique_ptr<core::RunRecorder>();
  return std::make_unique<core::RunRecorder>(std::move(file), clock.NowNs());
}

}  // namespace tactus::cli
