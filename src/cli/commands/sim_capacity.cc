// `tactus sim capacity`: finds the largest arrival rate (or concurrency) at which a condition on the run holds.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "base/json.h"
#include "cli/commands/sim_commands.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/search/capacity.h"
#include "results/report/seed_interval.h"

namespace tactus::cli {
namespace {

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
  std::string text = IntervalText(j["capacity"], o.over == "rate" ? " requests/s" : " in flight");
  if (!j["of_first"].is_null()) text += ", " + IntervalText(j["of_first"], " times the first");
  std::vector<double> costs;
  for (const SeedOutcome& s : c.seeds) {
    if (s.cost) costs.push_back(*s.cost);
  }
  if (costs.size() == c.seeds.size()) text += fmt::format("; {:.4g} per million tokens", results::MeanOver(costs).mean);
  const SeedOutcome& first = c.seeds.front();
  text += fmt::format("; {}{} breaks {}", c.seeds.size() > 1 ? fmt::format("with seed {} ", c.of.options.seed) : "",
                      ValueText(o, first.broke->value), first.breaks);
  std::printf("%scapacity %s\n", name.c_str(), text.c_str());
}

void PrintMost(const CapacityOptions& o, const std::vector<CapacityCase>& cases, const Json& configurations) {
  size_t most = cases.size();
  const auto mean = [&configurations](size_t i) { return configurations[i]["capacity"]["mean"].get<double>(); };
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!configurations[i]["capacity"].is_null() && (most == cases.size() || mean(i) > mean(most))) most = i;
  }
  std::printf("most: %s, %s\n", cases[most].name.c_str(), ValueText(o, mean(most)).c_str());
}

// Warns if the load ends before a queue can grow: its capacity is unreliable.
void WarnOfShortLoad(const CapacityCase& c, double rate) {
  constexpr double kTimes = 10;
  const Json& result = c.seeds.front().held->result;
  if (!result.is_object() || result["e2e_ms"].is_null()) return;  // with --csv, or unknown
  const double load_s = static_cast<double>(result["requests"]["completed"].get<int64_t>()) / rate;
  const double request_s = result["e2e_ms"]["mean"].get<double>() / 1000;
  if (load_s >= kTimes * request_s || request_s <= 0) return;
  std::fprintf(stderr,
               "%s%sthe load lasts %.3g s at this rate, %.2g times the mean latency of a request: queues have little "
               "time to grow; with a longer load (--requests) the capacity may be lower\n",
               c.name.c_str(), c.name.empty() ? "" : ": ", load_s, load_s / request_s);
}

int Search(const CapacityOptions& o) {
  constexpr const char* kName = "sim capacity";
  const auto fail = [](const Status& status) { return FailOf(kName, status, ExitCodeOf(status)); };
  const auto varied = ParseVaried(o.sim, o.vary);
  if (!varied.ok()) return fail(varied.status());
  if (const Status status = CheckCapacity(o, *varied); !status.ok()) return fail(status);
  const auto cases = FindCapacities(o, *varied);
  if (!cases.ok()) return fail(cases.status());

  Json result = {{"until", o.until}, {"over", o.over}, {"tolerance", o.tolerance / 100}, {"workload", o.sim.workload}};
  Json list = Json::array();
  size_t found = 0;
  for (const CapacityCase& c : *cases) {
    list.push_back(CapacityJson(o, *varied, c, cases->front()));
    if (!list.back()["capacity"].is_null()) {
      ++found;
      if (o.over == "rate") WarnOfShortLoad(c, *c.seeds.front().found.held);
    }
    if (!o.json) PrintCase(o, c, list.back());
  }
  result["configurations"] = std::move(list);
  if (!o.json && found > 1) PrintMost(o, *cases, result["configurations"]);
  if (const Status written = WriteResult(result, o.json, o.output); !written.ok())
    return FailOf(kName, written, kExitFailed);
  if (InterruptCount() > 0) {
    if (!o.csv.empty()) std::fprintf(stderr, "tactus %s: interrupted; the same command resumes\n", kName);
    return kExitInterrupted;
  }
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
  line.Common(SimCommon({"until", "over", "from", "to", "tolerance", "vary", "csv"}));
  line.Epilog("\nIn --until: " + results::MetricNames() +
              ". By class: p99(ttft, CLASS), attainment(CLASS). docs/how-to/searches.md has the rules.\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  return Search(options);
}

}  // namespace tactus::cli
