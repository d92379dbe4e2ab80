// `tactus sim sweep`: simulates every combination of options with several seeds and writes one table.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/commands/sim_commands.h"
#include "cli/options/common_options.h"
#include "cli/options/interrupt.h"
#include "cli/options/progress_line.h"
#include "cli/search/sim_cases.h"
#include "cli/search/sweep_table.h"
#include "results/obs/run_metric.h"
#include "results/report/seed_interval.h"
#include "sim/simulator/run_many.h"

namespace tactus::cli {
namespace {

constexpr const char* kSweepName = "sim sweep";

struct SweepOptions : SimManyOptions {
  std::string csv, best;
  std::string show = "throughput, goodput, attainment, p50(ttft), p99(ttft), p99(tbt), p50(delay)";

  template <class V>
  void VisitFields(V& v) {
    v.Group("Sweep");
    v.Field("csv", csv,
            {.help = "the table, one row per run, written as runs end; a sweep with the same options resumes from its "
                     "file. Default: standard output, at the end"});
    v.Field("show", show, {.help = "metrics of the summary on standard output, separated by commas"});
    v.Field("best", best,
            {.help = "reports the configuration that is best in this metric, such as goodput or p99(tbt)"});
    SimManyOptions::VisitFields(v);
  }
};

struct SweepRun {
  sim::SimOptions options;
  SweepTable::Row key;  // values of the varied flags, seed
  std::string name;
};

class Sweep {
 public:
  Sweep(const SweepOptions& options, std::vector<SweepRun> runs, std::vector<results::RunMetric> metrics,
        SweepTable* table, std::string base)
      : o_(options), runs_(std::move(runs)), table_(*table), base_(std::move(base)), metrics_(std::move(metrics)) {}

  // Not ok: the table could not be written. Runs that cannot be made become rows with an error.
  Status Run() {
    std::vector<const SweepRun*> left;
    for (const SweepRun& run : runs_) {
      if (!Done(run)) left.push_back(&run);
    }
    Announce(left);
    progress_.emplace(SystemClock());
    sim::ForEachOnThreads(left.size(), ThreadsOf(o_), [&](size_t i) { RunOne(*left[i], left.size()); });
    return status_;
  }
  const std::vector<SweepRun>& runs() const { return runs_; }
  std::vector<SweepTable::Row> Keys() const {
    std::vector<SweepTable::Row> keys;
    for (const SweepRun& run : runs_) keys.push_back(run.key);
    return keys;
  }
  static std::vector<std::string> Columns(const std::vector<VariedFlag>& varied,
                                          const std::vector<results::RunMetric>& metrics) {
    std::vector<std::string> columns;
    for (const VariedFlag& flag : varied) columns.push_back(flag.name);
    columns.push_back("seed");
    for (const results::RunMetric& metric : metrics) columns.push_back(metric.Name());
    columns.push_back("error");
    columns.push_back("base");
    return columns;
  }

 private:
  // Runs with an error are tried again: the cause may be gone.
  bool Done(const SweepRun& run) const {
    const SweepTable::Row* row = table_.Find(run.key);
    return row != nullptr && (*row)[row->size() - 2].empty();
  }
  bool Stopped() const { return InterruptCount() > 0 || failed_; }

  // Prints the number of runs and their estimated time, from a part of the first run whose result is discarded.
  void Announce(const std::vector<const SweepRun*>& left) {
    const auto threads = std::min<int64_t>(ThreadsOf(o_), static_cast<int64_t>(left.size()));
    std::string text = fmt::format("{} runs", runs_.size());
    if (left.size() < runs_.size()) text += fmt::format(", {} of them already done", runs_.size() - left.size());
    if (!left.empty()) {
      text += fmt::format(", on {} threads", threads);
      if (const auto run_s = RunTimeS(left.front()->options))
        text += AboutText(*run_s * static_cast<double>(left.size()) / static_cast<double>(threads));
    }
    std::fprintf(stderr, "%s\n", text.c_str());
  }

  void RunOne(const SweepRun& run, size_t left) {
    if (Stopped()) return;
    const auto report = RunCase(run.options, [this](const sim::SimProgress&) { return !Stopped(); });
    if (report.ok() ? !report->finished : report.status().code() == StatusCode::kCancelled) return;
    SweepTable::Row row = run.key;
    for (const results::RunMetric& metric : metrics_) {
      const auto value = report.ok() ? metric.Value(report->json) : std::nullopt;
      row.push_back(value ? fmt::format("{:.9g}", *value) : "");
    }
    const Status why = report.ok() ? sim::CheckCompleted(report->run) : report.status();
    row.push_back(why.message());
    row.push_back(base_);
    const std::lock_guard lock(mutex_);
    if (const Status added = table_.Add(std::move(row)); !added.ok()) {
      status_ = added;
      failed_ = true;
    }
    ++done_;
    progress_->Show(static_cast<int64_t>(done_), static_cast<int64_t>(left), "runs");
    if (done_ == left) progress_->End();
  }

  const SweepOptions& o_;
  const std::vector<SweepRun> runs_;
  SweepTable& table_;
  const std::string base_;
  const std::vector<results::RunMetric> metrics_;
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status status_;
  size_t done_ = 0;
  std::optional<ProgressLine> progress_;  // while runs are made
};

// The rows of one configuration and their summary.
class SweepSummary {
 public:
  SweepSummary(const SweepTable& table, const std::vector<SweepRun>& runs, size_t seeds) : table_(table) {
    for (size_t i = 0; i < runs.size(); i += seeds) {
      Configuration c{runs[i].name, {}};
      for (size_t k = i; k < i + seeds; ++k) {
        if (const SweepTable::Row* row = table.Find(runs[k].key); row != nullptr) c.rows.push_back(row);
      }
      configurations_.push_back(std::move(c));
    }
  }

  std::string Text(const std::vector<results::RunMetric>& metrics) const {
    size_t width = 13;
    for (const Configuration& c : configurations_) width = std::max(width, c.name.size());
    std::string text = fmt::format("{:<{}}", "configuration", width);
    for (const results::RunMetric& metric : metrics) text += fmt::format("  {:>14}", metric.Name());
    text += "\n";
    for (const Configuration& c : configurations_) {
      text += fmt::format("{:<{}}", c.name, width);
      for (const results::RunMetric& metric : metrics) {
        const auto value = Mean(c, metric);
        text += fmt::format("  {:>14}", value ? results::MetricText(value->mean, metric.info().unit) : "-");
      }
      text += "\n";
    }
    return text;
  }

  // Empty if no configuration has the metric.
  std::string Best(const results::RunMetric& metric) const {
    const Configuration* best = nullptr;
    std::optional<results::SeedInterval> most;
    for (const Configuration& c : configurations_) {
      const auto value = Mean(c, metric);
      if (!value) continue;
      if (most && (metric.info().sense < 0 ? value->mean >= most->mean : value->mean <= most->mean)) continue;
      most = value;
      best = &c;
    }
    if (best == nullptr) return "";
    std::string text = fmt::format("best {}: {}, {}", metric.Name(), best->name.empty() ? "the only one" : best->name,
                                   results::MetricText(most->mean, metric.info().unit));
    if (most->interval) {
      text += fmt::format(" (95 % interval {} to {})", results::MetricText(most->interval->low, metric.info().unit),
                          results::MetricText(most->interval->high, metric.info().unit));
    }
    return text;
  }

 private:
  struct Configuration {
    std::string name;
    std::vector<const SweepTable::Row*> rows;
  };
  // Mean over seeds; absent if a seed lacks the metric.
  std::optional<results::SeedInterval> Mean(const Configuration& c, const results::RunMetric& metric) const {
    const auto column = std::find(table_.columns().begin(), table_.columns().end(), SweepTable::Cell(metric.Name()));
    if (column == table_.columns().end() || c.rows.empty()) return std::nullopt;
    std::vector<double> values;
    for (const SweepTable::Row* row : c.rows) {
      const std::string& cell = (*row)[static_cast<size_t>(column - table_.columns().begin())];
      if (cell.empty()) return std::nullopt;
      values.push_back(std::strtod(cell.c_str(), nullptr));
    }
    return results::MeanOver(values);
  }

  const SweepTable& table_;
  std::vector<Configuration> configurations_;
};

// Cells with their types: numbers, null, text.
Json TableJson(const SweepTable& table, const std::vector<SweepTable::Row>& keys) {
  Json rows = Json::array();
  for (const SweepTable::Row& key : keys) {
    const SweepTable::Row* row = table.Find(key);
    if (row == nullptr) continue;
    Json j = Json::object();
    for (size_t i = 0; i < row->size(); ++i) {
      const std::string& cell = (*row)[i];
      const bool text = i + 1 < key.size() || i + 2 >= row->size();  // varied flags; error, base
      char* end = nullptr;
      const double number = std::strtod(cell.c_str(), &end);
      j[table.columns()[i]] = cell.empty() ? Json(nullptr) : text || *end != '\0' ? Json(cell) : Json(number);
    }
    rows.push_back(std::move(j));
  }
  return {{"rows", std::move(rows)}};
}

size_t CountErrors(const SweepTable& table, const std::vector<SweepRun>& runs, std::string* first) {
  size_t errors = 0;
  for (const SweepRun& run : runs) {
    const SweepTable::Row* row = table.Find(run.key);
    if (row == nullptr) continue;
    const std::string& error = (*row)[row->size() - 2];
    if (!error.empty() && errors++ == 0) *first = (run.name.empty() ? "" : run.name + ": ") + error;
  }
  return errors;
}

Result<std::vector<SweepRun>> MakeRuns(const SweepOptions& o, const std::vector<VariedFlag>& varied) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<SimCase> cases, MakeCases(o.sim, varied, o.seeds, o.most_runs));
  std::vector<SweepRun> runs;
  for (const SimCase& c : cases) {
    for (int64_t k = 0; k < o.seeds; ++k) {
      SweepRun run{c.options, c.values, CaseText(varied, c)};
      run.options.seed += k;
      run.key.push_back(fmt::format("{}", run.options.seed));
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

Result<std::vector<results::RunMetric>> MetricsOf(const char* flag, const std::string& text) {
  if (text.empty()) return std::vector<results::RunMetric>();
  auto metrics = results::RunMetric::ParseList(text);
  if (!metrics.ok()) return InvalidArgument(fmt::format("--{}: {}", flag, metrics.status().message()), flag);
  return metrics;
}

// The metric columns: every metric of all requests, then the requested metrics of classes.
std::vector<results::RunMetric> ColumnMetrics(const std::vector<results::RunMetric>& shown,
                                              const std::vector<results::RunMetric>& best) {
  std::vector<results::RunMetric> metrics = results::RunMetric::All();
  for (const auto* asked : {&shown, &best}) {
    for (const results::RunMetric& metric : *asked) {
      const auto same = [&metric](const results::RunMetric& other) { return other.Name() == metric.Name(); };
      if (std::none_of(metrics.begin(), metrics.end(), same)) metrics.push_back(metric);
    }
  }
  return metrics;
}

// An error in the options that are not varied appears in the first and the last configuration with the same text; it is
// reported before any run.
Status CheckWhatIsNotVaried(const std::vector<SweepRun>& runs) {
  const Status first = SetUp(runs.front().options).status();
  if (first.ok()) return Status();
  const Status last = SetUp(runs.back().options).status();
  return last.message() == first.message() ? first : Status();
}

int Run(const SweepOptions& o) {
  const auto fail = [](const Status& status) { return FailOf(kSweepName, status, ExitCodeOf(status)); };
  if (const Status status = CheckForMany(o); !status.ok()) return fail(status);
  if (const Status status = CheckApart({{"csv", o.csv}, {"output", o.output}}); !status.ok()) return fail(status);
  const auto shown = MetricsOf("show", o.show);
  if (!shown.ok()) return fail(shown.status());
  const auto best = MetricsOf("best", o.best);
  if (!best.ok()) return fail(best.status());
  const auto varied = ParseVaried(o.sim, o.vary);
  if (!varied.ok()) return fail(varied.status());
  auto runs = MakeRuns(o, *varied);
  if (!runs.ok()) return fail(runs.status());
  if (const Status status = CheckWhatIsNotVaried(*runs); !status.ok()) return fail(status);
  const std::string base = BaseOf(o.sim, *varied, "");
  const std::vector<results::RunMetric> metrics = ColumnMetrics(*shown, *best);
  auto table = SweepTable::Open(o.csv, Sweep::Columns(*varied, metrics), varied->size() + 1, base);
  if (!table.ok()) return fail(table.status());
  CatchInterrupt();
  Sweep sweep(o, std::move(*runs), metrics, &*table, base);
  if (const Status status = sweep.Run(); !status.ok()) return fail(status);
  const std::vector<SweepTable::Row> keys = sweep.Keys();
  if (const Status status = table->Finish(keys); !status.ok()) return fail(status);

  const SweepSummary summary(*table, sweep.runs(), static_cast<size_t>(o.seeds));
  if (!o.json) std::printf("%s", o.csv.empty() ? table->Text(keys).c_str() : summary.Text(*shown).c_str());
  if (const Status written = WriteResult(TableJson(*table, keys), o.json, o.output); !written.ok())
    return FailOf(kSweepName, written, kExitFailed);
  for (const results::RunMetric& metric : *best) {
    const std::string text = summary.Best(metric);
    std::fprintf(o.json || o.csv.empty() ? stderr : stdout, "%s\n",
                 text.empty() ? fmt::format("no configuration has {}", metric.Name()).c_str() : text.c_str());
  }
  if (InterruptCount() > 0) {
    std::fprintf(stderr, "tactus %s: interrupted; %s\n", kSweepName,
                 o.csv.empty() ? "the runs so far are above" : "the same command resumes");
    return kExitInterrupted;
  }
  std::string first;
  if (const size_t errors = CountErrors(*table, sweep.runs(), &first); errors > 0) {
    return FailOf(
        kSweepName,
        InvalidArgument(fmt::format("{} of {} runs have no result; the first: {}", errors, keys.size(), first)),
        kExitFailed);
  }
  return kExitOk;
}

}  // namespace

int SimSweepCommand(const Args& args) {
  SweepOptions options;
  CommandLine line("sim sweep", "--vary FLAG=VALUES ... --csv FILE --model M --device D --workload W [options]",
                   "Simulates every combination of options, on all cores, as one table.");
  line.Add(options);
  line.Common(SimCommon({"vary", "csv", "best", "show", "most-runs"}));
  line.Epilog("\nMetrics: " + results::MetricNames() + ".\n");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  return Run(options);
}

}  // namespace tactus::cli
