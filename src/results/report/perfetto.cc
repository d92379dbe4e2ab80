#include "results/report/perfetto.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <map>
#include <vector>

#include "base/json_text.h"
#include "base/output_file.h"
#include "results/obs/run_reader.h"

namespace tactus::results {
namespace {

// Process ids of the trace. Perfetto treats 0 as no process, and a thread with its process's id as the main thread.
constexpr int64_t kRequests = 1, kFirstReplica = 2, kFirstLane = 10'000;

double Microseconds(TimeNs ns) {
  return static_cast<double>(ns) * 1e-3;
}

class EventWriter final : public RunVisitor {
 public:
  explicit EventWriter(std::FILE* file) : file_(file) {
    std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file_);
    Event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"requests"}}}})", kRequests);
  }
  void End() { std::fputs("\n]}\n", file_); }

  void Step(const RunStep& s) override {
    // Replicas beyond the first few thousand, which only a damaged file has, are merged into one.
    const int64_t replica = lanes_.size() < kMostReplicas || lanes_.contains(s.replica) ? s.replica : kMostReplicas;
    const int64_t pid = kFirstReplica + replica;
    std::vector<TimeNs>& lanes = lanes_[replica];
    if (lanes.empty())
      Event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"replica {}"}}}})", pid, replica);
    // Steps of a pipeline overlap: each gets the first free lane.
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > s.start_ns) ++lane;
    if (lane == lanes.size() && lane + 1 < kMostLanes) {
      lanes.push_back(0);
      Event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", pid, Thread(pid, lane),
            lane == 0 ? "steps" : "steps beside them");
    }
    lane = std::min(lane, lanes.size() - 1);
    lanes[lane] = s.end_ns;
    const char* kind = s.prompt_tokens > 0 ? s.decodes > 0 ? "hybrid" : "prompts" : "decodes";
    Event(
        R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{},"prompt_tokens":{},"prompts":{},"decodes":{},"preemptions":{}}}}})",
        kind, pid, Thread(pid, lane), Microseconds(s.start_ns), Microseconds(s.end_ns - s.start_ns), s.step,
        s.prompt_tokens, s.prompts, s.decodes, s.preemptions);
    if (s.running >= 0)
      Event(R"({{"ph":"C","name":"sequences","pid":{},"ts":{:.3f},"args":{{"running":{},"waiting":{}}}}})", pid,
            Microseconds(s.start_ns), s.running, std::max<int64_t>(0, s.waiting));
    if (s.kv_used >= 0)
      Event(R"({{"ph":"C","name":"KV used, %","pid":{},"ts":{:.3f},"args":{{"used":{:.2f}}}}})", pid,
            Microseconds(s.start_ns), 100 * s.kv_used);
  }

  void Request(const RunRequest& r) override {
    if (r.done_ns < r.arrival_ns) return;
    std::string text;
    // Tracks are sorted by name.
    json_text::AppendJsonString(&text, fmt::format("request {:05}{}{}", r.number, r.id.empty() ? "" : " ", r.id));
    std::string about =
        fmt::format(R"("prompt_tokens":{},"output_tokens":{},"finish":)", r.prompt_tokens, r.output_tokens);
    json_text::AppendJsonString(&about, r.finish);
    about += ",\"class\":";
    json_text::AppendJsonString(&about, r.slo_class);
    Phase(r.number, text, r.arrival_ns, r.done_ns, about);
    const TimeNs scheduled = r.scheduled_ns >= r.arrival_ns ? r.scheduled_ns : r.arrival_ns;
    if (r.scheduled_ns > r.arrival_ns) Phase(r.number, "\"waits\"", r.arrival_ns, r.scheduled_ns, "");
    if (r.first_token_ns < scheduled) return;
    Phase(r.number, r.scheduled_ns >= 0 ? "\"prompt\"" : "\"waits, prompt\"", scheduled, r.first_token_ns, "");
    if (r.done_ns > r.first_token_ns) Phase(r.number, "\"answer\"", r.first_token_ns, r.done_ns, "");
  }

 private:
  static constexpr size_t kMostLanes = 1024, kMostReplicas = 8192;

  static int64_t Thread(int64_t pid, size_t lane) { return lane == 0 ? pid : kFirstLane + static_cast<int64_t>(lane); }

  template <class... Args>
  void Event(fmt::format_string<Args...> format, Args&&... args) {
    line_.clear();
    if (any_) line_ = ",\n";
    any_ = true;
    fmt::format_to(std::back_inserter(line_), format, std::forward<Args>(args)...);
    std::fwrite(line_.data(), 1, line_.size(), file_);
  }
  // Events of one request nest; each request has its own track below the process. `name` is a JSON string.
  void Phase(int64_t id, const std::string& name, TimeNs from, TimeNs to, const std::string& args) {
    Event(R"({{"ph":"b","cat":"request","id2":{{"local":"{}"}},"name":{},"pid":{},"tid":0,"ts":{:.3f},"args":{{{}}}}})",
          id, name, kRequests, Microseconds(from), args);
    Event(R"({{"ph":"e","cat":"request","id2":{{"local":"{}"}},"name":{},"pid":{},"tid":0,"ts":{:.3f}}})", id, name,
          kRequests, Microseconds(to));
  }

  std::FILE* const file_;
  bool any_ = false;
  std::string line_;
  std::map<int64_t, std::vector<TimeNs>> lanes_;  // of each replica: end of the last step per lane
};

}  // namespace

Status WritePerfetto(const std::string& run_path, const std::string& out) {
  TACTUS_ASSIGN_OR_RETURN(FileReplacement file, FileReplacement::Open(out, "perfetto"));
  EventWriter writer(file.file());
  RunFile run;
  TACTUS_RETURN_IF_ERROR(ReadRunFile(run_path, &writer, &run));
  writer.End();
  return file.Commit();
}

}  // namespace tactus::results
