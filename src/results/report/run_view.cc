#include "results/report/run_view.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/json_text.h"
#include "base/unit_text.h"

namespace tactus::results {
namespace {

constexpr size_t kMostNames = 32;
constexpr size_t kMostLabel = 80;

// The entry of this name, or "other" if there are too many names.
template <class Map>
typename Map::mapped_type& Entry(Map* map, std::string_view name) {
  const auto found = map->find(std::string(name));
  if (found != map->end()) return found->second;
  return (*map)[map->size() < kMostNames ? std::string(name) : "other"];
}

// Keeps the largest by `value`; of equal ones the earlier.
template <class Value>  // a member of SlowRequest, a duration
void Keep(const SlowRequest& request, Value value, std::vector<SlowRequest>* worst) {
  if (request.*value < 0) return;
  const auto place = std::upper_bound(worst->begin(), worst->end(), request,
                                      [value](const auto& a, const auto& b) { return a.*value > b.*value; });
  if (place == worst->end() && worst->size() >= kMostSlow) return;
  worst->insert(place, request);
  if (worst->size() > kMostSlow) worst->pop_back();
}

class Gatherer : public RunVisitor {
 public:
  explicit Gatherer(RunView* view) : view_(*view) {}

  void Step(const RunStep& s) override {
    end_ns_ = std::max(end_ns_, s.end_ns);
    const auto weight = static_cast<double>(std::max<DurationNs>(1, s.end_ns - s.start_ns));
    const auto add = [&](TimeBins* bins, auto value) {
      if (value >= 0) bins->Add(s.start_ns, static_cast<double>(value), weight);
    };
    add(&view_.prompt_tokens, s.prompt_tokens);
    add(&view_.decodes, s.decodes);
    add(&view_.kv_used, s.kv_used);
    add(&view_.running, s.running);
    add(&view_.waiting, s.waiting);
    if (s.longest_gap_ns >= 0) view_.longest_gap_ms.Add(s.end_ns, Milliseconds(s.longest_gap_ns));
  }
  void Interval(const RunInterval& i) override {
    if (last_) AddInterval(*last_, view_.file.about.interval_ns);
    last_ = i;
  }
  // Ends the last interval at its last event.
  void End() {
    if (!last_) return;
    const DurationNs length = end_ns_ - last_->from_ns, whole = view_.file.about.interval_ns;
    AddInterval(*last_, length > 0 && length < whole ? length : whole);
  }
  void Request(const RunRequest& r) override {
    end_ns_ = std::max(end_ns_, r.done_ns);
    if (r.slo.tbt_ns > 0) {
      view_.least_tbt_ns = view_.least_tbt_ns == 0 ? r.slo.tbt_ns : std::min(view_.least_tbt_ns, r.slo.tbt_ns);
      view_.most_tbt_ns = std::max(view_.most_tbt_ns, r.slo.tbt_ns);
    }
    SlowRequest slow{r.number, std::string(r.id.substr(0, kMostIdShown)), std::string(r.slo_class)};
    if (r.first_token_ns >= r.arrival_ns) slow.ttft_ns = r.first_token_ns - r.arrival_ns;
    slow.longest_gap_ns = r.longest_gap_ns;
    if (r.done_ns >= r.arrival_ns) slow.e2e_ns = r.done_ns - r.arrival_ns;
    Keep(slow, &SlowRequest::ttft_ns, &view_.last_first_tokens);
    Keep(slow, &SlowRequest::longest_gap_ns, &view_.longest_gaps);
    constexpr const char* kObjectives[kNumObjectives] = {"TTFT", "gap", "total"};
    for (size_t i = 0; i < kNumObjectives; ++i) {
      if (r.missed_by[i].empty()) continue;
      ++Entry(&Entry(&view_.misses, r.slo_class)[kObjectives[i]], r.missed_by[i]);
    }
  }

 private:
  // Values of an interval are placed at its middle.
  void AddInterval(const RunInterval& i, DurationNs length_ns) {
    const double seconds = static_cast<double>(length_ns) * 1e-9;
    const TimeNs middle = i.from_ns + length_ns / 2;
    view_.in_flight.Add(middle, static_cast<double>(i.in_flight));
    view_.arrivals_per_s.Add(middle, static_cast<double>(i.arrived) / seconds);
    view_.ends_per_s.Add(middle, static_cast<double>(i.completed) / seconds);
    view_.output_tokens_per_s.Add(middle, static_cast<double>(i.output_tokens) / seconds);
    if (i.ttft_ms.known) {
      view_.ttft_p50_ms.Add(middle, i.ttft_ms.p50);
      view_.ttft_p99_ms.Add(middle, i.ttft_ms.p99);
    }
    if (i.gap_ms.known) {
      view_.gap_p50_ms.Add(middle, i.gap_ms.p50);
      view_.gap_p99_ms.Add(middle, i.gap_ms.p99);
      view_.gap_max_ms.Add(middle, i.gap_ms.max);
    }
  }
  static double Milliseconds(DurationNs ns) { return static_cast<double>(ns) * 1e-6; }
  RunView& view_;
  std::optional<RunInterval> last_;
  TimeNs end_ns_ = 0;  // end of the last step or request
};

const std::string* OptionOf(const RunView& run, std::string_view name) {
  for (const auto& [option, text] : run.file.about.options) {
    if (option == name) return &text;
  }
  return nullptr;
}

// The options in which the runs differ, in the order of the first run, without those that only set outputs.
std::vector<std::string> DifferingOptions(const std::vector<RunView>& runs) {
  static const std::set<std::string, std::less<>> kOfTelling = {
      "run-out", "run-interval", "timeseries", "json", "output", "requests-out", "steps-out", "trace-out", "jobs"};
  std::vector<std::string> differing;
  for (const auto& [name, text] : runs[0].file.about.options) {
    if (kOfTelling.contains(name)) continue;
    const auto has = [&](const RunView& run) { return OptionOf(run, name) != nullptr; };
    const auto same = [&, &text = text](const RunView& run) { return *OptionOf(run, name) == text; };
    if (std::all_of(runs.begin(), runs.end(), has) && !std::all_of(runs.begin(), runs.end(), same))
      differing.push_back(name);
  }
  return differing;
}

std::optional<double> NumberOf(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// The sort value of an option's text: a number, a time or a size. Absent: a word.
std::optional<double> OrderOf(const std::string& text) {
  if (const auto number = NumberOf(text)) return number;
  if (const auto duration = ParseDuration(text); duration.ok()) return static_cast<double>(duration->ns);
  if (const auto bytes = ParseBytes(text); bytes.ok()) return static_cast<double>(bytes->bytes);
  return std::nullopt;
}

// Sorts the runs by the options in which they differ, words before numbers (rates 8, 16, 20, whatever the order of the
// files). Words keep the order of their first occurrence.
void OrderRuns(const std::vector<std::string>& differing, std::vector<RunView>* runs) {
  std::vector<std::vector<double>> keys(runs->size());
  for (const bool words : {true, false}) {
    for (const std::string& name : differing) {
      std::vector<double> values;
      for (const RunView& run : *runs) {
        const auto value = OrderOf(*OptionOf(run, name));
        if (value) values.push_back(*value);
      }
      const bool numbers = values.size() == runs->size();
      if (numbers == words) continue;
      for (size_t i = 0; i < runs->size(); ++i) {
        const auto same = [&](const RunView& run) { return *OptionOf(run, name) == *OptionOf((*runs)[i], name); };
        keys[i].push_back(
            numbers ? values[i] : static_cast<double>(std::find_if(runs->begin(), runs->end(), same) - runs->begin()));
      }
    }
  }
  std::vector<size_t> order(runs->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&keys](size_t a, size_t b) { return keys[a] < keys[b]; });
  std::vector<RunView> ordered;
  for (const size_t i : order) ordered.push_back(std::move((*runs)[i]));
  *runs = std::move(ordered);
}

std::string Stem(const std::string& path) {
  return json_text::ReplaceInvalidUtf8(std::filesystem::path(path).stem().string());
}

}  // namespace

std::optional<double> RunView::Value(const std::vector<const char*>& names) const {
  const Json* at = &file.result;
  for (const char* name : names) {
    if (!at->is_object()) return std::nullopt;
    const auto found = at->find(name);
    if (found == at->end()) return std::nullopt;
    at = &*found;
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

Result<RunView> ViewRun(const std::string& path) {
  RunView view;
  view.path = path;
  Gatherer gatherer(&view);
  TACTUS_RETURN_IF_ERROR(ReadRunFile(path, &gatherer, &view.file));
  gatherer.End();
  return view;
}

void LabelRuns(std::vector<RunView>* runs) {
  if (runs->empty()) return;
  const auto differing = DifferingOptions(*runs);
  OrderRuns(differing, runs);
  std::string load_name;
  for (const char* name : {"rate", "concurrency"}) {
    if (std::find(differing.begin(), differing.end(), name) != differing.end()) load_name = name;
  }
  const std::string& command = runs->front().file.about.command;
  const bool same_command =
      std::all_of(runs->begin(), runs->end(), [&](const RunView& run) { return run.file.about.command == command; });
  std::map<std::string, int> seen;
  for (RunView& run : *runs) {
    if (!same_command) run.label = run.group = run.file.about.command;
    const auto append = [](const std::string& name, const std::string& text, std::string* to) {
      *to += to->empty() ? "" : ", ";
      *to += text.empty() ? "no " + name : name == "scheduler" ? text : name + " " + text;
    };
    for (const std::string& name : differing) {
      const std::string& text = *OptionOf(run, name);
      append(name, text, &run.label);
      if (name == load_name) {
        run.load = NumberOf(text);
      } else if (name != "seed") {
        append(name, text, &run.group);
      }
    }
    if (run.label.empty() || run.label.size() > kMostLabel) run.label = Stem(run.path);
    run.label = json_text::ReplaceInvalidUtf8(run.label);
    ++seen[run.label];
  }
  for (RunView& run : *runs) {
    if (seen[run.label] > 1) run.label += " (" + Stem(run.path) + ")";
  }
}

}  // namespace tactus::results
