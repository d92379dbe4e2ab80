// What `tactus top` knows of a server or a router: the newest state, built from the data of GET /events
// (docs/reference/api.md, "Live events"). The page (web/engine.js, web/fleet.js) builds the same in a browser.
//
// Thread rule: none; one thread at a time. The data is another program's: every text is cleaned of control characters,
// a member of a wrong type counts as absent, and memory is bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "base/units.h"
#include "tactus/status.h"

namespace tactus::cli {

// A choice of a running request. Absent figures are negative.
struct LiveRow {
  int64_t request = 0, choice = 0;
  std::string name, slo_class;
  double prompt = 0, computed = 0, tokens = 0;
  double ttft_ms = -1, last_gap_ms = -1, longest_gap_ms = -1, late_gaps = 0;
  double ttft_objective_ms = -1, tbt_objective_ms = -1;
};

struct EndedRow {
  std::string name, slo_class, finish, misses;
  double prompt = 0, tokens = 0, ttft_ms = -1, e2e_ms = -1, longest_gap_ms = -1;
};

struct ReplicaRow {
  std::string url, state, model, version;
  double in_flight = 0, running = -1, waiting = -1, kv_share = -1, requests = 0, failures = 0, ejections = 0;
};

// {stated, kept} of an objective of a class, in the order of docs/reference/api.md.
struct ClassRow {
  std::string name;
  double requests = 0, rejected = 0;
  std::vector<std::pair<std::string, std::pair<double, double>>> kept;
};

struct StepTime {
  double ms = 0, predicted_ms = -1;
};

class LiveView {
 public:
  static constexpr size_t kMostRows = 4096, kMostEnded = 64, kMostSteps = 512, kMostClasses = 64;
  static constexpr DurationNs kRateNs = 3 * kSecond;  // rates are means over that time

  // The data of one event. kInvalidArgument: not an event of this API.
  Status Take(std::string_view data, TimeNs received_ns);

  bool has_frame() const { return frames_ > 0; }
  bool ended() const { return ended_by_server_; }  // the server said that it stops
  bool fleet() const { return fleet_; }
  // The server and its model, in one line.
  const std::string& title() const { return title_; }
  const std::vector<ReplicaRow>& replicas() const { return replicas_; }
  std::vector<LiveRow> rows() const;
  const std::deque<EndedRow>& ended_rows() const { return ended_; }  // the newest first
  const std::vector<ClassRow>& classes() const { return classes_; }
  const std::deque<StepTime>& steps() const { return steps_; }
  int64_t missed_frames() const { return missed_frames_; }
  int64_t missed_records() const { return missed_records_; }
  // Figures of the newest frame; 0 if absent.
  double Figure(const char* name) const;
  // Growth of a figure, per second; nothing before a second frame.
  std::optional<double> Rate(const char* name) const;
  // The median of the last 100 steps; nothing without steps.
  std::optional<double> MedianStepMs() const;

 private:
  using Figures = std::map<std::string, double, std::less<>>;

  void TakeServer(const Json& frame);
  void TakeFleet(const Json& frame);

  bool fleet_ = false, ended_by_server_ = false;
  int64_t frames_ = 0, missed_frames_ = 0, missed_records_ = 0;
  std::string title_;
  Figures figures_;
  std::deque<std::pair<TimeNs, Figures>> totals_;    // "totals" of the frames of the last kRateNs
  std::map<int64_t, std::vector<LiveRow>> streams_;  // by request, a row per choice
  std::deque<EndedRow> ended_;
  std::deque<StepTime> steps_;
  std::vector<ClassRow> classes_;
  std::vector<ReplicaRow> replicas_;
};

}  // namespace tactus::cli
