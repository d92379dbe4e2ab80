// The order in which a job's lines start: the order of the file, which reads no line ahead, or the order of a plan
// (offline/plan/job_feed.h). For a plan every line is read, rendered and tokenised once before the first one starts,
// one at a time, and only the lengths and keys of its prompts are kept. Each sequence of a line is a request of the
// plan; the line starts with the first of them. Lines that are not valid requests, or are refused, go first.
//
// Shards: every process plans the whole job and assigns lines to shards alike; the state stores the assignment.
//
// Thread rule: Plan, Next and OnDone on one thread at a time; the engine's text functions are called in Plan.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/chat/conversation.h"
#include "api/chat/parsed_request.h"
#include "base/clock.h"
#include "offline/job/job.h"
#include "offline/plan/job_feed.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct OrderOptions {
  PlanOrder order = PlanOrder::kFcfs;
  double sample_share = 0.01;  // see SampleOptions
  uint64_t seed = 0;           // of the sample, and of kRandom
  int64_t memory_bytes = 0;    // of planning; 0: no limit
  int32_t key_tokens = kFinestKeyTokens;
  int64_t kv_tokens = 0;      // of the engine's KV memory
  int32_t sequences = 0;      // that may run at once
  bool shared_reads = false;  // attention reads a shared prefix once per step
  int32_t shard = 0, shards = 1;
};

struct LineStart {
  LinePlace line;
  PlannedPlace place;
};

// Result of planning.
struct PlanReport {
  int32_t requests = 0;        // sequences to run
  int32_t sample = 0;          // of them run first, to learn the lengths of answers
  int32_t key_tokens = 0;      // granularity of shared prefixes
  bool coarsened = false;      // so as not to exceed the planner's memory
  DurationNs reading_ns = 0;   // reading and tokenising every line
  DurationNs planning_ns = 0;  // the rest
  bool rated = false;          // seconds are this machine's; otherwise its speed is not known
  double work_share = 0;       // share of the work, by its cost, that is done
  PlanSummary summary;         // with the observed lengths of answers
};

// Whether the engine has this machine's step times.
bool IsRated(const ModelInfo& model);
// The cost of a token by the model's shape, with the engine's rates for this machine if it has any.
BatchCostModel CostOf(const ModelInfo& model);

class LineOrder {
 public:
  // All pointers outlive this. `url`: the url that all lines must have; empty: any.
  LineOrder(Job* job, Engine* engine, const api::RequestLimits& limits, std::string url, const OrderOptions& options,
            Clock* clock);

  // Call once, before Next. `go_on` is called after every line; false: kCancelled. kTooLarge: the requests do not fit
  // the memory even without keys. kDataLoss: the input cannot be read.
  Status Plan(const std::function<bool(int64_t lines)>& go_on);
  Result<std::optional<LineStart>> Next();
  // The line has its result: its answers have `output_tokens` in total; 0: none.
  void OnDone(int64_t line, int64_t output_tokens);

  bool planned() const { return feed_ != nullptr; }
  // The most sequences that may wait; 0: as many as the queue holds.
  int32_t most_waiting() const { return feed_ != nullptr ? feed_->most_waiting() : 0; }
  double done_share() const { return feed_ != nullptr ? feed_->done_share() : 0; }
  // Lower bound on the total time, by the last plan; 0: the machine's speed is not known.
  double bound_s() const { return feed_ != nullptr && IsRated(engine_.model()) ? feed_->bound_s() : 0; }
  // None: no plan was made.
  std::optional<PlanReport> Report() const;

 private:
  struct Line {
    int64_t number = 0;
    int32_t first = 0;  // index of its first request; the others follow
  };

  Status ReadLines(const std::function<bool(int64_t lines)>& go_on, PromptSet* prompts);
  Status AddRequests(const api::Prepared& prepared, PromptSet* prompts);
  Status Cut(const PrefixTree& tree, const PromptSet& prompts);
  size_t LineOf(int32_t request) const;
  int32_t EndOf(size_t line) const { return line + 1 < lines_.size() ? lines_[line + 1].first : requests_; }
  Result<std::optional<LinePlace>> NextOfFile();

  Job& job_;
  Engine& engine_;
  const api::RequestLimits limits_;
  const std::string url_;
  const OrderOptions options_;
  Clock& clock_;

  std::deque<LinePlace> places_;  // in the order of the file
  int64_t last_place_ = 0;

  std::vector<Line> lines_;         // the lines that are valid requests
  std::vector<int64_t> not_asked_;  // the other lines
  size_t not_asked_at_ = 0;
  int32_t requests_ = 0;
  std::vector<int32_t> elsewhere_;                                  // [request], for the feed
  std::map<std::pair<std::string, std::string>, uint32_t> groups_;  // adapter and cache_salt
  std::unique_ptr<JobFeed> feed_;
  PlanReport report_;
};

}  // namespace tactus::offline
