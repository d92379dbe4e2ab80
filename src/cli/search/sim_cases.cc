#include "cli/search/sim_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <variant>

#include "base/check.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "cli/options/interrupt.h"
#include "compute/kernels/thread_pool.h"
#include "results/report/seed_interval.h"
#include "sim/simulator/run_many.h"
#include "tactus/version.h"

namespace tactus::cli {
namespace {

constexpr size_t kMostValues = 100'000;
// A pilot run for the time estimate stops after kPilotNs if a request has ended, otherwise at kLongestPilotNs.
constexpr DurationNs kPilotNs = kSecond / 2, kLongestPilotNs = 10 * kSecond;

Status BadVary(const std::string& text, const std::string& why) {
  return InvalidArgument(
      fmt::format("--vary '{}': {}; such as scheduler=vllm,sarathi-serve or rate=1:8:1", Printable(text), why), "vary");
}

const FieldBinding* Find(const CommandLine& line, const std::string& name) {
  for (const FieldBinding& f : line.fields()) {
    if (f.name == name || f.spec.alias == name) return &f;
  }
  return nullptr;
}

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::optional<double> NumberOf(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// LOW:HIGH:STEP or LOW:HIGH:xFACTOR; includes HIGH if a step ends there.
Result<std::vector<std::string>> Range(const std::string& text, const std::string& range) {
  const std::vector<std::string> parts = SplitAt(range, ':');
  if (parts.size() != 3) return BadVary(text, fmt::format("'{}' is not of the form LOW:HIGH:STEP", Printable(range)));
  const bool by_factor = !parts[2].empty() && parts[2][0] == 'x';
  const auto low = NumberOf(parts[0]), high = NumberOf(parts[1]), step = NumberOf(parts[2].substr(by_factor ? 1 : 0));
  if (!low || !high || !step || *low > *high)
    return BadVary(text,
                   fmt::format("'{}': LOW:HIGH:STEP must be three numbers, LOW not above HIGH", Printable(range)));
  if (by_factor ? *step <= 1 || *low <= 0 : *step <= 0) {
    return BadVary(
        text, fmt::format("'{}' never ends: STEP must be above 0; FACTOR above 1 and LOW above 0", Printable(range)));
  }
  std::vector<std::string> values;
  const double last = *high + 1e-9 * std::abs(*high);
  double value = *low;
  while (value <= last) {
    if (values.size() == kMostValues)
      return BadVary(text, fmt::format("more than {} values: use a larger step", kMostValues));
    values.push_back(fmt::format("{:.12g}", value));
    value = by_factor ? value * *step : *low + static_cast<double>(values.size()) * *step;
  }
  return values;
}

Result<VariedFlag> ParseOne(const sim::SimOptions& base, const std::string& text) {
  SimCommandOptions scratch;
  scratch.sim = base;
  CommandLine line = SimLine(&scratch);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return BadVary(text, "the form is FLAG=VALUES");
  std::string name = text.substr(0, equals);
  if (name.rfind("--", 0) == 0) name.erase(0, 2);
  const FieldBinding* field = Find(line, name);
  if (field == nullptr) return BadVary(text, fmt::format("'{}' is not an option of `tactus sim`", Printable(name)));
  if (field->name == "seed") return BadVary(text, "use --seeds to vary the seed, starting at --seed");
  if (*field->spec.implies != '\0')
    return BadVary(text, fmt::format("--{} sets other options; vary those", field->name));
  static constexpr std::string_view kOfOneRun[] = {"requests-out", "steps-out", "trace-out", "run-out", "run-interval",
                                                   "timeseries",   "replay",    "times",     "json",    "output",
                                                   "list",         "seeds",     "jobs"};
  if (std::find(std::begin(kOfOneRun), std::end(kOfOneRun), field->name) != std::end(kOfOneRun))
    return BadVary(text, fmt::format("--{} is not part of a configuration", field->name));

  VariedFlag varied{field->name, {}};
  const std::string list = text.substr(equals + 1);
  const bool number = std::holds_alternative<int64_t*>(field->target) || std::holds_alternative<double*>(field->target);
  for (const std::string& part : SplitAt(list, list.find('|') != std::string::npos ? '|' : ',')) {
    if (number && part.find(':') != std::string::npos) {
      TACTUS_ASSIGN_OR_RETURN(const std::vector<std::string> values, Range(text, part));
      varied.values.insert(varied.values.end(), values.begin(), values.end());
    } else {
      varied.values.push_back(part);
    }
  }
  for (const std::string& value : varied.values) {
    if (const Status set = SetField(*field, value); !set.ok()) return BadVary(text, set.message());
    if (std::count(varied.values.begin(), varied.values.end(), value) > 1 && varied.values.size() < 1000)
      return BadVary(text, fmt::format("'{}' is given twice", Printable(value)));
  }
  return varied;
}

// `value` was validated before, so setting it cannot fail.
void Set(sim::SimOptions* options, const std::string& flag, const std::string& value) {
  SimCommandOptions scratch;
  scratch.sim = *options;
  CommandLine line = SimLine(&scratch);
  const FieldBinding* field = Find(line, flag);
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&field->target)) (*list)->clear();
  const Status set = SetField(*field, value);
  TACTUS_CHECK_MSG(set.ok(), set.message());
  *options = scratch.sim;
}

constexpr uintmax_t kMostHashedBytes = 64 << 20;

// Fingerprints of the files that a value names, for BaseOf: the value itself, a part such as FILE of
// "lengths:FILE:scale=2", or a folder (its config.json). Content hash, or size and time of a large file. Empty if it
// names no file.
std::string NamedFiles(const std::string& value) {
  std::string text;
  std::vector<std::string> names = {value};
  for (size_t at = 0; at < value.size();) {
    const size_t end = std::min(value.find_first_of(":,=|", at), value.size());
    if (end - at < value.size()) names.push_back(value.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& name : names) {
    std::error_code error;
    std::filesystem::path path = name;
    if (name.empty()) continue;
    if (std::filesystem::is_directory(path, error)) path /= "config.json";
    if (!std::filesystem::is_regular_file(path, error)) continue;
    const uintmax_t size = std::filesystem::file_size(path, error);
    if (error) continue;
    if (size > kMostHashedBytes) {
      const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
      text += fmt::format("{}: {} bytes of {}\n", name, size, time);
    } else if (const auto content = ReadInputFile(path.string(), static_cast<int64_t>(kMostHashedBytes));
               content.ok()) {
      text += fmt::format("{}: {:02x}\n", name, fmt::join(Sha256(*content), ""));
    }
  }
  return text;
}

}  // namespace

Result<std::vector<VariedFlag>> ParseVaried(const sim::SimOptions& base, const std::vector<std::string>& texts) {
  std::vector<VariedFlag> all;
  for (const std::string& text : texts) {
    TACTUS_ASSIGN_OR_RETURN(VariedFlag one, ParseOne(base, text));
    for (const VariedFlag& other : all) {
      if (other.name == one.name) return BadVary(text, fmt::format("--{} is varied twice", one.name));
    }
    all.push_back(std::move(one));
  }
  return all;
}

Result<std::vector<SimCase>> MakeCases(const sim::SimOptions& base, const std::vector<VariedFlag>& varied,
                                       int64_t runs_each, int64_t most_runs) {
  double runs = static_cast<double>(runs_each);
  std::string factors = fmt::format("{} of each", runs_each);
  for (const VariedFlag& flag : varied) {
    runs *= static_cast<double>(flag.values.size());
    factors += fmt::format(" x {} of --{}", flag.values.size(), flag.name);
  }
  if (runs > static_cast<double>(most_runs)) {
    return InvalidArgument(
        fmt::format("{:.0f} runs ({}) exceed --most-runs {}: vary less, or raise it", runs, factors, most_runs),
        "most-runs");
  }
  std::vector<SimCase> cases = {{base, {}}};
  for (const VariedFlag& flag : varied) {
    std::vector<SimCase> longer;
    for (const SimCase& c : cases) {
      for (const std::string& value : flag.values) {
        SimCase next = c;
        Set(&next.options, flag.name, value);
        next.values.push_back(value);
        longer.push_back(std::move(next));
      }
    }
    cases = std::move(longer);
  }
  return cases;
}

std::string CaseText(const std::vector<VariedFlag>& varied, const SimCase& of) {
  std::string text;
  for (size_t i = 0; i < varied.size(); ++i)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", varied[i].name, of.values[i]);
  return text;
}

std::string BaseOf(const sim::SimOptions& base, const std::vector<VariedFlag>& varied, const std::string& beyond) {
  SimCommandOptions scratch;
  scratch.sim = base;
  const CommandLine line = SimLine(&scratch);
  std::string text = std::string(Version()) + "\n" + beyond + "\n";
  for (const FieldBinding& f : line.fields()) {
    const bool is_varied =
        std::any_of(varied.begin(), varied.end(), [&f](const VariedFlag& flag) { return flag.name == f.name; });
    if (!is_varied && f.name != "seed") text += f.name + "=" + FieldText(f) + "\n" + NamedFiles(FieldText(f));
  }
  for (const VariedFlag& flag : varied) {
    for (const std::string& value : flag.values) text += NamedFiles(value);
  }
  const Sha256Digest digest = Sha256(text);
  std::string hash;
  for (size_t i = 0; i < 8; ++i) hash += fmt::format("{:02x}", digest[i]);
  return hash;
}

Status CheckForMany(const SimCommandOptions& options) {
  const sim::SimOptions& o = options.sim;
  if (options.list || !options.replay.empty()) {
    return InvalidArgument(fmt::format("--{} works only with `tactus sim` itself", options.list ? "list" : "replay"),
                           options.list ? "list" : "replay");
  }
  for (const auto& [flag, file] : {std::pair{"trace-out", &o.trace_out}, std::pair{"requests-out", &o.requests_out},
                                   std::pair{"steps-out", &o.steps_out}, std::pair{"run-out", &options.run_out.path}}) {
    if (file->empty()) continue;
    return InvalidArgument(fmt::format("--{} {} would be overwritten by each run: leave it out, and run `tactus sim` "
                                       "with the configuration of interest",
                                       flag, Printable(*file)),
                           flag);
  }
  if (o.seed > std::numeric_limits<int64_t>::max() - options.seeds) {
    return InvalidArgument(
        fmt::format("--seed {} is too large for --seeds {}: use a smaller one", o.seed, options.seeds), "seed");
  }
  if (options.timeseries.interval.ns != 0) {
    return InvalidArgument(
        "--timeseries describes one run, and this command makes many: leave it out, and run `tactus sim` with the "
        "configuration of interest",
        "timeseries");
  }
  return options.output.empty() ? Status() : CheckWritable(options.output, "output");
}

int32_t ThreadsOf(const SimCommandOptions& options) {
  return options.threads > 0 ? static_cast<int32_t>(options.threads) : compute::UsableCores();
}

Result<sim::SimReport> RunCase(const sim::SimOptions& options,
                               const std::function<bool(const sim::SimProgress&)>& keep_going) {
  TACTUS_ASSIGN_OR_RETURN(sim::SimSetup setup, SetUp(options));
  sim::SimWatch watch;
  watch.run = keep_going;
  watch.search = [&keep_going](const sim::OracleProgress&) { return keep_going({}); };
  return sim::RunSetup(options, &setup, SystemClock(), watch);
}

std::optional<double> RunTimeS(const sim::SimOptions& options) {
  const TimeNs begin = SystemClock().NowNs();
  TimeNs running = 0;  // when the set-up was done
  const auto pilot = RunCase(options, [&running](const sim::SimProgress& p) {
    const TimeNs now = SystemClock().NowNs();
    if (running == 0) running = now;
    return InterruptCount() == 0 && now - running < (p.ended > 0 ? kPilotNs : kLongestPilotNs);
  });
  const TimeNs end = SystemClock().NowNs();
  if (!pilot.ok() || pilot->progress.ended == 0 || InterruptCount() > 0) return std::nullopt;
  if (running == 0) running = begin;  // the run ended before the first progress call
  const double share = static_cast<double>(pilot->progress.ended) / static_cast<double>(pilot->progress.total);
  return (static_cast<double>(running - begin) + static_cast<double>(end - running) / share) * 1e-9;
}

std::string AboutText(double seconds) {
  return fmt::format(", about {} if all are like the first", seconds < 100
                                                                 ? fmt::format("{:.0f} s", std::max(seconds, 1.0))
                                                                 : fmt::format("{:.0f} min", seconds / 60));
}

std::optional<std::vector<double>> RunSet::Values(const results::RunMetric& metric) const {
  std::vector<double> values;
  for (const auto& run : runs) {
    const auto value = metric.Value(run);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional(std::move(values));
}

std::optional<std::vector<double>> RunSet::Seeds() const {
  std::vector<double> seeds;
  for (const auto& run : runs) {
    const auto seed = run.find("seed");
    if (seed == run.end() || !seed->is_number()) return std::nullopt;
    seeds.push_back(seed->get<double>());
  }
  return seeds.empty() ? std::nullopt : std::optional(std::move(seeds));
}

Result<std::vector<RunSet>> RunSeeds(const std::vector<std::pair<std::string, sim::SimOptions>>& configurations,
                                     int64_t seeds, int32_t threads) {
  struct Done {
    Status status{StatusCode::kCancelled, "interrupted"};
    Json result;
  };
  const auto each = static_cast<size_t>(seeds);
  std::vector<Done> runs(configurations.size() * each);
  sim::ForEachOnThreads(runs.size(), threads, [&](size_t i) {
    if (InterruptCount() > 0) return;
    sim::SimOptions options = configurations[i / each].second;
    options.seed += static_cast<int64_t>(i % each);
    auto report = RunCase(options, [](const sim::SimProgress&) { return InterruptCount() == 0; });
    if (!report.ok()) {
      runs[i].status = report.status();
    } else if (report->finished) {
      runs[i].status = sim::CheckCompleted(report->run);
      runs[i].result = std::move(report->json);
    }
  });
  std::vector<RunSet> sets;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string& name = configurations[i / each].first;
    const Status& status = runs[i].status;
    if (!status.ok()) return Status(status.code(), (name.empty() ? "" : name + ": ") + status.message());
    if (i % each == 0) sets.push_back({name, {}});
    sets.back().runs.push_back(std::move(runs[i].result));
  }
  return sets;
}

Json RunSetJson(const RunSet& set) {
  Json seeds = Json::array(), mean = Json::object();
  for (const auto& run : set.runs) seeds.push_back(run["seed"]);
  for (const results::RunMetric& metric : results::RunMetric::All()) {
    const auto values = set.Values(metric);
    mean[metric.Name()] = values ? results::IntervalJson(results::MeanOver(*values)) : Json(nullptr);
  }
  return {{"seeds", std::move(seeds)}, {"mean", std::move(mean)}, {"runs", set.runs}};
}

std::string RunSetTable(const Json& set) {
  std::string table;
  for (const results::RunMetric& metric : results::RunMetric::All()) {
    const auto& mean = set["mean"][metric.Name()];
    if (mean.is_null()) continue;
    const auto text = [&](const char* part) {
      return results::MetricText(mean[part].get<double>(), metric.info().unit);
    };
    table += fmt::format("{:<22} {:>14}", metric.Name(), text("mean"));
    if (!mean["low"].is_null()) table += fmt::format("   (95 % interval {} to {})", text("low"), text("high"));
    table += "\n";
  }
  return table;
}

}  // namespace tactus::cli
