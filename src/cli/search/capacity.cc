#include "cli/search/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/output_file.h"
#include "cli/options/interrupt.h"
#include "cli/options/progress_line.h"
#include "cli/search/sweep_table.h"
#include "results/report/seed_interval.h"
#include "sim/simulator/run_many.h"

namespace tactus::cli {
namespace {

constexpr double kLeastRate = 0.01, kMostRate = 10'000;
constexpr double kMostConcurrency = 65'536;

// The objectives of Sarathi-Serve (table 3) for this deployment: multiples of a reference step, priced by the cost
// model.
std::array<results::NamedCondition, 2> SarathiObjectives(const StepTimeModel& times) {
  constexpr int64_t kDecodes = 32, kContext = 4096;
  StepShape step;
  step.decodes = step.logit_rows = kDecodes;
  step.decode_context_tokens = kDecodes * (kContext + 1);
  const double step_ms = static_cast<double>(times.StepTimeNs(step)) * 1e-6;
  const auto text = [step_ms](int factor) {
    return fmt::format("p99(tbt)<={:.4g}ms and p50(delay)<=2s", factor * step_ms);
  };
  return {results::NamedCondition{"sarathi-strict", text(5)}, results::NamedCondition{"sarathi-relaxed", text(25)}};
}

bool OverRate(const CapacityOptions& o) {
  return o.over == "rate";
}

sim::LargestRange RangeOf(const CapacityOptions& o) {
  sim::LargestRange range;
  range.low = o.from > 0 ? o.from : OverRate(o) ? kLeastRate : 1;
  range.high = o.to > 0 ? o.to : OverRate(o) ? kMostRate : kMostConcurrency;
  range.start = OverRate(o) ? 1 : 8;
  range.tolerance = o.tolerance / 100;
  range.whole = !OverRate(o);
  return range;
}

// The load's request count bounds the concurrency.
sim::LargestRange RangeOf(const CapacityOptions& o, const CapacityCase& c) {
  sim::LargestRange range = RangeOf(o);
  if (range.whole) range.high = std::clamp(static_cast<double>(c.requests), range.low, range.high);
  return range;
}

// The options of one run.
sim::SimOptions At(const CapacityOptions& o, const SimCase& of, double value, size_t seed) {
  sim::SimOptions options = of.options;
  if (OverRate(o)) {
    options.rate = value;
  } else {
    options.concurrency = static_cast<int64_t>(value);
  }
  options.seed += static_cast<int64_t>(seed);
  return options;
}

std::string BrokenText(const CapacityCase& c, const Probe& probe) {
  std::string text;
  for (size_t i = 0; i < probe.verdicts.size(); ++i) {
    if (probe.verdicts[i].held) continue;
    text += (text.empty() ? "" : "; ") + results::VerdictText(c.condition->clauses()[i], probe.verdicts[i]);
  }
  if (!probe.nothing_completed.empty()) text += (text.empty() ? "" : "; ") + probe.nothing_completed;
  return text;
}

// Why a seed has no capacity; empty if it has one.
std::string WhyNone(const CapacityOptions& o, const SeedOutcome& s) {
  if (!s.status.ok()) return s.status.message();
  if (!s.none.empty()) return s.none;
  if (!s.found.finished) {
    return fmt::format("interrupted; largest value that held: {}, smallest that failed: {}",
                       s.held ? ValueText(o, s.held->value) : "none", s.broke ? ValueText(o, s.broke->value) : "none");
  }
  if (!s.found.held) return fmt::format("even the lowest value, {}, fails: {}", ValueText(o, s.broke->value), s.breaks);
  if (!s.found.broke) {
    return fmt::format(
        "even the highest value, {}, holds: raise --to, make the load long enough for queues to grow (--requests), or "
        "give a condition that overload breaks, such as p50(delay)<=2s",
        ValueText(o, s.held->value));
  }
  return "";
}

// The rows of --csv, one per configuration and seed. A row with an error is tried again.
class CapacityTable {
 public:
  static Result<CapacityTable> Open(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
    std::vector<std::string> columns;
    for (const VariedFlag& flag : varied) columns.push_back(flag.name);
    columns.insert(columns.end(), {"seed", "capacity", "breaks_at", "breaks", "no_capacity"});
    for (const results::RunMetric& metric : results::RunMetric::All()) columns.push_back(metric.Name());
    columns.insert(columns.end(), {"error", "base"});
    const std::string base =
        BaseOf(o.sim, varied, fmt::format("{}\n{}\n{}\n{}\n{}", o.until, o.over, o.from, o.to, o.tolerance));
    TACTUS_ASSIGN_OR_RETURN(SweepTable rows, SweepTable::Open(o.csv, std::move(columns), varied.size() + 1, base));
    return CapacityTable(o, base, std::move(rows));
  }

  // Whether the table already has the result; if so, copies it to `out`.
  bool Find(const CapacityCase& c, size_t seed, SeedOutcome* out) const {
    const SweepTable::Row* row = rows_.Find(Key(c, seed));
    if (row == nullptr || !(*row)[row->size() - 2].empty()) return false;
    const std::string* cells = row->data() + Key(c, seed).size();
    const double held = std::strtod(cells[0].c_str(), nullptr), broke = std::strtod(cells[1].c_str(), nullptr);
    out->none = cells[3];
    if (!out->none.empty()) return true;
    if (!(held > 0) || !(broke > held)) return false;
    out->found = {.held = held, .broke = broke, .finished = true};
    out->held = Probe{.value = held};
    out->broke = Probe{.value = broke};
    out->breaks = cells[2];
    for (size_t i = 0; i < metrics_.size(); ++i) {
      if (metrics_[i].Name() == kCost && !cells[4 + i].empty()) out->cost = std::strtod(cells[4 + i].c_str(), nullptr);
    }
    return true;
  }
  Status Add(const CapacityCase& c, size_t seed, const SeedOutcome& s) {
    SweepTable::Row row = Key(c, seed);
    const Status& error = c.status.ok() ? s.status : c.status;
    const std::string none = error.ok() ? WhyNone(o_, s) : error.message();
    const auto number = [](double value) { return fmt::format("{:.17g}", value); };
    row.push_back(none.empty() ? number(*s.found.held) : "");
    row.push_back(s.broke ? number(s.broke->value) : "");
    row.push_back(s.breaks);
    row.push_back(error.ok() ? none : "");
    for (const results::RunMetric& metric : metrics_) {
      const auto value = none.empty() ? metric.Value(s.held->result) : std::nullopt;
      row.push_back(value ? fmt::format("{:.9g}", *value) : "");
    }
    row.push_back(error.message());
    row.push_back(base_);
    return rows_.Add(std::move(row));
  }
  Status Finish(const std::vector<CapacityCase>& cases) {
    std::vector<SweepTable::Row> keys;
    for (const CapacityCase& c : cases) {
      for (size_t seed = 0; seed < c.seeds.size(); ++seed) keys.push_back(Key(c, seed));
    }
    return rows_.Finish(keys);
  }
  static constexpr const char* kCost = "cost";

 private:
  CapacityTable(const CapacityOptions& o, std::string base, SweepTable rows)
      : o_(o), base_(std::move(base)), rows_(std::move(rows)), metrics_(results::RunMetric::All()) {}
  static SweepTable::Row Key(const CapacityCase& c, size_t seed) {
    SweepTable::Row key = c.of.values;
    key.push_back(fmt::format("{}", c.of.options.seed + static_cast<int64_t>(seed)));
    return key;
  }

  const CapacityOptions& o_;
  std::string base_;
  SweepTable rows_;
  std::vector<results::RunMetric> metrics_;
};

// About, see FindLargest.
double RunsPerSearch(const CapacityOptions& o) {
  return 5 + std::log2(70 / o.tolerance);
}

class CapacitySearch {
 public:
  CapacitySearch(const CapacityOptions& options, std::vector<CapacityCase>* cases, CapacityTable* table)
      : o_(options), cases_(*cases), table_(*table), line_(SystemClock()) {}

  // Returns the number of results that the table already has; they are not searched again.
  size_t Begin() {
    size_t found = 0;
    for (CapacityCase& c : cases_) {
      c.seeds.resize(static_cast<size_t>(o_.seeds));
      for (size_t seed = 0; seed < c.seeds.size(); ++seed) found += table_.Find(c, seed, &c.seeds[seed]);
    }
    const auto searches = static_cast<double>(cases_.size() * static_cast<size_t>(o_.seeds) - found);
    expected_runs_ = static_cast<int64_t>(std::ceil(RunsPerSearch(o_) * searches));
    return found;
  }
  // Not ok: the table could not be written.
  Status Run() {
    const auto seeds = static_cast<size_t>(o_.seeds);
    sim::ForEachOnThreads(cases_.size() * seeds, ThreadsOf(o_),
                          [&](size_t i) { RunSeed(&cases_[i / seeds], i % seeds); });
    line_.End();
    return unwritten_.ok() ? table_.Finish(cases_) : unwritten_;
  }

 private:
  void RunSeed(CapacityCase* c, size_t seed) {
    SeedOutcome& out = c->seeds[seed];
    if (out.held || !out.none.empty()) return;  // already in the table
    if (c->status.ok()) Search(c, seed, &out);
    if (c->status.ok() && out.status.ok() && !out.found.finished) return;  // interrupted
    if (out.broke) out.breaks = BrokenText(*c, *out.broke);
    if (out.held) out.cost = results::RunMetric::Parse(CapacityTable::kCost)->Value(out.held->result);
    const std::lock_guard lock(say_);
    if (const Status added = table_.Add(*c, seed, out); !added.ok()) unwritten_ = added;
  }

  void Search(CapacityCase* c, size_t seed, SeedOutcome* out) {
    auto found = sim::FindLargest(RangeOf(o_, *c), [&](double value) -> Result<bool> {
      TACTUS_ASSIGN_OR_RETURN(Probe probe, Try(*c, value, seed));
      Say(*c, seed, probe);
      const bool held = probe.held();
      (held ? out->held : out->broke) = std::move(probe);
      return held;
    });
    if (found.ok()) {
      out->found = *found;
    } else {
      out->status = found.status();
    }
  }

  Result<Probe> Try(const CapacityCase& c, double value, size_t seed) const {
    const Status stopped(StatusCode::kCancelled, "interrupted");
    if (InterruptCount() > 0) return stopped;
    TACTUS_ASSIGN_OR_RETURN(sim::SimReport report, RunCase(At(o_, c.of, value, seed), [](const sim::SimProgress&) {
                              return InterruptCount() == 0;
                            }));
    if (!report.finished || InterruptCount() > 0) return stopped;
    Probe probe{value, c.condition->Check(report.json), std::move(report.json), ""};
    if (const Status completed = sim::CheckCompleted(report.run); !completed.ok())
      probe.nothing_completed = completed.message();
    TACTUS_RETURN_IF_ERROR(CheckKnown(c, probe));
    return probe;
  }

  // An error if the runs have no value for a metric of the condition, which holds for every load.
  static Status CheckKnown(const CapacityCase& c, const Probe& probe) {
    for (size_t i = 0; i < probe.verdicts.size() && probe.nothing_completed.empty(); ++i) {
      if (probe.verdicts[i].value) continue;
      return InvalidArgument(
          fmt::format("--until '{}': the runs have no such metric; objectives need --slo or --slo-mix, a class must "
                      "occur in the load, and a time between tokens needs answers of several tokens",
                      c.condition->clauses()[i].text),
          "until");
    }
    return Status();
  }

  void Say(const CapacityCase& c, size_t seed, const Probe& probe) {
    std::string text = probe.held() ? "holds" : "breaks " + probe.nothing_completed;
    for (size_t i = 0; i < probe.verdicts.size(); ++i) {
      if (probe.verdicts[i].held) continue;
      text = "breaks " + results::VerdictText(c.condition->clauses()[i], probe.verdicts[i]);
      break;
    }
    const std::lock_guard lock(say_);
    ++runs_;
    line_.Clear();
    std::fprintf(stderr, "%s%sseed %lld: %s %s\n", c.name.c_str(), c.name.empty() ? "" : " ",
                 static_cast<long long>(c.of.options.seed + static_cast<int64_t>(seed)),
                 ValueText(o_, probe.value).c_str(), text.c_str());
    // The number is an estimate: a search may need more runs. The line never shows that none is left.
    line_.Show(runs_, std::max(expected_runs_, runs_ + 1), "runs");
  }

  const CapacityOptions& o_;
  std::vector<CapacityCase>& cases_;
  CapacityTable& table_;
  std::mutex say_;
  ProgressLine line_;  // with say_
  int64_t runs_ = 0, expected_runs_ = 0;
  Status unwritten_;
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
    TACTUS_ASSIGN_OR_RETURN(out.back().condition,
                            results::RunCondition::Parse(o.until, SarathiObjectives(*setup->step_time)));
  }
  return out;
}

// Prints the number of runs and their estimated time.
void Announce(const CapacityOptions& o, const std::vector<CapacityCase>& cases, size_t before) {
  const double runs = RunsPerSearch(o);
  const CapacityCase* first = nullptr;
  size_t left = 0;
  for (const CapacityCase& c : cases) {
    if (!c.status.ok()) continue;
    const auto unknown = [](const SeedOutcome& s) { return !s.held && s.none.empty(); };
    const auto searches = static_cast<size_t>(std::count_if(c.seeds.begin(), c.seeds.end(), unknown));
    if (searches > 0 && first == nullptr) first = &c;
    left += searches;
  }
  std::string text =
      fmt::format("{} {}, {} {} each", cases.size(), cases.size() == 1 ? "configuration" : "configurations", o.seeds,
                  o.seeds == 1 ? "seed" : "seeds");
  if (before > 0) text += fmt::format(", {} searches already done", before);
  if (first != nullptr) {
    const auto threads = std::min(static_cast<size_t>(ThreadsOf(o)), left);
    text += fmt::format(", about {:.0f} runs per seed, on {} threads", runs, threads);
    const sim::LargestRange range = RangeOf(o, *first);
    const double start = std::clamp(range.start, range.low, range.high);
    if (const auto run_s = RunTimeS(At(o, first->of, start, 0)))
      text += AboutText(*run_s * runs * static_cast<double>(left) / static_cast<double>(threads));
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

std::string ValueText(const CapacityOptions& o, double value) {
  if (!OverRate(o)) return fmt::format("{:.0f} in flight", value);
  return value < 1e4 ? fmt::format("{:.4g} requests/s", value) : fmt::format("{:.0f} requests/s", value);
}

std::string WhyNone(const CapacityOptions& o, const CapacityCase& c) {
  if (!c.status.ok()) return c.status.message();
  for (const SeedOutcome& s : c.seeds) {
    if (const std::string none = WhyNone(o, s); !none.empty()) return none;
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
  j["capacity"] = none.empty() ? results::IntervalJson(results::MeanOver(HeldValues(c))) : Json(nullptr);
  j["why_none"] = none.empty() ? Json(nullptr) : Json(none);
  j["of_first"] = nullptr;
  if (none.empty() && &c != &first && WhyNone(o, first).empty()) {
    if (const auto ratio = results::RatioOver(HeldValues(c), HeldValues(first), true))
      j["of_first"] = results::IntervalJson(*ratio);
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
    return InvalidArgument("--until is missing: give the condition, such as 'p99(tbt)<=100ms and p50(delay)<=2s'",
                           "until");
  if (o.sim.rate > 0 || o.sim.concurrency > 0) {
    const char* flag = o.sim.rate > 0 ? "rate" : "concurrency";
    return InvalidArgument(fmt::format("--{0} is the value to search for: leave it out (--from and --to bound it{1})",
                                       flag, flag == o.over ? "" : fmt::format("; --over {} searches for it", flag)),
                           flag);
  }
  if (o.over == "concurrency" && (o.from != std::floor(o.from) || o.to != std::floor(o.to)))
    return InvalidArgument("--from and --to must be whole numbers with --over concurrency", "from");
  const sim::LargestRange range = RangeOf(o);
  if (range.low > range.high)
    return InvalidArgument(fmt::format("--from {:g} is above --to {:g}; exchange them", range.low, range.high), "from");
  TACTUS_RETURN_IF_ERROR(CheckForMany(o));
  TACTUS_RETURN_IF_ERROR(CheckApart({{"csv", o.csv}, {"output", o.output}}));
  // Invalid text is reported before any model is built.
  const auto names = std::array{results::NamedCondition{"sarathi-strict", "rejected==0"},
                                results::NamedCondition{"sarathi-relaxed", "rejected==0"}};
  const auto parsed = results::RunCondition::Parse(o.until, names);
  if (!parsed.ok()) return InvalidArgument("--until: " + parsed.status().message(), "until");
  for (const results::RunCondition::Clause& clause : parsed->clauses()) {
    const bool at_least = clause.comparison == results::RunCondition::Comparison::kGreaterEqual ||
                          clause.comparison == results::RunCondition::Comparison::kGreater;
    if (!at_least || clause.metric.info().unit != results::MetricUnit::kPerSecond) continue;
    return InvalidArgument(
        fmt::format("--until '{}': a larger load raises {}, so this fails at the lowest load and does not bound the "
                    "largest; give a condition that overload breaks, such as p50(delay)<=2s",
                    clause.text, clause.metric.Name()),
        "until");
  }
  for (const VariedFlag& flag : varied) {
    if (flag.name == "rate" || flag.name == "concurrency")
      return InvalidArgument(fmt::format("--vary {}: only for sweeps; capacity searches for --{}", flag.name, o.over),
                             "vary");
  }
  return Status();
}

Result<std::vector<CapacityCase>> FindCapacities(const CapacityOptions& o, const std::vector<VariedFlag>& varied) {
  TACTUS_ASSIGN_OR_RETURN(std::vector<CapacityCase> cases, MakeCapacityCases(o, varied));
  TACTUS_ASSIGN_OR_RETURN(CapacityTable table, CapacityTable::Open(o, varied));
  CapacitySearch search(o, &cases, &table);
  const size_t before = search.Begin();
  CatchInterrupt();
  Announce(o, cases, before);
  TACTUS_RETURN_IF_ERROR(search.Run());
  return cases;
}

}  // namespace tactus::cli
