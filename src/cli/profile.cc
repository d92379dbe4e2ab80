// `tactus profile`: step times of a model on this machine, as a CSV file that `tactus serve` and `tactus sim` read.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_binding.h"
#include "engine/profile_model.h"
#include "kernels/thread_pool.h"
#include "model/catalog.h"

namespace tactus::cli {
namespace {

struct ProfileCommandOptions {
  std::string out, device = "cpu";
  DurationText time_limit{120 * kSecond};
  int64_t max_points = 120, max_context = 4096;
  bool json = false;
  EngineOptions engine;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Profile");
    v.Field("output", out, {.alias = "o", .help = "the CSV file; default: where `tactus serve` looks for this model's profile"});
    v.Field("device", device, {.choices = "cpu", .help = "what to measure"});
    v.Field("time-limit", time_limit, {.unit = "duration", .help = "measure for so long, loading not counted"});
    v.Field("max-points", max_points, {.unit = "steps", .min = 12, .max = 100000, .help = "different steps to measure, at most"});
    v.Field("max-context", max_context, {.unit = "tokens", .min = 16, .max = 1 << 24, .help = "longest sequence that is measured"});
    v.Field("json", json, {.help = "print what was found as one JSON object on stdout"});
    engine.VisitFields(v);
  }
};

// A bar that redraws itself on a terminal; elsewhere a line every tenth of the way.
class ProgressBar {
 public:
  void Show(const ProfileProgress& p) {
    const int percent = static_cast<int>(100 * p.share);
    const std::string text = fmt::format("{} of {} steps, round {}, {:.0f} s", p.points, p.of, p.round, static_cast<double>(p.elapsed_ns) * 1e-9);
    if (terminal_) {
      const auto filled = static_cast<size_t>(percent / 4);
      std::fprintf(stderr, "\r[%s%s] %3d %%  %s ", std::string(filled, '#').c_str(), std::string(25 - filled, ' ').c_str(), percent, text.c_str());
    } else if (percent / 10 > shown_) {
      shown_ = percent / 10;
      std::fprintf(stderr, "%3d %%: %s\n", percent, text.c_str());
    }
  }
  void End() const {
    if (terminal_) std::fprintf(stderr, "\n");
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  int shown_ = 0;
};

Status WriteFile(const std::string& path, const std::string& text) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? Status() : InvalidArgument(fmt::format("cannot write '{}'", path), "output");
}

Status Profile(ProfileCommandOptions* o, bool* interrupted) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, ResolveModel(o->engine.model));
  if (o->out.empty()) {
    const auto threads = o->engine.threads > 0 ? static_cast<int32_t>(o->engine.threads) : kernels::UsableCores();
    o->out = DefaultProfilePath(path, threads);
  }
  CatchInterrupt();
  ProgressBar bar;
  ProfileOptions options;
  options.time_limit_ns = o->time_limit.ns;
  options.max_points = o->max_points;
  options.max_context = o->max_context;
  options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  options.progress = [&bar](const ProfileProgress& p) {
    bar.Show(p);
    return InterruptCount() == 0;
  };
  auto measured = ProfileModel(o->engine, options);
  bar.End();
  if (!measured.ok()) return measured.status();
  *interrupted = measured->interrupted;
  TACTUS_RETURN_IF_ERROR(WriteFile(o->out, ProfileText(*measured)));
  std::fprintf(stderr, "%s%zu steps in %s\n", measured->interrupted ? "interrupted; kept: " : "", measured->samples.size(), o->out.c_str());
  // The file as others will read it.
  auto fitted = cost::LoadStepProfile(o->out);
  if (!fitted.ok()) return fitted.status();
  std::fprintf(stderr, "%s\n", (*fitted)->Describe().c_str());
  if (o->json) {
    const auto& e = (*fitted)->error();
    std::printf("%s\n", nlohmann::ordered_json{{"file", o->out},
                                               {"rows", e.rows},
                                               {"interrupted", measured->interrupted},
                                               {"median_error", e.fit_median},
                                               {"left_out_median_error", e.left_out_median},
                                               {"left_out_p90_error", e.left_out_p90}}
                            .dump()
                            .c_str());
  } else {
    std::printf("%s\n", o->out.c_str());
  }
  return Status();
}

}  // namespace

int ProfileCommand(const Args& args) {
  ProfileCommandOptions options;
  CommandLine line("profile", "[MODEL] [options]", "Measures a model's step times on this machine, for budgets and simulations.");
  line.Add(options);
  line.Positional("MODEL", &options.engine.model, false, "a GGUF file, a Hugging Face folder, or a name of `tactus models list`");
  switch (line.Parse(args)) {
    case CommandLine::Outcome::kDone:
      return kExitOk;
    case CommandLine::Outcome::kBadUsage:
      return kExitUsage;
    case CommandLine::Outcome::kRun:
      break;
  }
  bool interrupted = false;
  const Status status = Profile(&options, &interrupted);
  if (!status.ok()) std::fprintf(stderr, "tactus profile: %s\n", status.message().c_str());
  return interrupted ? kExitInterrupted : status.ok() ? kExitOk : kExitFailed;
}

}  // namespace tactus::cli
