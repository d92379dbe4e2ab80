// `tactus fit`: finds how many concurrent requests a model serves within objectives, on this machine (measured step
// times) or on another device (cost model).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/commands/remote_model.h"
#include "cli/commands/sim_commands.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/search/capacity.h"
#include "compute/exec/make_backend.h"
#include "compute/weights/model_description.h"
#include "engine/output_rules.h"
#include "engine/step_times/profile_model.h"

namespace tactus::cli {
namespace {

constexpr const char* kFitName = "fit";

struct FitOptions : SimCommandOptions {
  double share = 99;
  int64_t most = 1024;

  FitOptions() { seeds = 3; }

  template <class V>
  void VisitFields(V& v) {
    v.Group("Fit");
    v.Field(
        "share", share,
        {.unit = "%", .min = 1, .max = 100, .help = "share of the requests that must meet every objective of --slo"});
    v.Field("most", most,
            {.unit = "requests", .min = 1, .max = 65'536, .help = "largest number of requests in flight to try"});
    SimCommandOptions::VisitFields(v);
  }
};

bool IsThisMachine(const sim::SimOptions& o) {
  return o.device.empty() || o.device == "cpu";
}

// Sets step times and KV memory of a server on this machine as options of a simulation.
Status UseThisMachine(sim::SimOptions* o) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, LocalModel(o->model));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  EngineOptions engine;
  engine.model = path;
  if (!description.weights_status.ok()) engine.load_format = "dummy";
  TACTUS_ASSIGN_OR_RETURN(const auto backend, compute::MakeBackend(engine, description, SystemClock()));
  const BackendInfo info = backend->Info();

  const bool named = o->cost != "auto";
  const std::string file = named ? o->cost : engine::DefaultProfilePath(path, info.profile.name);
  const auto profile = cost::LoadStepProfile(file);
  if (!profile.ok() && profile.status().code() == StatusCode::kNotFound && !named) {
    return NotFound(
        fmt::format("no step times of this model on this machine at '{0}': measure them with 'tactus profile "
                    "{1}', or name another --device",
                    file, Printable(o->model.empty() ? path : o->model)),
        "cost");
  }
  if (!profile.ok()) return profile.status();
  o->cost = file;
  o->model.clear();
  o->device.clear();

  // The memory plan needs the largest step, which the scheduler's options define.
  sim::SimOptions ask = *o;
  ask.concurrency = 1;
  ask.kv_blocks = 1 << 20;
  if (ask.max_model_len == 0) ask.max_model_len = description.config.max_position;
  TACTUS_ASSIGN_OR_RETURN(const sim::SimSetup asked, SetUp(ask));
  MemoryDemand demand;
  demand.max_model_len = o->max_model_len;
  demand.max_num_seqs = o->max_num_seqs;
  demand.block_size = static_cast<int32_t>(o->block_size);
  demand.kv_bytes = engine.kv_cache_memory.bytes;
  demand.front_end_bytes = engine.front_end_bytes;
  demand.rules_bytes = engine::OutputRulesMemory::Of(description.config.vocab_size, AvailableMemoryBytes()).total();
  TACTUS_ASSIGN_OR_RETURN(demand.max_step_tokens, sim::MaxStepTokens(asked));
  TACTUS_ASSIGN_OR_RETURN(const MemoryGrant memory, backend->PlanMemory(demand));
  if (o->kv_blocks == 0) o->kv_blocks = memory.num_blocks;
  o->max_model_len = memory.max_model_len;
  std::fprintf(stderr, "%s\n%s\n", info.summary.c_str(), memory.text.c_str());
  return Status();
}

Status Check(const FitOptions& o) {
  if (o.sim.slo.empty() && o.sim.slo_mix.empty())
    return InvalidArgument("--slo is missing: give each request's objectives, such as ttft=2s,tbt=50ms", "slo");
  if (o.sim.rate > 0 || o.sim.concurrency > 0) {
    return InvalidArgument("fit searches for the number of requests in flight: leave --rate and --concurrency out",
                           o.sim.rate > 0 ? "rate" : "concurrency");
  }
  return CheckForMany(o);
}

Result<CapacityOptions> QuestionOf(const FitOptions& o) {
  CapacityOptions question;
  static_cast<SimCommandOptions&>(question) = o;
  question.over = "concurrency";
  question.until = fmt::format("attainment>={}%", o.share);
  question.to = static_cast<double>(o.most);
  if (IsThisMachine(o.sim)) TACTUS_RETURN_IF_ERROR(UseThisMachine(&question.sim));
  return question;
}

std::string RowText(const char* what, const Json& result) {
  const auto value = [&result](const char* metric) {
    const auto parsed = results::RunMetric::Parse(metric);
    const auto found = parsed->Value(result);
    return found ? results::MetricText(*found, parsed->info().unit) : std::string("-");
  };
  return fmt::format("  {}: attainment {}, TTFT P50 {} P99 {}, gap P50 {} P99 {}, {} output tokens\n", what,
                     value("attainment"), value("p50(ttft)"), value("p99(ttft)"), value("p50(tbt)"), value("p99(tbt)"),
                     value("output_throughput"));
}

int Fit(const FitOptions& o) {
  const auto fail = [](const Status& status) { return FailOf(kFitName, status, ExitCodeOf(status)); };
  if (const Status status = Check(o); !status.ok()) return fail(status);
  const auto question = QuestionOf(o);
  if (!question.ok()) return fail(question.status());
  const auto cases = FindCapacities(*question, {});
  if (!cases.ok()) return fail(cases.status());
  const CapacityCase& found = cases->front();
  const std::string none = WhyNone(*question, found);

  // The number that every seed sustains; a lower bound if no seed reached its limit.
  int64_t holds = 0;
  bool at_least = true;
  if (std::all_of(found.seeds.begin(), found.seeds.end(),
                  [](const SeedOutcome& s) { return s.status.ok() && s.found.finished && s.found.held; })) {
    const std::vector<double> values = HeldValues(found);
    holds = static_cast<int64_t>(*std::min_element(values.begin(), values.end()));
    for (const SeedOutcome& s : found.seeds) at_least = at_least && !s.found.broke;
  }
  const std::string device = IsThisMachine(o.sim) ? "this machine" : o.sim.device;
  if (!o.json && holds > 0) {
    std::printf("%s holds %s%lld such requests at once (workload %s, %s)\n", device.c_str(),
                at_least ? "at least " : "", static_cast<long long>(holds), o.sim.workload.c_str(),
                o.sim.slo.empty() ? o.sim.slo_mix.c_str() : o.sim.slo.c_str());
    const SeedOutcome& least =
        *std::min_element(found.seeds.begin(), found.seeds.end(),
                          [](const SeedOutcome& a, const SeedOutcome& b) { return *a.found.held < *b.found.held; });
    std::printf("%s", RowText(fmt::format("{:.0f} in flight", least.held->value).c_str(), least.held->result).c_str());
    if (least.broke)
      std::printf("%s",
                  RowText(fmt::format("{:.0f} in flight", least.broke->value).c_str(), least.broke->result).c_str());
  }
  const Json capacity = CapacityJson(*question, {}, found, found);
  const Json result = {{"model", o.sim.model},
                       {"device", IsThisMachine(o.sim) ? "cpu" : o.sim.device},
                       {"workload", o.sim.workload},
                       {"slo", o.sim.slo.empty() ? Json(nullptr) : Json(o.sim.slo)},
                       {"until", capacity["until"]},
                       {"holds", holds > 0 ? Json(holds) : Json(nullptr)},
                       {"at_least", holds > 0 && at_least},
                       {"why_none", holds > 0 ? Json(nullptr) : Json(none)},
                       {"seeds", capacity["seeds"]}};
  if (const Status written = WriteResult(result, o.json, o.output); !written.ok())
    return FailOf(kFitName, written, kExitFailed);
  if (InterruptCount() > 0) return kExitInterrupted;
  if (holds > 0) return kExitOk;
  return FailOf(kFitName, InvalidArgument(device + " holds none: " + none), kExitFailed);
}

}  // namespace

int FitCommand(const Args& args) {
  FitOptions options;
  CommandLine line("fit", "[MODEL] [--device D] --slo ttft=2s,tbt=50ms [--workload W] [options]",
                   "Finds how many concurrent requests are served within objectives.");
  line.Add(options);
  line.Common(SimCommon({"share", "most"}));
  line.Epilog(
      "\nWithout --device: on this machine, with the step times that `tactus profile` measured and the memory that "
      "`tactus serve`\nwould use. With --device: by the cost model, MODEL as in `tactus sim --model`.\n");
  line.Positional("MODEL", &options.sim.model, false,
                  "same as --model; without --device a name of `tactus models list`, a folder or a file");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  return Fit(options);
}

}  // namespace tactus::cli
