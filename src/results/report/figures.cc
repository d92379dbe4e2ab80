#include "results/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tactus::results {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostGroup = 40;    // letters of a group's name in the legend
constexpr size_t kMostPoints = 120;  // points per line: every third pixel of a picture
constexpr double kLogAbove = 30;     // largest / typical value from which an axis is logarithmic
constexpr double kFullAbove = 40;    // % of KV memory from which its axis goes up to 100
constexpr double kStallGaps = 5;     // without an objective: a gap of this many medians is a stall

// The time unit for a run of this length.
struct TimeUnit {
  double ns;
  const char* label;
};
TimeUnit UnitFor(double length_ns) {
  if (length_ns > 4 * 3600e9) return {3600e9, "time (h)"};
  if (length_ns > 20 * 60e9) return {60e9, "time (min)"};
  return {1e9, "time (s)"};
}
double LengthOf(const TimeBins& bins) {
  return static_cast<double>(bins.bins().size()) * static_cast<double>(bins.width_ns());
}

enum class Of : uint8_t { kMean, kLargest };

// The middles of non-empty bins. If there are more than a picture can show, neighbours are joined: alternating steps
// then appear as a mean with a band from the least to the largest value.
struct Points {
  std::vector<double> middle_ns;
  std::vector<TimeBins::Bin> bins;
  double width_ns = 0;
};
Points PointsOf(const TimeBins& bins) {
  Points points;
  const size_t joined = (bins.bins().size() + kMostPoints - 1) / kMostPoints;
  points.width_ns = static_cast<double>(joined) * static_cast<double>(bins.width_ns());
  for (size_t begin = 0; begin < bins.bins().size(); begin += joined) {
    TimeBins::Bin all;
    double weighted_ns = 0;
    for (size_t i = begin; i < std::min(begin + joined, bins.bins().size()); ++i) {
      const TimeBins::Bin& bin = bins.bins()[i];
      Join(bin, &all);
      weighted_ns += bin.weight * (static_cast<double>(i) + 0.5) * static_cast<double>(bins.width_ns());
    }
    // Bins narrower than the steps or intervals are partly empty, which is no gap of the run.
    if (all.weight == 0) continue;
    points.middle_ns.push_back(weighted_ns / all.weight);
    points.bins.push_back(all);
  }
  return points;
}

// A line of means or largest values; `band`: with a band from the least to the largest value.
Line LineOf(const TimeBins& bins, const std::string& name, size_t colour, TimeUnit unit, Of of, bool band = false) {
  Line line;
  line.name = name;
  line.colour = colour;
  const Points points = PointsOf(bins);
  for (size_t i = 0; i < points.bins.size(); ++i) {
    const TimeBins::Bin& bin = points.bins[i];
    line.x.push_back(points.middle_ns[i] / unit.ns);
    line.y.push_back(of == Of::kMean ? bin.mean() : bin.largest);
    if (!band) continue;
    line.least.push_back(bin.least);
    line.most.push_back(bin.largest);
  }
  return line;
}

double LargestOf(const LinePlot& plot) {
  double most = 0;
  for (const Line& line : plot.lines) {
    for (const double y : line.y) most = std::max(most, std::isfinite(y) ? y : 0);
  }
  return most;
}

class RunPictures {
 public:
  RunPictures(const RunView& run, std::string prefix) : run_(run), prefix_(std::move(prefix)) {
    double length_ns = 0;
    for (const TimeBins* bins : {&run.running, &run.in_flight, &run.longest_gap_ms})
      length_ns = std::max(length_ns, LengthOf(*bins));
    unit_ = UnitFor(length_ns);
  }

  std::vector<Figure> Take() {
    Gaps();
    FirstTokens();
    Batch();
    Queue();
    KvMemory();
    Throughput();
    Bubbles();
    Attainment();
    MissedBy();
    return std::move(figures_);
  }

 private:
  LinePlot OverTime(const char* id, const char* title, const char* y_label) const {
    LinePlot plot;
    plot.id = prefix_ + id;
    plot.title = title;
    plot.x_label = unit_.label;
    plot.y_label = y_label;
    return plot;
  }

  // A stall: a gap longer than the requests' objective, or than kStallGaps medians without one.
  double StallMs() const {
    if (run_.least_tbt_ns > 0) return static_cast<double>(run_.least_tbt_ns) * 1e-6;
    return kStallGaps * run_.Value({"tbt_ms", "p50"}).value_or(0);
  }

  void Gaps() {
    const TimeBins& longest = run_.longest_gap_ms.empty() ? run_.gap_max_ms : run_.longest_gap_ms;
    if (longest.empty()) return;
    LinePlot plot = OverTime("tbt", "Gap between tokens", "gap (ms)");
    plot.lines.push_back(LineOf(longest, "longest", 1, unit_, Of::kLargest));
    plot.lines.push_back(LineOf(run_.gap_p99_ms, "P99", 4, unit_, Of::kMean));
    plot.lines.back().dashed = true;
    plot.lines.push_back(LineOf(run_.gap_p50_ms, "median", 0, unit_, Of::kMean));
    const double stall_ms = StallMs();
    if (stall_ms > 0) {
      plot.limit = {
          run_.least_tbt_ns == 0
              ? fmt::format("{:g} medians, {} ms", kStallGaps, Number(stall_ms))
              : fmt::format("{} {} ms", run_.least_tbt_ns == run_.most_tbt_ns ? "objective" : "least objective",
                            Number(stall_ms)),
          stall_ms};
      const Line& line = plot.lines[0];
      const double width = PointsOf(longest).width_ns / unit_.ns;
      for (size_t i = 0; i < line.x.size(); ++i) {
        if (line.y[i] > stall_ms) plot.marks.push_back({line.x[i], stall_ms, line.y[i], width});
      }
      plot.marks_name = "stall";
    }
    const double median = run_.Value({"tbt_ms", "p50"}).value_or(0);
    plot.log_y = median > 0 && LargestOf(plot) > kLogAbove * median;
    int64_t stalls = 0, all = 0;
    for (const TimeBins::Bin& bin : longest.bins()) {
      all += bin.weight > 0 ? 1 : 0;
      stalls += bin.weight > 0 && bin.largest > stall_ms ? 1 : 0;
    }
    Add(std::move(plot),
        stall_ms <= 0 ? ""
                      : fmt::format("Gaps between two tokens of one stream. {} of {} points in time had a stall: a gap "
                                    "above the dashed line.",
                                    stalls, all));
  }

  void FirstTokens() {
    if (run_.ttft_p50_ms.empty()) return;
    LinePlot plot = OverTime("ttft", "Time to first token (TTFT)", "TTFT (ms)");
    plot.lines.push_back(LineOf(run_.ttft_p99_ms, "P99", 1, unit_, Of::kMean));
    plot.lines.push_back(LineOf(run_.ttft_p50_ms, "median", 0, unit_, Of::kMean));
    const double median = run_.Value({"ttft_ms", "p50"}).value_or(0);
    plot.log_y = median > 0 && LargestOf(plot) > kLogAbove * median;
    Add(std::move(plot),
        "First tokens in each interval. A line that rises to the end shows a growing queue: the load exceeds the "
        "capacity.");
  }

  void Batch() {
    if (run_.decodes.empty()) return;
    LinePlot plot = OverTime("batch", "Contents of steps", "tokens per step");
    const char* alone =
        "Prompt tokens with decodes are chunks in hybrid batches; prompt tokens without decodes delay all decodes.";
    plot.stacked = run_.decodes.bins().size() <= kMostPoints;
    if (plot.stacked) {
      plot.lines.push_back(LineOf(run_.decodes, "decodes", 0, unit_, Of::kMean));
      plot.lines.push_back(LineOf(run_.prompt_tokens, "prompt tokens", 1, unit_, Of::kMean));
    } else {
      plot.lines.push_back(LineOf(run_.prompt_tokens, "prompt tokens", 1, unit_, Of::kMean, true));
      plot.lines.push_back(LineOf(run_.decodes, "decodes", 0, unit_, Of::kMean, true));
    }
    const char* shown =
        plot.stacked ? "Means over time." : "Means over time, with a band from the smallest to the largest step.";
    Add(std::move(plot), fmt::format("{} {}", shown, alone));
  }

  void Queue() {
    const bool engine = !run_.running.empty();
    if (!engine && run_.in_flight.empty()) return;
    LinePlot plot = OverTime("queue", engine ? "Sequences" : "Requests in flight", engine ? "sequences" : "requests");
    if (engine) {
      plot.lines.push_back(LineOf(run_.waiting, "waiting", 1, unit_, Of::kMean, true));
      plot.lines.push_back(LineOf(run_.running, "running", 0, unit_, Of::kMean, true));
    } else {
      plot.lines.push_back(LineOf(run_.in_flight, "in flight", 0, unit_, Of::kMean, true));
    }
    Add(std::move(plot), "Means, with a band from the smallest to the largest value.");
  }

  void KvMemory() {
    if (run_.kv_used.empty()) return;
    LinePlot plot = OverTime("kv", "KV memory in use", "share of the blocks (%)");
    Line line = LineOf(run_.kv_used, "", 2, unit_, Of::kMean, true);
    for (auto* values : {&line.y, &line.least, &line.most}) {
      for (double& value : *values) value *= 100;
    }
    // The axis goes up to 100 %, unless use is so low that the line would lie on the axis.
    const double most = *std::max_element(line.most.begin(), line.most.end());
    plot.lines.push_back(std::move(line));
    if (most >= kFullAbove) plot.y_top = 100;
    Add(std::move(plot),
        fmt::format("At most {:.3g} % of the blocks. When memory is full, sequences wait or are preempted.", most));
  }

  void Throughput() {
    if (run_.output_tokens_per_s.empty()) return;
    LinePlot tokens = OverTime("tokens", "Tokens", "output tokens per second");
    tokens.lines.push_back(LineOf(run_.output_tokens_per_s, "", 0, unit_, Of::kMean));
    Add(std::move(tokens), "");
    LinePlot requests = OverTime("requests", "Requests", "requests per second");
    requests.lines.push_back(LineOf(run_.arrivals_per_s, "arrived", 1, unit_, Of::kMean));
    requests.lines.push_back(LineOf(run_.ends_per_s, "completed", 0, unit_, Of::kMean));
    Add(std::move(requests), "");
  }

  void Bubbles() {
    const auto bubbles = run_.file.result.find("bubbles");
    if (bubbles == run_.file.result.end() || !bubbles->is_object()) return;
    const auto stages = bubbles->find("stages");
    if (stages == bubbles->end() || !stages->is_array() || stages->empty()) return;
    BarPlot plot;
    plot.id = prefix_ + "bubbles";
    plot.title = "Pipeline stages: busy, and idle by cause";
    plot.y_label = "time (s)";
    plot.stacked = true;
    for (const auto& [name, value] : stages->front().items()) {
      if (!value.is_number() || plot.series.size() > kNumColours) continue;
      std::string cause = name.ends_with("_s") ? name.substr(0, name.size() - 2) : name;
      std::replace(cause.begin(), cause.end(), '_', ' ');
      plot.series.push_back({cause, plot.series.size(), {}});
      for (const auto& stage : *stages) {
        const auto found = stage.is_object() ? stage.find(name) : stage.end();
        const bool known = stage.is_object() && found != stage.end() && found->is_number();
        plot.series.back().values.push_back(known ? found->template get<double>() : kNone);
      }
    }
    for (size_t i = 0; i < stages->size(); ++i) plot.categories.push_back(fmt::format("stage {}", i));
    Add(std::move(plot), "Idle time before steps by cause (docs/concepts/simulator.md, \"Bubbles\").");
  }

  void Attainment() {
    const auto classes = run_.file.result.find("classes");
    if (classes == run_.file.result.end() || !classes->is_object()) return;
    BarPlot plot;
    plot.id = prefix_ + "attainment";
    plot.title = "Objectives met, by class";
    plot.y_label = "share of requests (%)";
    plot.y_top = 100;
    constexpr std::pair<const char*, const char*> kShares[] = {{"slo_attainment", "all of them"},
                                                               {"ttft_attainment", "TTFT"},
                                                               {"tbt_attainment", "gap"},
                                                               {"jct_attainment", "total"}};
    for (const auto& [name, title] : kShares) plot.series.push_back({title, plot.series.size(), {}});
    for (const auto& [name, figures] : classes->items()) {
      if (!figures.is_object()) continue;
      std::vector<double> shares;
      for (const auto& [share, title] : kShares) {
        const auto found = figures.find(share);
        shares.push_back(found != figures.end() && found->is_number() ? 100 * found->template get<double>() : kNone);
      }
      if (std::none_of(shares.begin(), shares.end(), [](double s) { return std::isfinite(s); })) continue;
      plot.categories.push_back(name.empty() ? "(no name)" : name);
      for (size_t i = 0; i < shares.size(); ++i) plot.series[i].values.push_back(shares[i]);
    }
    std::erase_if(plot.series, [](const BarPlot::Series& s) {
      return std::none_of(s.values.begin(), s.values.end(), [](double v) { return std::isfinite(v); });
    });
    if (plot.categories.empty()) return;
    Add(std::move(plot), "Share of requests with objectives. Rejected and failed requests met none.");
  }

  void MissedBy() {
    if (run_.misses.empty()) return;
    BarPlot plot;
    plot.id = prefix_ + "misses";
    plot.title = "Missed objectives, by cause";
    plot.y_label = "requests";
    plot.stacked = true;
    std::map<std::string, std::vector<double>> by_cause;
    for (const auto& [name, misses] : run_.misses) {
      for (const auto& [objective, causes] : misses) {
        plot.categories.push_back(name.empty() ? objective : name + " " + objective);
        for (const auto& [cause, count] : causes) {
          auto& counts = by_cause[cause];
          counts.resize(plot.categories.size() - 1);
          counts.push_back(static_cast<double>(count));
        }
      }
    }
    // The most frequent causes have their own colours.
    std::vector<std::pair<double, std::string>> order;
    for (auto& [cause, counts] : by_cause) {
      counts.resize(plot.categories.size());
      double sum = 0;
      for (const double count : counts) sum += count;
      order.emplace_back(-sum, cause);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [sum, cause] : order) {
      const std::vector<double>& counts = by_cause[cause];
      if (plot.series.size() + 1 < kNumColours || order.size() <= kNumColours) {
        std::string name = cause;
        std::replace(name.begin(), name.end(), '_', ' ');
        plot.series.push_back({name, plot.series.size(), counts});
        continue;
      }
      if (plot.series.size() < kNumColours)
        plot.series.push_back({"other", kNumColours - 1, counts});
      else
        for (size_t i = 0; i < counts.size(); ++i) plot.series.back().values[i] += counts[i];
    }
    Add(std::move(plot), "By the main cause of each miss (docs/reference/api.md, \"Why a request was late\").");
  }

  template <class Plot>
  void Add(Plot plot, std::string caption) {
    figures_.push_back({std::move(plot), std::move(caption)});
  }

  const RunView& run_;
  const std::string prefix_;
  TimeUnit unit_{};
  std::vector<Figure> figures_;
};

using ByLoad = std::map<double, std::vector<const RunView*>>;

// A group whose name is too long for the legend is shown as the numbers of its runs in the page's table: "runs 2, 3,
// 4".
std::string Numbers(const ByLoad& points, const std::vector<RunView>& runs) {
  constexpr size_t kMost = 6;
  std::vector<size_t> numbers;
  for (const auto& [load, at] : points) {
    for (const RunView* run : at) numbers.push_back(static_cast<size_t>(run - runs.data()) + 1);
  }
  std::sort(numbers.begin(), numbers.end());
  std::string text = numbers.size() == 1 ? "run" : "runs";
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i)
    text += fmt::format("{}{}", i == 0 ? " " : ", ", numbers[i]);
  return text + (numbers.size() > kMost ? ", ..." : "");
}

// Latency percentiles against load: a line per group and percentile.
void AddLoadPlots(const std::vector<RunView>& runs, std::vector<Figure>* figures) {
  std::vector<std::pair<std::string, ByLoad>> groups;  // in the order of the runs
  for (const RunView& run : runs) {
    if (!run.load || !run.file.complete()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&run](const auto& g) { return g.first == run.group; });
    if (group == groups.end()) group = groups.insert(group, {run.group, {}});
    group->second[*run.load].push_back(&run);
  }
  const bool by_rate = std::any_of(
      runs.begin(), runs.end(), [](const RunView& r) { return r.load && r.Value({"request_rate_asked"}).has_value(); });
  if (std::none_of(groups.begin(), groups.end(), [](const auto& g) { return g.second.size() > 1; })) return;
  constexpr std::pair<const char*, const char*> kLatencies[] = {
      {"ttft_ms", "Time to first token (TTFT)"}, {"tbt_ms", "Gap between tokens"}, {"e2e_ms", "Total time"}};
  for (const auto& [latency, title] : kLatencies) {
    LinePlot plot;
    plot.id = fmt::format("load-{}", std::string_view(latency).substr(0, std::string_view(latency).find('_')));
    plot.title = fmt::format("{} against load", title);
    plot.x_label = by_rate ? "requests per second" : "requests in flight";
    plot.y_label = "latency (ms)";
    size_t colour = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [group, points] : groups) {
      for (const char* percentile : {"p99", "p50"}) {
        Line line;
        const std::string name = group.size() > kMostGroup ? Numbers(points, runs) : group;
        line.name = fmt::format("{}{}{}", name, name.empty() ? "" : " ", percentile[1] == '9' ? "P99" : "median");
        line.colour = colour;
        line.dashed = percentile[1] == '5';
        line.dots = true;
        for (const auto& [load, at] : points) {
          double sum = 0, known = 0;
          for (const RunView* run : at) {
            if (const auto value = run->Value({latency, percentile})) sum += *value, ++known;
          }
          line.x.push_back(load);
          line.y.push_back(known > 0 ? sum / known : kNone);
          if (known > 0 && sum > 0) least = std::min(least, sum / known);
        }
        plot.lines.push_back(std::move(line));
      }
      ++colour;
    }
    plot.log_y = LargestOf(plot) > kLogAbove * least;
    figures->push_back(
        {std::move(plot), "Runs with the same load that differ only in their seed are one point, their mean."});
  }
}

}  // namespace

std::vector<Figure> RunFigures(const RunView& run, const std::string& prefix) {
  return RunPictures(run, prefix).Take();
}

std::vector<Figure> ComparisonFigures(const std::vector<RunView>& runs) {
  std::vector<Figure> figures;
  if (runs.size() < 2) return figures;
  AddLoadPlots(runs, &figures);
  struct Measure {
    const char *id, *title, *y_label;
    std::vector<std::pair<std::vector<const char*>, const char*>> series;
    double factor = 1;
  };
  // Names that do not fit under their bars are replaced by the runs' numbers in the page's table.
  const size_t letters = 320 / runs.size() / 7;
  const bool numbered =
      std::any_of(runs.begin(), runs.end(), [letters](const RunView& run) { return run.label.size() > letters; });
  const Measure measures[] = {
      {"compare-ttft",
       "Time to first token",
       "TTFT (ms)",
       {{{"ttft_ms", "p50"}, "median"}, {{"ttft_ms", "p99"}, "P99"}}},
      {"compare-tbt", "Gap between tokens", "gap (ms)", {{{"tbt_ms", "p50"}, "median"}, {{"tbt_ms", "p99"}, "P99"}}},
      {"compare-e2e", "Total time", "total (ms)", {{{"e2e_ms", "p50"}, "median"}, {{"e2e_ms", "p99"}, "P99"}}},
      {"compare-requests",
       "Requests served",
       "requests per second",
       {{{"request_throughput"}, "completed"}, {{"goodput"}, "within all objectives"}}},
      {"compare-tokens", "Tokens", "output tokens per second", {{{"output_token_throughput"}, "tokens"}}},
      {"compare-attainment",
       "Objectives kept",
       "share of requests (%)",
       {{{"slo_attainment"}, "all of them"},
        {{"ttft_attainment"}, "TTFT"},
        {{"tbt_attainment"}, "gap"},
        {{"jct_attainment"}, "total"}},
       100},
  };
  for (const Measure& m : measures) {
    BarPlot plot;
    plot.id = m.id;
    plot.title = m.title;
    plot.y_label = m.y_label;
    if (m.factor == 100) plot.y_top = 100;
    for (const RunView& run : runs)
      plot.categories.push_back(numbered ? fmt::format("{}", plot.categories.size() + 1) : run.label);
    for (const RunView& run : runs) plot.full_names.push_back(run.label);
    for (const auto& [names, title] : m.series) {
      BarPlot::Series series{title, plot.series.size(), {}};
      for (const RunView& run : runs) {
        const auto value = run.Value(names);
        series.values.push_back(value ? *value * m.factor : kNone);
      }
      if (std::any_of(series.values.begin(), series.values.end(), [](double v) { return std::isfinite(v); }))
        plot.series.push_back(std::move(series));
    }
    if (!plot.series.empty())
      figures.push_back({std::move(plot), numbered ? "Runs by their number in the table." : ""});
  }
  return figures;
}

}  // namespace tactus::results
