// `tactus sim compare`: compares results, or configurations that it simulates: each one's metrics, and their ratios to
// those of the first with a confidence interval over seeds.
#include <fmt/format.h>

#include <limits>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "cli/commands/sim_commands.h"
#include "cli/options/interrupt.h"
#include "cli/search/sim_cases.h"
#include "results/obs/run_reader.h"
#include "results/report/request_story.h"
#include "results/report/seed_interval.h"

namespace tactus::cli {
namespace {

constexpr const char* kCompareName = "sim compare";
constexpr int64_t kMostFileBytes = 64 << 20;

struct CompareOptions : SimCommandOptions {
  std::string show =
      "throughput, output_throughput, goodput, attainment, p50(ttft), p99(ttft), mean(tbt), p99(tbt), p50(e2e), "
      "p99(e2e), p50(delay), preemptions";

  template <class V>
  void VisitFields(V& v) {
    v.Group("Comparison");
    v.Field("show", show, {.help = "metrics to compare, separated by commas"});
    SimCommandOptions::VisitFields(v);
  }
};

CommandLine CompareLine(CompareOptions* options) {
  CommandLine line("sim compare", "A B ... [options]",
                   "Compares results with the first one: ratios, with confidence intervals over seeds.");
  line.Add(*options);
  line.Epilog(
      "\nA, B, ... come before the options. Each is a result (-o FILE of `tactus sim`, also with --seeds, or of "
      "`tactus bench`), a run\nfile (--run-out), or a configuration (`tactus sim --print-config`), which is simulated "
      "with --seeds seeds; further options\napply to all configurations. Join repeated runs of one configuration by "
      "commas: a1.json,a2.json.\nMetrics: " +
      results::MetricNames() + ".\n");
  return line;
}

// The runs in a result file. kInvalidArgument: not a result, or one without runs.
Result<std::vector<Json>> RunsOf(const std::string& file, const std::string& text) {
  const auto wrong = [&file](const std::string& why) {
    return InvalidArgument(
        fmt::format("'{}': {}; give a file that -o of `tactus sim` or `tactus bench` wrote", Printable(file), why));
  };
  json_text::JsonLimits limits;
  limits.max_values = limits.max_keys = std::numeric_limits<int64_t>::max();
  const Result<Json> read = json_text::ParseJson(text, limits);
  if (!read.ok()) return wrong(read.status().message());
  const Json& json = *read;
  std::vector<Json> runs;
  if (const auto list = json.find("runs"); list != json.end() && list->is_array()) {
    runs.assign(list->begin(), list->end());
  } else {
    runs.push_back(json);
  }
  if (runs.empty()) return wrong("it contains no runs");
  for (const Json& run : runs) {
    if (!run.is_object() || !run.contains("duration_s") || !run.contains("requests"))
      return wrong("it is not a result");
  }
  return runs;
}

struct Operand {
  std::string name;
  std::optional<std::vector<Json>> runs;  // absent: a configuration
};

Result<Operand> ReadFile(const std::string& file) {
  Operand operand{std::filesystem::path(file).filename().string(), std::nullopt};
  if (results::IsArchive(file)) {  // like a run file
    results::RunVisitor nothing;
    results::RunFile run;
    TACTUS_RETURN_IF_ERROR(results::ReadRunFile(file, &nothing, &run));
    if (!run.complete()) {
      return InvalidArgument(
          fmt::format("'{}' was not closed: it has no result to compare; `tactus report` shows its complete part",
                      Printable(file)));
    }
    operand.runs.emplace().push_back(std::move(run.result));
    return operand;
  }
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(file, kMostFileBytes));
  if (text.starts_with("PK\x03\x04")) {
    return InvalidArgument(
        fmt::format("'{}' is a run file in a pipe: save it to a file, or pipe its result (-o)", Printable(file)));
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return InvalidArgument(fmt::format("'{}' is empty", Printable(file)));
  if (text[first] == '{') {
    TACTUS_ASSIGN_OR_RETURN(operand.runs, RunsOf(file, text));
  }
  return operand;
}

// Reads a file, or results separated by commas: repeated runs of one configuration, such as repeated load tests.
Result<Operand> ReadOperand(const std::string& text) {
  std::error_code error;
  if (text.find(',') == std::string::npos || std::filesystem::exists(text, error)) return ReadFile(text);
  Operand all{"", std::vector<Json>()};
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string file(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), file.size() + 1));
    TACTUS_ASSIGN_OR_RETURN(Operand one, ReadFile(file));
    if (!one.runs) {
      return InvalidArgument(
          fmt::format("'{}' is not a result, and only results can be joined by commas; --seeds repeats a configuration",
                      Printable(file)));
    }
    if (all.name.empty()) all.name = one.name + ", ...";
    all.runs->insert(all.runs->end(), one.runs->begin(), one.runs->end());
  }
  return all;
}

// Repeats must be able to differ: a simulation with the same seed is always the same. A run without completed requests
// cannot be compared.
Status CheckSet(const RunSet& set) {
  std::set<std::string> plans;
  for (const Json& run : set.runs) {
    const Json& requests = run["requests"];
    if (requests.is_object() && requests.value("completed", Json()) == 0) {
      const auto why = run.find("first_rejection");
      return InvalidArgument(fmt::format(
          "'{}' has a run in which no request completed: there is nothing to compare{}", Printable(set.name),
          why != run.end() && why->is_string() ? "; " + Printable(why->get<std::string>()) : ""));
    }
    const auto plan = run.find("plan_hash"), seed = run.find("seed");
    if (plan == run.end() || plan->is_null() || seed == run.end() || seed->is_null()) continue;
    if (!plans.insert(plan->dump() + " " + seed->dump()).second) {
      return InvalidArgument(
          fmt::format("'{}' has the same simulation twice, with seed {}: it always has the same result; use different "
                      "seeds (--seeds)",
                      Printable(set.name), seed->dump()));
    }
  }
  return Status();
}

Json CompareJson(const std::vector<RunSet>& sets, const std::vector<results::RunMetric>& metrics) {
  Json names = Json::array(), rows = Json::object();
  for (const RunSet& set : sets) names.push_back({{"name", set.name}, {"runs", set.runs.size()}});
  const RunSet& first = sets.front();
  for (const results::RunMetric& metric : metrics) {
    const auto base = first.Values(metric);
    Json row = Json::array();
    for (const RunSet& set : sets) {
      const auto values = set.Values(metric);
      Json cell = {{"mean", nullptr}, {"ratio", nullptr}};
      if (values) cell["mean"] = results::IntervalJson(results::MeanOver(*values));
      const bool paired = set.Seeds() && set.Seeds() == first.Seeds();
      if (values && base && &set != &first) {
        if (const auto ratio = results::RatioOver(*values, *base, paired))
          cell["ratio"] = results::IntervalJson(*ratio);
      }
      row.push_back(std::move(cell));
    }
    rows[metric.Name()] = std::move(row);
  }
  return {{"of", std::move(names)}, {"metrics", std::move(rows)}};
}

// What the interval of a ratio shows.
const char* Verdict(const Json& ratio, int sense) {
  if (ratio["low"].is_null()) return "";
  const double low = ratio["low"].get<double>(), high = ratio["high"].get<double>();
  if (low <= 1 && high >= 1) return "  no difference shown";
  if (sense == 0) return low > 1 ? "  more" : "  less";
  return (low > 1) == (sense > 0) ? "  better" : "  worse";
}

void Print(const std::vector<RunSet>& sets, const std::vector<results::RunMetric>& metrics, const Json& json) {
  for (size_t i = 0; i < sets.size(); ++i) {
    std::printf("%s%s: %zu %s\n", i == 0 ? "compared with " : "", sets[i].name.c_str(), sets[i].runs.size(),
                sets[i].runs.size() == 1 ? "run" : "runs");
  }
  bool intervals = false;
  for (size_t i = 1; i < sets.size(); ++i) {
    std::printf("\n%-20s %14s %14s   %s\n", sets[i].name.c_str(), "the first", "this", "ratio (95 % interval)");
    for (const results::RunMetric& metric : metrics) {
      const Json& row = json["metrics"][metric.Name()];
      const auto mean = [&metric](const Json& cell) {
        return cell["mean"].is_null() ? std::string("-")
                                      : results::MetricText(cell["mean"]["mean"].get<double>(), metric.info().unit);
      };
      std::string ratio = "-";
      if (const Json& r = row[i]["ratio"]; !r.is_null()) {
        ratio = fmt::format("{:.3f}", r["mean"].get<double>());
        intervals = intervals || !r["low"].is_null();
        if (!r["low"].is_null())
          ratio += fmt::format(" ({:.3f} to {:.3f})", r["low"].get<double>(), r["high"].get<double>());
        ratio += Verdict(r, metric.info().sense);
      }
      std::printf("%-20s %14s %14s   %s\n", metric.Name().c_str(), mean(row[0]).c_str(), mean(row[i]).c_str(),
                  ratio.c_str());
    }
  }
  if (!intervals) {
    std::printf(
        "\nno intervals: they need several runs of each, by --seeds or as results joined by commas "
        "(a1.json,a2.json)\n");
  }
}

// The results of all operands in order; configurations are simulated. `rest`: the options for each of them.
Result<std::vector<RunSet>> SetsOf(const std::vector<std::string>& files, const Args& rest, const CompareOptions& o) {
  std::vector<RunSet> sets;
  std::vector<std::pair<std::string, sim::SimOptions>> configurations;
  std::vector<size_t> places;
  for (const std::string& file : files) {
    TACTUS_ASSIGN_OR_RETURN(Operand operand, ReadOperand(file));
    if (operand.runs) {
      sets.push_back({operand.name, std::move(*operand.runs)});
      continue;
    }
    CompareOptions with;
    Args args = rest;
    args.insert(args.end(), {"--config", file});
    if (CompareLine(&with).Parse(args) != CommandLine::Outcome::kRun)
      return InvalidArgument(fmt::format("'{}' is not a result or a configuration of `tactus sim`", Printable(file)));
    TACTUS_RETURN_IF_ERROR(CheckForMany(with));
    configurations.emplace_back(operand.name, with.sim);
    places.push_back(sets.size());
    sets.push_back({operand.name, {}});
  }
  if (configurations.empty()) return sets;
  std::fprintf(stderr, "%zu runs on %d threads\n", configurations.size() * static_cast<size_t>(o.seeds), ThreadsOf(o));
  CatchInterrupt();
  TACTUS_ASSIGN_OR_RETURN(std::vector<RunSet> done, RunSeeds(configurations, o.seeds, ThreadsOf(o)));
  for (size_t i = 0; i < done.size(); ++i) sets[places[i]].runs = std::move(done[i].runs);
  return sets;
}

int Compare(const std::vector<std::string>& files, const Args& rest, const CompareOptions& o) {
  const auto fail = [](const Status& status) { return FailOf(kCompareName, status, ExitCodeOf(status)); };
  if (files.size() < 2)
    return fail(
        InvalidArgument("name at least two results or configurations, before the options: tactus sim compare A B"));
  const auto metrics = results::RunMetric::ParseList(o.show);
  if (!metrics.ok()) return fail(InvalidArgument("--show: " + metrics.status().message(), "show"));
  if (const Status status = CheckForMany(o); !status.ok()) return fail(status);
  const auto sets = SetsOf(files, rest, o);
  if (sets.ok()) {
    for (const RunSet& set : *sets) {
      if (const Status status = CheckSet(set); !status.ok()) return fail(status);
    }
  }
  if (!sets.ok()) return sets.status().code() == StatusCode::kCancelled ? kExitInterrupted : fail(sets.status());
  const Json json = CompareJson(*sets, *metrics);
  if (!o.json) Print(*sets, *metrics, json);
  const Status written = WriteResult(json, o.json, o.output);
  return written.ok() ? kExitOk : fail(written);
}

}  // namespace

int SimCompareCommand(const Args& args) {
  const auto options_begin =
      std::find_if(args.begin(), args.end(), [](const std::string& arg) { return arg.rfind('-', 0) == 0; });
  const std::vector<std::string> files(args.begin(), options_begin);
  const Args rest(options_begin, args.end());
  CompareOptions options;
  if (const auto exit = CompareLine(&options).ParseOrExit(rest)) return *exit;
  return Compare(files, rest, options);
}

}  // namespace tactus::cli
