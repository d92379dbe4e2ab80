#include "cli/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "cli/interrupt.h"
#include "obs/seed_interval.h"
#include "sim/run_many.h"

namespace tactus::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastRate = 0.01, kMostRate = 10'000;
constexpr double kMostConcurrency = 65'536;

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

bool OverRate(const CapacityOptions& o) {
  return o.over == "rate";
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

// No more are in flight than there are.
LargestRange RangeOf(const CapacityOptions& o, const CapacityCase& c) {
  LargestRange range = RangeOf(o);
  if (range.whole) range.high = std::clamp(static_cast<double>(c.requests), range.low, range.high);
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
    auto found = FindLargest(RangeOf(o_, *c), [&](double value) -> Result<bool> {
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

Result<std::vector<CapacityCase>> MakeCapacityCases(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<SimCase> cases, MakeCases(o.sim, varied, o.seeds, o.most_runs));
  std::vector<CapacityCase> out;
  for (const SimCase& c : cases) {
    out.push_back({.of = c, .name = CaseText(varied, c)});
    const auto setup = SetUp(At(o, c, RangeOf(o).low, 0));
    if (!setup.ok()) {
      if (cases.size() == 1) return setup.status();
      out.back().status = setup.status();
      continue;
    }
    out.back().requests = setup->workload->count();
    if (cases.size() == 1) {
      for (const std::string& note : setup->notes) std::fprintf(stderr, "%s\n", note.c_str());
    }
    TACTUS_ASSIGN_OR_RETURN(out.back().condition, RunCondition::Parse(o.until, SarathiObjectives(*setup->step_time)));
  }
  return out;
}

}  // namespace

std::string ValueText(const CapacityOptions& o, double value) {
  return OverRate(o) ? fmt::format("{:.4g} requests/s", value) : fmt::format("{:.0f} in flight", value);
}

std::string BrokenText(const CapacityCase& c, const Probe& probe) {
  std::string text;
  for (size_t i = 0; i < probe.verdicts.size(); ++i) {
    if (probe.verdicts[i].held) continue;
    text += (text.empty() ? "" : "; ") + VerdictText(c.condition->clauses()[i], probe.verdicts[i]);
  }
  if (!probe.nothing_completed.empty()) text += "; " + probe.nothing_completed;
  return text;
}

std::string WhyNone(const CapacityOptions& o, const CapacityCase& c) {
  if (!c.status.ok()) return c.status.message();
  for (const SeedOutcome& s : c.seeds) {
    if (!s.status.ok()) return s.status.message();
    if (!s.found.finished) {
      return fmt::format("interrupted; the largest that held: {}, the least that broke: {}",
                         s.held ? ValueText(o, s.held->value) : "none",
                         s.broke ? ValueText(o, s.broke->value) : "none");
    }
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

Json CapacityJson(const CapacityOptions& o, const std::vector<VariedFlag>& varied, const CapacityCase& c,
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

Status CheckCapacity(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
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
  for (const VariedFlag& flag : varied) {
    if (flag.name == "rate" || flag.name == "concurrency")
      return InvalidArgument(fmt::format("--vary {}: that is for sweeps; capacity searches --{}", flag.name, o.over),
                             "vary");
  }
  return Status();
}

Result<std::vector<CapacityCase>> FindCapacities(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
  TACTUS_ASSIGN_OR_RETURN(std::vector<CapacityCase> cases, MakeCapacityCases(o, varied));
  std::fprintf(stderr, "%zu %s, %lld %s each, about a dozen runs per seed, on %d threads\n", cases.size(),
               cases.size() == 1 ? "configuration" : "configurations", static_cast<long long>(o.seeds),
               o.seeds == 1 ? "seed" : "seeds", ThreadsOf(o));
  CatchInterrupt();
  CapacitySearch(o, &cases).Run();
  return cases;
}

}  // namespace tactus::cli
