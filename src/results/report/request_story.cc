#include "results/report/request_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/printable.h"
#include "results/obs/run_reader.h"

namespace tactus::results {
namespace {

// Null if one of the two times does not exist.
Json Milliseconds(TimeNs from_ns, TimeNs to_ns) {
  return from_ns < 0 || to_ns < from_ns ? Json(nullptr) : Json(static_cast<double>(to_ns - from_ns) * 1e-6);
}
Json KnownCount(int64_t count) {
  return count < 0 ? Json(nullptr) : Json(count);
}

Json StoryOf(const RunRequest& r) {
  Json story = {{"request", KnownCount(r.number)},
                {"id", std::string(r.id)},
                {"replica", KnownCount(r.replica)},
                {"class", std::string(r.slo_class)},
                {"finish", std::string(r.finish)},
                {"prompt_tokens", KnownCount(r.prompt_tokens)},
                {"cached_tokens", KnownCount(r.cached_tokens)},
                {"completion_tokens", KnownCount(r.output_tokens)},
                {"arrival_s", static_cast<double>(r.arrival_ns) * 1e-9},
                {"waited_ms", Milliseconds(r.arrival_ns, r.scheduled_ns)},
                {"prompt_ms", Milliseconds(r.scheduled_ns, r.first_token_ns)},
                {"answer_ms", Milliseconds(r.first_token_ns, r.done_ns)},
                {"ttft_ms", Milliseconds(r.arrival_ns, r.first_token_ns)},
                {"e2e_ms", Milliseconds(r.arrival_ns, r.done_ns)},
                {"longest_gap_ms", Milliseconds(0, r.longest_gap_ns)},
                {"preemptions", KnownCount(r.preemptions)},
                {"recomputed_tokens", KnownCount(r.recomputed_tokens)}};
  Json objectives = Json::array();
  const std::pair<DurationNs, const char*> stated[] = {
      {r.slo.ttft_ns, "ttft_ms"}, {r.slo.tbt_ns, "longest_gap_ms"}, {r.slo.jct_ns, "e2e_ms"}};
  for (size_t i = 0; i < kNumObjectives; ++i) {
    if (stated[i].first <= 0) continue;
    Json objective = {{"objective", ObjectiveName(static_cast<Objective>(i))},
                      {"stated_ms", static_cast<double>(stated[i].first) * 1e-6},
                      {"actual_ms", story[stated[i].second]},
                      {"kept", r.missed_by[i].empty()}};
    if (!r.missed_by[i].empty()) objective["cause"] = std::string(r.missed_by[i]);
    objectives.push_back(std::move(objective));
  }
  story["objectives"] = std::move(objectives);
  return story;
}

class Finder final : public RunVisitor {
 public:
  explicit Finder(const std::string& id) : id_(id) {}
  void Request(const RunRequest& r) override {
    if (r.id != id_ && (r.number < 0 || fmt::format("{}", r.number) != id_)) return;
    story = StoryOf(r);
    found = r;
    found.id = found.finish = found.slo_class = {};  // texts are valid only during the call
    found.missed_by = {};
  }
  std::optional<Json> story;
  RunRequest found;

 private:
  const std::string& id_;
};

// The steps of the request's replica during one phase of the request. Means are weighted by step time.
class Phase {
 public:
  Phase(const char* name, TimeNs from_ns, TimeNs to_ns) : name_(name), from_ns_(from_ns), to_ns_(to_ns) {}

  void Add(const RunStep& s) {
    const DurationNs within_ns = std::min(s.end_ns, to_ns_) - std::max(s.start_ns, from_ns_);
    if (within_ns <= 0) return;
    ++steps_;
    longest_step_ns_ = std::max(longest_step_ns_, s.end_ns - s.start_ns);
    prompt_tokens_ += s.prompt_tokens;
    decodes_ += s.decodes;
    preemptions_ += s.preemptions;
    kv_used_ = std::max(kv_used_, s.kv_used);
    if (s.running < 0 || s.waiting < 0) return;
    const auto weight = static_cast<double>(within_ns);
    weight_ += weight;
    running_ += weight * static_cast<double>(s.running);
    waiting_ += weight * static_cast<double>(s.waiting);
  }

  // Null: the phase did not occur.
  Json ToJson() const {
    if (from_ns_ < 0 || to_ns_ < from_ns_) return nullptr;
    Json j = {{"phase", name_}, {"ms", Milliseconds(from_ns_, to_ns_)}, {"steps", steps_}};
    j["longest_step_ms"] = steps_ > 0 ? Json(static_cast<double>(longest_step_ns_) * 1e-6) : Json(nullptr);
    j["prompt_tokens"] = prompt_tokens_;
    j["decodes"] = decodes_;
    j["preemptions"] = preemptions_;
    j["running"] = weight_ > 0 ? Json(running_ / weight_) : Json(nullptr);
    j["waiting"] = weight_ > 0 ? Json(waiting_ / weight_) : Json(nullptr);
    j["kv_used"] = kv_used_ >= 0 ? Json(kv_used_) : Json(nullptr);
    return j;
  }

 private:
  const char* const name_;
  const TimeNs from_ns_, to_ns_;
  int64_t steps_ = 0, prompt_tokens_ = 0, decodes_ = 0, preemptions_ = 0;
  DurationNs longest_step_ns_ = 0;
  double kv_used_ = -1, weight_ = 0, running_ = 0, waiting_ = 0;
};

// The share of the run's other requests that were faster.
class Rank {
 public:
  explicit Rank(DurationNs own_ns) : own_ns_(own_ns) {}
  void Add(DurationNs other_ns) {
    if (own_ns_ < 0 || other_ns < 0) return;
    ++all_;
    faster_ += other_ns < own_ns_;
  }
  Json ToJson() const {
    return all_ > 0 ? Json(static_cast<double>(faster_) / static_cast<double>(all_)) : Json(nullptr);
  }

 private:
  const DurationNs own_ns_;
  int64_t all_ = 0, faster_ = 0;
};

DurationNs Between(TimeNs from_ns, TimeNs to_ns) {
  return from_ns < 0 || to_ns < from_ns ? -1 : to_ns - from_ns;
}

// Collects the context of the request, in a second reading of the file.
class Surroundings final : public RunVisitor {
 public:
  Surroundings(const RunRequest& request, DurationNs interval_ns)
      : r_(request),
        interval_ns_(interval_ns),
        phases_{Phase("waited", r_.arrival_ns, r_.scheduled_ns), Phase("prompt", r_.scheduled_ns, r_.first_token_ns),
                Phase("answer", r_.first_token_ns, r_.done_ns)},
        ttft_(Between(r_.arrival_ns, r_.first_token_ns)),
        e2e_(Between(r_.arrival_ns, r_.done_ns)),
        gap_(r_.longest_gap_ns) {}

  void Step(const RunStep& s) override {
    if (s.replica != r_.replica) return;
    for (Phase& phase : phases_) phase.Add(s);
    NoteGap(s);
  }
  void Interval(const RunInterval& i) override {
    if (i.from_ns >= r_.done_ns || i.from_ns + interval_ns_ <= r_.arrival_ns) return;
    ++intervals_;
    in_flight_ += static_cast<double>(i.in_flight);
  }
  void Request(const RunRequest& other) override {
    if (other.number == r_.number && other.arrival_ns == r_.arrival_ns) return;
    ++others_;
    ttft_.Add(Between(other.arrival_ns, other.first_token_ns));
    e2e_.Add(Between(other.arrival_ns, other.done_ns));
    gap_.Add(other.longest_gap_ns);
  }

  void AddTo(Json* story) const {
    Json phases = Json::array();
    for (const Phase& phase : phases_) {
      if (Json j = phase.ToJson(); !j.is_null()) phases.push_back(std::move(j));
    }
    (*story)["phases"] = std::move(phases);
    (*story)["longest_gap"] = gap_step_;
    (*story)["in_flight"] = intervals_ > 0 ? Json(in_flight_ / static_cast<double>(intervals_)) : Json(nullptr);
    (*story)["others"] = others_;
    (*story)["slower_than"] = {{"ttft", ttft_.ToJson()}, {"e2e", e2e_.ToJson()}, {"longest_gap", gap_.ToJson()}};
  }

 private:
  // The step that ended the longest gap has a gap of exactly that length. The work in between is the sum of the steps
  // that ended within the gap.
  void NoteGap(const RunStep& s) {
    if (r_.longest_gap_ns <= 0 || s.end_ns <= r_.first_token_ns || s.end_ns > r_.done_ns || !gap_step_.is_null())
      return;
    recent_.push_back({s.end_ns, s.prompt_tokens, s.decodes});
    while (recent_.front().end_ns <= s.end_ns - r_.longest_gap_ns) recent_.pop_front();
    if (s.longest_gap_ns != r_.longest_gap_ns) return;
    int64_t prompt_tokens = 0, decodes = 0;
    for (const Recent& step : recent_) {
      prompt_tokens += step.prompt_tokens;
      decodes += step.decodes;
    }
    gap_step_ = {{"step", s.step},
                 {"from_s", static_cast<double>(s.end_ns - r_.longest_gap_ns) * 1e-9},
                 {"to_s", static_cast<double>(s.end_ns) * 1e-9},
                 {"steps", recent_.size()},
                 {"prompt_tokens", prompt_tokens},
                 {"decodes", decodes}};
  }

  struct Recent {
    TimeNs end_ns;
    int64_t prompt_tokens, decodes;
  };
  const RunRequest& r_;
  const DurationNs interval_ns_;
  std::array<Phase, 3> phases_;
  Rank ttft_, e2e_, gap_;
  std::deque<Recent> recent_;
  Json gap_step_;
  int64_t intervals_ = 0, others_ = 0;
  double in_flight_ = 0;
};

std::string Text(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_number_float() ? fmt::format("{:.3f}", value.get<double>()) : value.dump();
}

std::string Count(const Json& count, const char* one, const char* several) {
  const auto n = count.get<int64_t>();
  return fmt::format("{} {}", n, n == 1 ? one : several);
}

// Describes the steps of a phase; empty if there were none.
std::string StepsText(const Json& phase) {
  if (phase["steps"] == 0) return "";
  std::string text = fmt::format("{}, the longest {:.3f} ms; {}, {}", Count(phase["steps"], "step", "steps"),
                                 phase["longest_step_ms"].get<double>(),
                                 Count(phase["prompt_tokens"], "prompt token", "prompt tokens"),
                                 Count(phase["decodes"], "decode", "decodes"));
  if (phase["preemptions"] != 0) text += ", " + Count(phase["preemptions"], "preemption", "preemptions");
  if (!phase["running"].is_null())
    text += fmt::format("; {:.1f} ran, {:.1f} waited", phase["running"].get<double>(), phase["waiting"].get<double>());
  if (!phase["kv_used"].is_null()) text += fmt::format("; KV up to {:.0f} %", 100 * phase["kv_used"].get<double>());
  return text;
}

std::string GapText(const Json& gap) {
  if (gap.is_null()) return "";
  return fmt::format("until {:.3f} s; {}, to step {}: {}, {}", gap["to_s"].get<double>(),
                     Count(gap["steps"], "step", "steps"), gap["step"].get<int64_t>(),
                     Count(gap["prompt_tokens"], "prompt token", "prompt tokens"),
                     Count(gap["decodes"], "decode", "decodes"));
}

std::string RankText(const Json& story) {
  std::string text;
  for (const auto& [name, title] : {std::pair{"ttft", "TTFT"}, {"longest_gap", "longest gap"}, {"e2e", "total"}}) {
    if (const Json& share = story["slower_than"][name]; !share.is_null())
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", title, 100 * share.get<double>());
  }
  if (text.empty()) return "";
  text = fmt::format("  {:<22}{} of {}", "others were faster", text, Count(story["others"], "request", "requests"));
  if (!story["in_flight"].is_null())
    text += fmt::format("; in flight meanwhile: {:.1f}", story["in_flight"].get<double>());
  return text + "\n";
}

}  // namespace

bool IsArchive(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // a pipe cannot be read twice
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  return in.read(magic, sizeof(magic)) && std::string_view(magic, sizeof(magic)) == std::string_view("PK\x03\x04", 4);
}

Result<Json> RequestStory(const std::string& path, const std::string& id) {
  Finder finder(id);
  RunFile run;
  TACTUS_RETURN_IF_ERROR(ReadRunFile(path, &finder, &run));
  if (!finder.story) {
    return NotFound(fmt::format("no request '{}' among the {} of the run file '{}'; give a number or a client's id",
                                Printable(id), run.rows[0], Printable(path)));
  }
  Surroundings beside(finder.found, run.about.interval_ns);
  RunFile again;
  TACTUS_RETURN_IF_ERROR(ReadRunFile(path, &beside, &again));
  Json story = std::move(*finder.story);
  beside.AddTo(&story);
  return story;
}

std::string StoryTable(const Json& story) {
  std::string out =
      fmt::format("request {}{}: ended by {}, {} prompt tokens, {} of the answer, {} preemptions\n",
                  Text(story["request"]), story["id"] == "" ? "" : " " + Text(story["id"]), Text(story["finish"]),
                  Text(story["prompt_tokens"]), Text(story["completion_tokens"]), Text(story["preemptions"]));
  const auto row = [&out](const char* title, const Json& ms, const std::string& beside) {
    out += fmt::format("  {:<22}{:>14} ms{}{}\n", title, Text(ms), beside.empty() ? "" : "   ", beside);
  };
  const auto beside = [&story](std::string_view name) {
    for (const Json& phase : story["phases"]) {
      if (phase["phase"] == name) return StepsText(phase);
    }
    return std::string();
  };
  row("waited", story["waited_ms"], beside("waited"));
  row("computed its prompt", story["prompt_ms"], beside("prompt"));
  row("generated", story["answer_ms"], beside("answer"));
  row("total", story["e2e_ms"], "");
  row("longest gap", story["longest_gap_ms"], GapText(story["longest_gap"]));
  for (const Json& o : story["objectives"]) {
    out += fmt::format("  {:<6}{:>14} ms of {} ms: {}\n", o["objective"].get<std::string>(), Text(o["actual_ms"]),
                       Text(o["stated_ms"]),
                       o["kept"].get<bool>() ? "kept" : "missed, by " + o["cause"].get<std::string>());
  }
  return out + RankText(story);
}

}  // namespace tactus::results
