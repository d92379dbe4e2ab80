// `tactus sim capacity`: the largest arrival rate (or concurrency) at which a condition on the run still holds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/interrupt.h"
#include "cli/sim_cases.h"
#include "cli/sim_commands.h"
#include "obs/run_condition.h"
#include "obs/seed_interval.h"
#include "sim/find_largest.h"
#include "sim/run_many.h"

namespace tactus::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastRate = 0.01, kMostRate = 10'000;
constexpr double kMostConcurrency = 65'536;

struct CapacityOptions : SimManyOptions {
  std::string until, over = "rate";
  double from = 0, to = 0, tolerance = 2;

  CapacityOptions() { seeds = 3; }

  template <class V>
  void VisitFields(V& v) {
    v.Group("Search");
    v.Field("until", until,
            {.help = "what must hold: 'p99(tbt)<=100ms and p50(delay)<=2s and rejected==0'; or sarathi-strict, "
                     "sarathi-relaxed: the objectives of Sarathi-Serve, 5 and 25 times a step of 32 decodes behind "
                     "4,096 tokens as p99(tbt), and p50(delay)<=2s"});
    v.Field("over", over, {.choices = "rate|concurrency", .help = "what is searched: --rate or --concurrency"});
    v.Field("from", from, {.min = 0, .max = 1e6, .help = "the lowest value that is tried; 0: 0.01 requests/s, or 1"});
    v.Field("to", to, {.min = 0, .max = 1e6, .help = "the highest; 0: 10,000 requests/s, or 65,536 in flight"});
    v.Field("tolerance", tolerance,
            {.unit = "%",
             .min = 0.01,
             .max = 50,
             .help = "how far the highest that held may be below the lowest that broke"});
    SimManyOptions::VisitFields(v);
  }
};

// The objectives of Sarathi-Serve (table 3) for this deployment, by the cost model's own time of the step that they are
// multiples of.
std::array<NamedCondition, 2> SarathiObjectives(const StepTimeModel& times) {
  constexpr int64_t kDecodes = 32, kContext = 4096;
  StepShape step;
  step.decodes = step.logit_rows = kDecodes;
  step.decode_context_tokens = kDecodes * (kContext + 1);
  const double step_ms = static_cast<double>(times.StepTimeNs(step)) * 1e-6;
  const auto text = [step_ms](int factor) {
    return fmt::format("p99(tbt)<={:.4g}ms and p50(delay)<=2s", factor * step_ms);
  };
  return {NamedCondition{"sarathi-strict", text(5)}, NamedCondition{"sarathi-relaxed", text(25)}};
}

// One value that was tried.
struct Probe {
  double value = 0;
  std::vector<RunCondition::Verdict> verdicts;
  Json result;
  std::string nothing_completed;  // why, where that is so
  bool held() const {
    return std::all_of(verdicts.begin(), verdicts.end(), [](const auto& verdict) { return verdict.held; });
  }
};

struct SeedOutcome {
  Status status;  // not ok: a run could not be made
  Largest found;
  std::optional<Probe> held, broke;
};

// What is asked of one configuration.
struct CapacityCase {
  SimCase of;
  std::string name;  // of what is varied; may be empty
  Status status;     // not ok: it cannot be set up
  std::optional<RunCondition> condition;
  std::vector<SeedOutcome> seeds;
};

bool OverRate(const CapacityOptions& o) {
  return o.over == "rate";
}

std::string ValueText(const CapacityOptions& o, double value) {
  return OverRate(o) ? fmt::format("{:.4g} requests/s", value) : fmt::format("{:.0f} in flight", value);
}

LargestRange RangeOf(const CapacityOptions& o) {
  LargestRange range;
  range.low = o.from > 0 ? o.from : OverRate(o) ? kLeastRate : 1;
  range.high = o.to > 0 ? o.to : OverRate(o) ? kMostRate : kMostConcurrency;
  range.start = OverRate(o) ? 1 : 8;
  range.tolerance = o.tolerance / 100;
  range.whole = !OverRate(o);
  return range;
}

// The options of one run.
SimOptions At(const CapacityOptions& o, const SimCase& of, double value, size_t seed) {
  SimOptions options = of.options;
  if (OverRate(o)) {
    options.rate = value;
  } else {
    options.concurrency = static_cast<int64_t>(value);
  }
  options.seed += static_cast<int64_t>(seed);
  return options;
}

class CapacitySearch {
 public:
  CapacitySearch(const CapacityOptions& options, std::vector<CapacityCase>* cases) : o_(options), cases_(*cases) {}

  void Run() {
    const auto seeds = static_cast<size_t>(o_.seeds);
    for (CapacityCase& c : cases_) c.seeds.resize(seeds);
    ForEachOnThreads(cases_.size() * seeds, ThreadsOf(o_), [&](size_t i) { RunSeed(&cases_[i / seeds], i % seeds); });
  }

 private:
  void RunSeed(CapacityCase* c, size_t seed) {
    SeedOutcome& out = c->seeds[seed];
    if (!c->status.ok()) return;
    auto found = FindLargest(RangeOf(o_), [&](double value) -> Result<bool> {
      TACTUS_ASSIGN_OR_RETURN(Probe probe, Try(*c, value, seed));
      Say(*c, seed, probe);
      const bool held = probe.held();
      (held ? out.held : out.broke) = std::move(probe);
      return held;
    });
    if (found.ok()) {
      out.found = *found;
    } else {
      out.status = found.status();
    }
  }

  Result<Probe> Try(const CapacityCase& c, double value, size_t seed) const {
    const Status stopped(StatusCode::kCancelled, "interrupted");
    if (InterruptCount() > 0) return stopped;
    TACTUS_ASSIGN_OR_RETURN(
        SimReport report, RunCase(At(o_, c.of, value, seed), [](const SimProgress&) { return InterruptCount() == 0; }));
    if (!report.finished || InterruptCount() > 0) return stopped;
    Probe probe{value, c.condition->Check(report.json), std::move(report.json), ""};
    if (const Status completed = CheckCompleted(report.run); !completed.ok())
      probe.nothing_completed = completed.message();
    return probe;
  }

  void Say(const CapacityCase& c, size_t seed, const Probe& probe) {
    std::string text = "holds";
    for (size_t i = 0; i < probe.verdicts.size(); ++i) {
      if (probe.verdicts[i].held) continue;
      text = "breaks " + VerdictText(c.condition->clauses()[i], probe.verdicts[i]);
      break;
    }
    const std::lock_guard lock(say_);
    std::fprintf(stderr, "%s%sseed %lld: %s %s\n", c.name.c_str(), c.name.empty() ? "" : " ",
                 static_cast<long long>(c.of.options.seed + static_cast<int64_t>(seed)),
                 ValueText(o_, probe.value).c_str(), text.c_str());
  }

  const CapacityOptions& o_;
  std::vector<CapacityCase>& cases_;
  std::mutex say_;
};

std::string BrokenText(const CapacityCase& c, const Probe& probe) {
  std::string text;
  for (size_t i = 0; i < probe.verdicts.size(); ++i) {
    if (probe.verdicts[i].held) continue;
    text += (text.empty() ? "" : "; ") + VerdictText(c.condition->clauses()[i], probe.verdicts[i]);
  }
  if (!probe.nothing_completed.empty()) text += "; " + probe.nothing_completed;
  return text;
}

// Why a configuration has no capacity; "": it has one.
std::string WhyNone(const CapacityOptions& o, const CapacityCase& c) {
  if (!c.status.ok()) return c.status.message();
  for (const SeedOutcome& s : c.seeds) {
    if (!s.status.ok()) return s.status.message();
    if (!s.found.finished) return "interrupted";
    if (!s.found.held)
      return fmt::format("even the lowest, {}, breaks {}", ValueText(o, s.broke->value), BrokenText(c, *s.broke));
    if (!s.found.broke) {
      return fmt::format(
          "even the highest, {}, holds: raise --to, make the load longer than queues take to grow "
          "(--requests), or state what an overload breaks, such as p50(delay)<=2s",
          ValueText(o, s.held->value));
    }
  }
  return "";
}

std::vector<double> HeldValues(const CapacityCase& c) {
  std::vector<double> values;
  for (const SeedOutcome& s : c.seeds) values.push_back(*s.found.held);
  return values;
}

Json ProbeJson(const CapacityCase& c, const std::optional<Probe>& probe) {
  if (!probe) return nullptr;
  Json clauses = Json::array();
  for (size_t i = 0; i < probe->verdicts.size(); ++i) {
    const auto& verdict = probe->verdicts[i];
    clauses.push_back({{"clause", c.condition->clauses()[i].text},
                       {"held", verdict.held},
                       {"value", verdict.value ? Json(*verdict.value) : Json(nullptr)}});
  }
  return {{"value", probe->value}, {"clauses", std::move(clauses)}, {"result", probe->result}};
}

Json CaseJson(const CapacityOptions& o, const std::vector<VariedFlag>& varied, const CapacityCase& c,
              const CapacityCase& first) {
  Json j;
  j["options"] = Json::object();
  for (size_t i = 0; i < varied.size(); ++i) j["options"][varied[i].name] = c.of.values[i];
  j["until"] = c.condition ? Json(c.condition->Text()) : Json(nullptr);
  const std::string none = WhyNone(o, c);
  j["capacity"] = none.empty() ? IntervalJson(MeanOver(HeldValues(c))) : Json(nullptr);
  j["why_none"] = none.empty() ? Json(nullptr) : Json(none);
  j["of_first"] = nullptr;
  if (none.empty() && &c != &first && WhyNone(o, first).empty()) {
    if (const auto ratio = RatioOver(HeldValues(c), HeldValues(first), true)) j["of_first"] = IntervalJson(*ratio);
  }
  Json seeds = Json::array();
  for (size_t i = 0; i < c.seeds.size(); ++i) {
    const SeedOutcome& s = c.seeds[i];
    seeds.push_back({{"seed", c.of.options.seed + static_cast<int64_t>(i)},
                     {"held", ProbeJson(c, s.held)},
                     {"broke", ProbeJson(c, s.broke)}});
  }
  j["seeds"] = std::move(seeds);
  return j;
}

std::string IntervalText(const Json& value, const char* unit) {
  std::string text = fmt::format("{:.4g}{}", value["mean"].get<double>(), unit);
  if (!value["low"].is_null())
    text += fmt::format(" (95 % interval {:.4g} to {:.4g})", value["low"].get<double>(), value["high"].get<double>());
  return text;
}

void PrintCase(const CapacityOptions& o, const CapacityCase& c, const Json& j) {
  const std::string name = c.name.empty() ? "" : c.name + ": ";
  if (j["capacity"].is_null()) {
    std::printf("%sno capacity: %s\n", name.c_str(), j["why_none"].get<std::string>().c_str());
    return;
  }
  const Probe& broke = *c.seeds.front().broke;
  std::string text = IntervalText(j["capacity"], OverRate(o) ? " requests/s" : " in flight");
  if (!j["of_first"].is_null()) text += ", " + IntervalText(j["of_first"], " times the first");
  text += fmt::format("; {} breaks {}", ValueText(o, broke.value), BrokenText(c, broke));
  if (const Json& cost = c.seeds.front().held->result["cost_per_million_tokens"]; !cost.is_null())
    text += fmt::format("; {:.4g} per million tokens", cost.get<double>());
  std::printf("%scapacity %s\n", name.c_str(), text.c_str());
}

// A load that ends before a queue could grow has no capacity worth the name.
void WarnOfShortLoad(const CapacityCase& c, double rate) {
  constexpr double kTimes = 10;
  const Json& result = c.seeds.front().held->result;
  if (result["e2e_ms"].is_null()) return;
  const double load_s = static_cast<double>(result["requests"]["completed"].get<int64_t>()) / rate;
  const double request_s = result["e2e_ms"]["mean"].get<double>() / 1000;
  if (load_s >= kTimes * request_s || request_s <= 0) return;
  std::fprintf(stderr,
               "%s%sthe load lasts %.3g s at this rate, %.2g times what a request takes: queues have little time to "
               "grow, and a longer load (--requests) may have less capacity\n",
               c.name.c_str(), c.name.empty() ? "" : ": ", load_s, load_s / request_s);
}

Result<std::vector<CapacityCase>> MakeCapacityCases(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<SimCase> cases, MakeCases(o.sim, varied, o.seeds, o.most_runs));
  std::vector<CapacityCase> out;
  for (const SimCase& c : cases) {
    out.push_back({c, CaseText(varied, c), Status(), std::nullopt, {}});
    const auto setup = SetUp(At(o, c, RangeOf(o).low, 0));
    if (!setup.ok()) {
      if (cases.size() == 1) return setup.status();
      out.back().status = setup.status();
      continue;
    }
    if (cases.size() == 1) {
      for (const std::string& note : setup->notes) std::fprintf(stderr, "%s\n", note.c_str());
    }
    TACTUS_ASSIGN_OR_RETURN(out.back().condition, RunCondition::Parse(o.until, SarathiObjectives(*setup->step_time)));
  }
  return out;
}

Status Check(const CapacityOptions& o) {
  if (o.until.empty())
    return InvalidArgument("--until is missing: what must hold, such as 'p99(tbt)<=100ms and p50(delay)<=2s'", "until");
  if (o.sim.rate > 0 || o.sim.concurrency > 0) {
    const char* flag = o.sim.rate > 0 ? "rate" : "concurrency";
    return InvalidArgument(fmt::format("--{0} is what capacity searches: leave it out (--from and --to bound it{1})",
                                       flag, flag == o.over ? "" : fmt::format("; --over {} searches this one", flag)),
                           flag);
  }
  if (o.over == "concurrency" && (o.from != std::floor(o.from) || o.to != std::floor(o.to)))
    return InvalidArgument("--from and --to are whole numbers with --over concurrency", "from");
  const LargestRange range = RangeOf(o);
  if (range.low > range.high)
    return InvalidArgument(fmt::format("--from {:g} is above --to {:g}", range.low, range.high), "from");
  TACTUS_RETURN_IF_ERROR(CheckForMany(o));
  // Wrong text is found before any model is built.
  const auto names =
      std::array{NamedCondition{"sarathi-strict", "rejected==0"}, NamedCondition{"sarathi-relaxed", "rejected==0"}};
  if (const auto parsed = RunCondition::Parse(o.until, names); !parsed.ok())
    return InvalidArgument("--until: " + parsed.status().message(), "until");
  return Status();
}

Status CheckVaried(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
  for (const VariedFlag& flag : varied) {
    if (flag.name == "rate" || flag.name == "concurrency")
      return InvalidArgument(fmt::format("--vary {}: that is for sweeps; capacity searches --{}", flag.name, o.over),
                             "vary");
  }
  return Status();
}

int Search(const CapacityOptions& o) {
  constexpr const char* kName = "sim capacity";
  if (const Status status = Check(o); !status.ok()) return FailOf(kName, status, ExitCodeOf(status));
  const auto varied = ParseVaried(o.sim, o.vary);
  if (!varied.ok()) return FailOf(kName, varied.status(), kExitUsage);
  if (const Status status = CheckVaried(o, *varied); !status.ok()) return FailOf(kName, status, kExitUsage);
  auto cases = MakeCapacityCases(o, *varied);
  if (!cases.ok()) return FailOf(kName, cases.status(), ExitCodeOf(cases.status()));
  CapacitySearch search(o, &*cases);
  std::fprintf(stderr, "%zu configurations, %lld seeds each, about a dozen runs per seed, on %d threads\n",
               cases->size(), static_cast<long long>(o.seeds), ThreadsOf(o));
  CatchInterrupt();
  search.Run();

  Json result = {{"until", o.until}, {"over", o.over}, {"tolerance", o.tolerance / 100}, {"workload", o.sim.workload}};
  Json list = Json::array();
  size_t found = 0;
  for (const CapacityCase& c : *cases) {
    list.push_back(CaseJson(o, *varied, c, cases->front()));
    if (!list.back()["capacity"].is_null()) {
      ++found;
      if (OverRate(o)) WarnOfShortLoad(c, *c.seeds.front().found.held);
    }
    if (!o.json) PrintCase(o, c, list.back());
  }
  result["configurations"] = std::move(list);
  if (const Status written = WriteResult(result, o.json, o.output); !written.ok())
    return FailOf(kName, written, kExitFailed);
  if (InterruptCount() > 0) return kExitInterrupted;
  if (found == 0) {
    return FailOf(kName,
                  InvalidArgument(cases->size() == 1 ? WhyNone(o, cases->front()) : "no configuration has a capacity"),
                  kExitFailed);
  }
  return kExitOk;
}

}  // namespace

int SimCapacityCommand(const Args& args) {
  CapacityOptions options;
  CommandLine line("sim capacity", "--until CONDITION --model M --device D --workload W [options]",
                   "Finds the largest rate at which a condition on the run holds, by bisection, for each seed.");
  line.Add(options);
  line.Epilog("\nIn --until: " + MetricNames() +
              ". By class: p99(ttft, CLASS), attainment(CLASS). docs/searches.md has the rules.\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  return Search(options);
}

}  // namespace tactus::cli
