// `tactus profile`: measures a model's step times on this machine into a CSV file that `tactus serve` and `tactus sim`
// read.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/options/option_binding.h"
#include "cli/options/progress_line.h"
#include "cli/options/start_log.h"
#include "cost/step_tables/step_spread.h"
#include "engine/start/check_options.h"
#include "engine/step_times/profile_model.h"

namespace tactus::cli {
namespace {

struct ProfileCommandOptions {
  std::string out;
  DurationText time_limit{120 * kSecond};
  int64_t max_points = 120, max_context = 0;
  bool json = false;
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Profile");
    v.Field("output", out,
            {.alias = "o",
             .help = "the CSV file; default: where `tactus serve` looks for this model's profile. It is replaced only "
                     "after enough steps were measured; fewer steps go to FILE.partial if -o is given"});
    v.Field("time-limit", time_limit, {.unit = "duration", .help = "measuring time without loading; above 0"});
    v.Field("max-points", max_points,
            {.unit = "steps", .min = 12, .max = 100000, .help = "largest number of different steps to measure"});
    v.Field("max-context", max_context,
            {.unit = "tokens",
             .min = 0,
             .max = 1 << 24,
             .help = "longest sequence to measure, at least 16; 0: 4096 on a CPU, on a GPU the model's limit or "
                     "--max-model-len"});
    v.Field("json", json, {.help = "print the result as one JSON object on stdout"});
    engine.VisitFields(v);
  }
};

// An interrupted run must not replace a complete profile: `file` stays unchanged. Its rows go to FILE.partial if the
// user named the file, and are discarded for the default file.
Status TooFewRows(const ProfileCommandOptions& o, const std::string& file, const engine::MeasuredProfile& measured,
                  const Status& why) {
  std::error_code error;
  const bool there = std::filesystem::exists(file, error);
  std::string kept;
  if (!o.out.empty() && !measured.samples.empty()) {
    TACTUS_RETURN_IF_ERROR(ReplaceFile(file + ".partial", engine::ProfileText(measured), "output"));
    kept = fmt::format("; its rows are in {}.partial", file);
  }
  const std::string fate = fmt::format("{} {}{}", file, there ? "is unchanged" : "was not written", kept);
  if (measured.interrupted)
    return Status(StatusCode::kCancelled, fmt::format("interrupted after {} steps; {}", measured.samples.size(), fate));
  return Status(StatusCode::kInvalidArgument, fmt::format("{}; {}; give a longer --time-limit", why.message(), fate),
                "time-limit");
}

Json SpreadJson(const std::optional<cost::StepSpread>& spread) {
  if (!spread) return nullptr;
  return {{"with_prompts", spread->with_prompts}, {"decodes_only", spread->decodes_only}};
}

Json OverlapJson(const std::optional<cost::MeasuredOverlap>& overlap) {
  if (!overlap) return nullptr;
  return {{"interference", overlap->interference}, {"least_split_tokens", overlap->least_split_tokens}};
}

Status Profile(ProfileCommandOptions& o, bool* interrupted) {
  if (o.time_limit.ns == 0) return InvalidArgument("--time-limit is 0; give a time such as 30s", "time-limit");
  if (o.max_context > 0 && o.max_context < 16) {
    return InvalidArgument(
        fmt::format("--max-context is {}; it must be at least 16, or 0 for the device's own limit", o.max_context),
        "max-context");
  }
  TACTUS_RETURN_IF_ERROR(engine::CheckOptions(o.engine));
  if (!o.out.empty()) TACTUS_RETURN_IF_ERROR(CheckWritable(o.out, "output"));
  StartLog log(false);
  TACTUS_RETURN_IF_ERROR(FetchModels(&o.engine, &log));
  log.Clear();
  std::string file = o.out;
  if (file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(file, engine::DefaultProfilePath(o.engine, SystemClock()));
  }
  TACTUS_RETURN_IF_ERROR(CheckWritable(file, "output"));
  std::optional<ProgressLine> progress;  // while steps are measured
  engine::ProfileOptions options;
  options.time_limit_ns = o.time_limit.ns;
  options.max_points = o.max_points;
  options.max_context = o.max_context;
  options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  options.progress = [&progress](const engine::ProfileProgress& p) {
    if (!progress) {
      CatchInterrupt();  // until here the model was loading
      progress.emplace(SystemClock());
    }
    progress->ShowShare(p.share, fmt::format("{} of {} steps, round {}", p.points, p.of, p.round));
    return InterruptCount() == 0;
  };
  auto measured = engine::ProfileModel(o.engine, options, SystemClock());
  progress.reset();
  if (!measured.ok()) return measured.status();
  *interrupted = measured->interrupted;
  // A profile that cannot be fitted never replaces a valid one.
  auto fitted = engine::FitMeasured(&*measured);
  if (!fitted.ok()) return TooFewRows(o, file, *measured, fitted.status());
  TACTUS_RETURN_IF_ERROR(ReplaceFile(file, engine::ProfileText(*measured), "output"));
  std::fprintf(stderr, "%s%zu steps in %s\n", measured->interrupted ? "interrupted; kept: " : "",
               measured->samples.size(), file.c_str());
  TACTUS_ASSIGN_OR_RETURN(const auto spread, cost::NotedSpread(measured->remarks));
  TACTUS_ASSIGN_OR_RETURN(const auto overlap, cost::NotedOverlap(measured->remarks));
  std::fprintf(stderr, "%s%s\n", (*fitted)->Describe().c_str(),
               spread ? ("; deviation of single steps:  " + cost::SpreadText(*spread)).c_str() : "");
  if (overlap) {
    std::fprintf(stderr, "steps in two parts: interference %.2f (--overlap-interference), faster from %lld tokens on\n",
                 overlap->interference, static_cast<long long>(overlap->least_split_tokens));
  }
  if (o.json) {
    const auto& e = (*fitted)->error();
    std::printf("%s\n", Json{{"file", file},
                             {"rows", e.rows},
                             {"interrupted", measured->interrupted},
                             {"median_error", e.fit_median},
                             {"left_out_median_error", e.left_out_median},
                             {"left_out_p90_error", e.left_out_p90},
                             {"spread", SpreadJson(spread)},
                             {"overlap", OverlapJson(overlap)}}
                            .dump(-1, ' ', false, Json::error_handler_t::replace)
                            .c_str());
  } else {
    std::printf("%s\n", file.c_str());
  }
  return Status();
}

}  // namespace

int ProfileCommand(const Args& args) {
  ProfileCommandOptions options;
  CommandLine line("profile", "[MODEL] [options]",
                   "Measures a model's step times on this machine, for --tbt-slo and simulations.");
  line.Add(options);
  line.Common(EngineCommon({"output", "time-limit", "max-points", "max-context", "json"}));
  line.Positional(
      "MODEL", &options.engine.model, false,
      "a GGUF file, a Hugging Face folder, a name of `tactus models list`, or a model to download: hf:org/name, "
      "a URL or a name of `tactus pull --list`; default: smollm2-135m");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  bool interrupted = false;
  const Status status = Profile(options, &interrupted);
  if (!status.ok()) std::fprintf(stderr, "tactus profile: %s\n", status.message().c_str());
  if (interrupted) return kExitInterrupted;
  return status.ok() ? kExitOk : status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace tactus::cli
