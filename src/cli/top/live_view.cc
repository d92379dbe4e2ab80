#include "cli/top/live_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/json_text.h"
#include "base/one_line.h"

namespace tactus::cli {
namespace {

constexpr size_t kMostTextBytes = 120;
constexpr size_t kMostChoices = 64;  // of a request

const Json& Member(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

double NumberOr(const Json& value, double otherwise) {
  return value.is_number() ? value.get<double>() : otherwise;
}
double Number(const Json& object, const char* name, double otherwise = 0) {
  return NumberOr(Member(object, name), otherwise);
}

int64_t Whole(const Json& object, const char* name) {
  const double value = Number(object, name);
  return std::abs(value) < 9e15 ? static_cast<int64_t>(value) : 0;
}

std::string Text(const Json& object, const char* name) {
  return OneLine(json_text::TextOf(object, name), kMostTextBytes);
}

// The elements of a list; none if it is something else.
const Json& List(const Json& object, const char* name) {
  static const Json none = Json::array();
  const Json& value = Member(object, name);
  return value.is_array() ? value : none;
}

std::string NameOf(const Json& request) {
  const std::string id = Text(request, "id");
  return id.empty() ? fmt::format("#{}", Whole(request, "request")) : id;  // the id of another key's request is null
}

std::string MissesText(const Json& misses) {
  std::string text;
  if (!misses.is_object()) return text;
  for (const auto& [objective, cause] : misses.items()) {
    if (!cause.is_string()) continue;
    std::string why = OneLine(cause.get<std::string>(), kMostTextBytes);
    std::replace(why.begin(), why.end(), '_', ' ');
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", OneLine(objective, kMostTextBytes), why);
  }
  return text;
}

std::string TitleOf(const Json& hello, bool fleet) {
  std::string title = fmt::format("Tactus {}{}", Text(hello, "version"), fleet ? " router" : "");
  const auto add = [&](const char* before, const std::string& text) {
    if (!text.empty()) title += fmt::format("   {}{}", before, text);
  };
  add("", Text(hello, "model"));
  add("scheduler ", Text(hello, "scheduler"));
  add("balancer ", Text(hello, "balancer"));
  add("on ", Text(hello, "device"));
  return title;
}

EndedRow EndedRowOf(const Json& e) {
  EndedRow row;
  row.name = NameOf(e);
  row.slo_class = Text(e, "class");
  row.finish = Member(e, "refused") == true ? "refused" : Text(e, "finish_reason");
  row.misses = MissesText(Member(e, "misses"));
  row.prompt = Number(e, "prompt_tokens");
  row.tokens = Number(e, "completion_tokens");
  row.ttft_ms = Number(e, "ttft_ms", -1);
  row.e2e_ms = Number(e, "e2e_ms", -1);
  row.longest_gap_ms = Number(e, "longest_gap_ms", -1);
  return row;
}

// `known`: the rows of the request so far. A frame has only the gaps since the last one.
std::vector<LiveRow> StreamRows(const Json& stream, const std::vector<LiveRow>& known) {
  std::vector<LiveRow> rows;
  const Json& objectives = Member(stream, "objectives_ms");
  for (const Json& c : List(stream, "choices")) {
    if (rows.size() == kMostChoices) break;
    LiveRow row;
    row.request = Whole(stream, "request");
    row.choice = Whole(c, "choice");
    row.name = row.choice > 0 ? fmt::format("{} [{}]", NameOf(stream), row.choice) : NameOf(stream);
    row.slo_class = Text(stream, "class");
    row.prompt = Number(stream, "prompt_tokens");
    row.computed = std::max(Number(c, "computed_tokens"), Number(stream, "cached_tokens"));
    row.tokens = Number(c, "completion_tokens");
    row.ttft_ms = Number(c, "ttft_ms", -1);
    row.longest_gap_ms = Number(c, "longest_gap_ms", -1);
    row.late_gaps = Number(c, "late_gaps");
    row.ttft_objective_ms = Number(objectives, "ttft", -1);
    row.tbt_objective_ms = Number(objectives, "tbt", -1);
    const auto before =
        std::find_if(known.begin(), known.end(), [&](const LiveRow& r) { return r.choice == row.choice; });
    if (const Json& gaps = List(c, "gaps_ms"); !gaps.empty()) {
      row.last_gap_ms = NumberOr(gaps.back(), -1);
    } else if (before != known.end()) {
      row.last_gap_ms = before->last_gap_ms;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ClassRow ClassRowOf(const std::string& name, const Json& c) {
  ClassRow row;
  row.name = OneLine(name, kMostTextBytes);
  row.rejected = Number(c, "rejected");
  row.requests = Number(c, "completed") + Number(c, "failed") + row.rejected;
  for (const char* objective : {"all", "ttft", "tbt", "jct", "gaps"}) {
    const Json& kept = Member(c, objective);
    if (kept.is_object()) row.kept.push_back({objective, {Number(kept, "stated"), Number(kept, "kept")}});
  }
  return row;
}

ReplicaRow ReplicaRowOf(const Json& r) {
  ReplicaRow row;
  row.url = Text(r, "url");
  row.state = Text(r, "state");
  if (const std::string why = Text(r, "why"); !why.empty()) row.state += ": " + why;
  row.model = Text(r, "model");
  row.version = fmt::format("{} {}", Text(r, "kind"), Text(r, "version"));
  row.in_flight = Number(r, "in_flight");
  row.running = Number(r, "running", -1);
  row.waiting = Number(r, "waiting", -1);
  if (const double total = Number(r, "kv_tokens"); total > 0)
    row.kv_share = std::clamp(1 - Number(r, "free_kv_tokens") / total, 0.0, 1.0);
  row.requests = Number(r, "requests");
  row.failures = Number(r, "failures");
  row.ejections = Number(r, "ejections");
  return row;
}

}  // namespace

// Each kind of event has a member that the others lack.
Status LiveView::Take(std::string_view data, TimeNs received_ns) {
  TACTUS_ASSIGN_OR_RETURN(const Json event, json_text::ParseJson(data));
  if (Member(event, "frame").is_number()) {
    ++frames_;
    missed_frames_ += Whole(event, "lost_frames");
    figures_.clear();
    Figures totals;
    if (const Json& counts = Member(event, "totals"); counts.is_object()) {
      for (const auto& [name, value] : counts.items()) {
        if (value.is_number() && totals.size() < kMostClasses) totals[name] = value.get<double>();
      }
    }
    figures_ = totals;
    // Two frames at least stay, so that a rate is known when frames are rare.
    while (totals_.size() > 1 && totals_[1].first < received_ns - kRateNs) totals_.pop_front();
    totals_.emplace_back(received_ns, std::move(totals));
    if (totals_.size() > kMostSteps) totals_.pop_front();
    fleet_ ? TakeFleet(event) : TakeServer(event);
    return Status();
  }
  if (Member(event, "version").is_string()) {  // a server that was restarted may be another one
    *this = LiveView();
    fleet_ = Member(event, "fleet") == true;
    title_ = TitleOf(event, fleet_);
    return Status();
  }
  if (Member(event, "reason").is_string()) {
    ended_by_server_ = true;
    return Status();
  }
  return InvalidArgument(fmt::format("not an event of Tactus: {}", OneLine(data, kMostTextBytes)));
}

void LiveView::TakeServer(const Json& frame) {
  missed_records_ += Whole(frame, "lost_records");
  for (const char* name : {"running", "waiting", "waiting_tokens"}) figures_[name] = Number(frame, name);
  const Json& kv = Member(frame, "kv_blocks");
  figures_["kv_total"] = Number(kv, "total");
  figures_["kv_in_use"] = Number(kv, "in_use");
  figures_["kv_cached"] = Number(kv, "cached");
  for (const char* source : {"forced", "ngram", "model"}) {
    const Json& drafts = Member(Member(frame, "speculation"), source);
    figures_["draft_tokens"] += Number(drafts, "draft_tokens");
    figures_["accepted_tokens"] += Number(drafts, "accepted_tokens");
  }
  for (const Json& s : List(frame, "steps")) {
    steps_.push_back({Number(s, "ms"), Number(s, "predicted_ms", -1)});
    if (steps_.size() > kMostSteps) steps_.pop_front();
  }
  if (Member(frame, "whole") == true) {
    std::map<int64_t, std::vector<LiveRow>> live;
    for (const Json& s : List(frame, "streams")) {
      const int64_t request = Whole(s, "request");
      if (live.size() < kMostRows) live[request] = std::move(streams_[request]);  // their last gaps
    }
    streams_ = std::move(live);
  }
  for (const Json& s : List(frame, "streams")) {
    const int64_t request = Whole(s, "request");
    if (streams_.size() >= kMostRows && !streams_.contains(request)) continue;
    std::vector<LiveRow>& rows = streams_[request];
    rows = StreamRows(s, rows);
  }
  for (const Json& e : List(frame, "finished")) {
    streams_.erase(Whole(e, "request"));
    ended_.push_front(EndedRowOf(e));
    if (ended_.size() > kMostEnded) ended_.pop_back();
  }
  if (const Json& classes = Member(frame, "classes"); classes.is_object()) {
    classes_.clear();
    for (const auto& [name, c] : classes.items()) {
      if (classes_.size() < kMostClasses) classes_.push_back(ClassRowOf(name, c));
    }
  }
}

void LiveView::TakeFleet(const Json& frame) {
  const Json& fleet = Member(frame, "fleet");
  figures_["ready"] = Number(fleet, "ready");
  double moved = 0;
  if (const Json& moves = Member(Member(frame, "totals"), "migrations"); moves.is_object()) {
    for (const auto& entry : moves.items()) moved += NumberOr(entry.value(), 0);
  }
  figures_["moved"] = moved;
  replicas_.clear();
  for (const Json& r : List(fleet, "replicas")) {
    if (replicas_.size() == kMostRows) break;
    ReplicaRow row = ReplicaRowOf(r);
    figures_["in_flight"] += row.in_flight;
    figures_["running"] += std::max(row.running, 0.0);
    figures_["waiting"] += std::max(row.waiting, 0.0);
    replicas_.push_back(std::move(row));
  }
}

std::vector<LiveRow> LiveView::rows() const {
  std::vector<LiveRow> all;
  for (const auto& [request, rows] : streams_) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

double LiveView::Figure(const char* name) const {
  const auto found = figures_.find(name);
  return found == figures_.end() ? 0 : found->second;
}

std::optional<double> LiveView::Rate(const char* name) const {
  if (totals_.size() < 2) return std::nullopt;
  const auto at = [name](const Figures& totals) {
    const auto found = totals.find(name);
    return found == totals.end() ? 0 : found->second;
  };
  const auto& [first_ns, first] = totals_.front();
  const auto& [last_ns, last] = totals_.back();
  if (last_ns <= first_ns) return std::nullopt;
  return std::max(0.0, (at(last) - at(first)) / (static_cast<double>(last_ns - first_ns) * 1e-9));
}

std::optional<double> LiveView::MedianStepMs() const {
  constexpr size_t kSteps = 100;
  if (steps_.empty()) return std::nullopt;
  std::vector<double> times;
  for (size_t i = steps_.size() - std::min(steps_.size(), kSteps); i < steps_.size(); ++i)
    times.push_back(steps_[i].ms);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace tactus::cli
