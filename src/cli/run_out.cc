#include "cli/run_out.h"

#include <fmt/format.h>

#include "base/output_file.h"
#include "tactus/version.h"

namespace tactus::cli {

Result<std::unique_ptr<RunFileWriter>> OpenRunFile(const RunOut& out, const CommandLine& line,
                                                   RunFileWriter::WhenBehind when_behind) {
  constexpr DurationNs kLeast = kMillisecond, kMost = 24 * 3600 * kSecond;
  if (out.path.empty()) return std::unique_ptr<RunFileWriter>();
  if (out.interval.ns < kLeast || out.interval.ns > kMost) {
    return InvalidArgument(fmt::format("--run-interval is {}; it must be between {} and {}",
                                       FormatDuration(out.interval.ns), FormatDuration(kLeast), FormatDuration(kMost)),
                           "run-interval");
  }
  TACTUS_RETURN_IF_ERROR(CheckWritable(out.path, "run-out"));
  RunAbout about;
  about.command = line.command();
  about.program = Version();
  about.interval_ns = out.interval.ns;
  for (const FieldBinding& field : line.fields()) {
    if (field.spec.secret) continue;
    about.options.emplace_back(field.name, FieldText(field));
    if (about.options.back().second != field.default_text) about.stated.push_back(field.name);
  }
  return RunFileWriter::Create(out.path, about, when_behind);
}

Result<std::unique_ptr<RunRecorder>> OpenEngineRecorder(const RunOut& out, const CommandLine& line, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(auto file, OpenRunFile(out, line, RunFileWriter::WhenBehind::kGiveUp));
  if (file == nullptr) return std::unique_ptr<RunRecorder>();
  return std::make_unique<RunRecorder>(std::move(file), clock.NowNs());
}

}  // namespace tactus::cli
