#include "report/request_story.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/printable.h"
#include "obs/run_reader.h"

namespace tactus::report {
namespace {

using Json = nlohmann::ordered_json;

// Null where one of both did not come to be.
Json Milliseconds(TimeNs from_ns, TimeNs to_ns) {
  return from_ns < 0 || to_ns < from_ns ? Json(nullptr) : Json(static_cast<double>(to_ns - from_ns) * 1e-6);
}
Json Known(int64_t count) {
  return count < 0 ? Json(nullptr) : Json(count);
}

Json StoryOf(const RunRequest& r) {
  Json story = {{"request", Known(r.number)},
                {"id", std::string(r.id)},
                {"replica", Known(r.replica)},
                {"class", std::string(r.slo_class)},
                {"finish", std::string(r.finish)},
                {"prompt_tokens", Known(r.prompt_tokens)},
                {"cached_tokens", Known(r.cached_tokens)},
                {"completion_tokens", Known(r.output_tokens)},
                {"arrival_s", static_cast<double>(r.arrival_ns) * 1e-9},
                {"waited_ms", Milliseconds(r.arrival_ns, r.scheduled_ns)},
                {"prompt_ms", Milliseconds(r.scheduled_ns, r.first_token_ns)},
                {"answer_ms", Milliseconds(r.first_token_ns, r.done_ns)},
                {"ttft_ms", Milliseconds(r.arrival_ns, r.first_token_ns)},
                {"e2e_ms", Milliseconds(r.arrival_ns, r.done_ns)},
                {"longest_gap_ms", Milliseconds(0, r.longest_gap_ns)},
                {"preemptions", Known(r.preemptions)},
                {"recomputed_tokens", Known(r.recomputed_tokens)}};
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
    if (r.id == id_ || (r.number >= 0 && fmt::format("{}", r.number) == id_)) found = StoryOf(r);
  }
  std::optional<Json> found;

 private:
  const std::string& id_;
};

std::string Text(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_number_float() ? fmt::format("{:.3f}", value.get<double>()) : value.dump();
}

}  // namespace

bool IsArchive(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  return in.read(magic, sizeof(magic)) && std::string_view(magic, sizeof(magic)) == std::string_view("PK\x03\x04", 4);
}

Result<Json> RequestStory(const std::string& path, const std::string& id) {
  Finder finder(id);
  RunFile run;
  TACTUS_RETURN_IF_ERROR(ReadRunFile(path, &finder, &run));
  if (finder.found) return std::move(*finder.found);
  return NotFound(fmt::format("no request '{}' among the {} of the run file '{}'; give a number or a client's id",
                              Printable(id), run.rows[0], Printable(path)));
}

std::string StoryTable(const Json& story) {
  std::string out =
      fmt::format("request {} {}: {}, {} prompt tokens, {} of the answer, {} preemptions\n", Text(story["request"]),
                  Text(story["id"]), Text(story["finish"]), Text(story["prompt_tokens"]),
                  Text(story["completion_tokens"]), Text(story["preemptions"]));
  for (const auto& [name, title] : {std::pair{"waited_ms", "waited"},
                                    {"prompt_ms", "computed its prompt"},
                                    {"answer_ms", "generated"},
                                    {"e2e_ms", "in all"},
                                    {"longest_gap_ms", "longest gap"}}) {
    out += fmt::format("  {:<22}{:>14} ms\n", title, Text(story[name]));
  }
  for (const Json& o : story["objectives"]) {
    out += fmt::format("  {:<6}{:>14} ms of {} ms: {}\n", o["objective"].get<std::string>(), Text(o["actual_ms"]),
                       Text(o["stated_ms"]),
                       o["kept"].get<bool>() ? "kept" : "missed, by " + o["cause"].get<std::string>());
  }
  return out;
}

}  // namespace tactus::report
