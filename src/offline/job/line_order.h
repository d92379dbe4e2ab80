// Which line of a job starts next. In the order of the file without a look at any; or as a plan has it
// (offline/plan/job_feed.h): then every line is read, rendered and tokenised once before the first one starts, one at a
// time, and what is kept of it are the lengths and keys of its prompts. Each sequence that a line asks for is a request
// of the plan; the line starts with the first of them. Lines that are no request, or are refused, go first.
//
// Shards: every process plans the whole job and cuts it alike, and the state keeps what the cut was.
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
#include "api/chat/request_parser.h"
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
  int32_t sequences = 0;      // that it takes at once
  bool shared_reads = false;  // its attention reads a prefix once for all of a step that share it
  int32_t shard = 0, shards = 1;
};

struct LineStart {
  LinePlace line;
  PlannedPlace place;
};

// What came of planning.
struct PlanReport {
  int32_t requests = 0;        // sequences that are to run
  int32_t sample = 0;          // of them, to learn how long answers are
  int32_t key_tokens = 0;      // shared prefixes are known in steps of so many
  bool coarsened = false;      // to stay in the planner's memory
  DurationNs reading_ns = 0;   // every line, in tokens
  DurationNs planning_ns = 0;  // all else
  bool rated = false;          // seconds are this machine's; else nothing is known of its speed
  double work_share = 0;       // of the work, by its cost, that is done
  PlanSummary summary;         // with the lengths that answers had
};

// Whether the engine knows how fast this machine is.
bool IsRated(const ModelInfo& model);
// What a token costs by the model's shape; with the rates that the engine knows of this machine.
BatchCostModel CostOf(const ModelInfo& model);

class LineOrder {
 public:
  // All pointers outlive it. `url`: what all lines ask; empty: each its own.
  LineOrder(Job* job, Engine* engine, const api::RequestLimits& limits, std::string url, const OrderOptions& options,
            Clock* clock);

  // Once, before Next. `go_on` is asked after every line; false: kCancelled. kTooLarge: not even without keys do the
  // requests fit the memory. kDataLoss: the input cannot be read.
  Status Plan(const std::function<bool(int64_t lines)>& go_on);
  Result<std::optional<LineStart>> Next();
  // The line has its result: its answers have so many tokens together; 0: none.
  void OnDone(int64_t line, int64_t output_tokens);

  bool planned() const { return feed_ != nullptr; }
  // Sequences that are to wait at most; 0: as many as the queue takes.
  int32_t most_waiting() const { return feed_ != nullptr ? feed_->most_waiting() : 0; }
  double done_share() const { return feed_ != nullptr ? feed_->done_share() : 0; }
  // That everything takes at least, by the last plan; 0: the machine's speed is not known.
  double bound_s() const { return feed_ != nullptr && IsRated(engine_.model()) ? feed_->bound_s() : 0; }
  // None: nothing was planned.
  std::optional<PlanReport> Report() const;

 private:
  struct Line {
    int64_t number = 0;
    int32_t first = 0;  // of its requests, which follow each other
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

  std::vector<Line> lines_;         // that are requests
  std::vector<int64_t> not_asked_;  // lines that are none
  size_t not_asked_at_ = 0;
  int32_t requests_ = 0;
  std::vector<int32_t> elsewhere_;                                  // [request] for the feed
  std::map<std::pair<std::string, std::string>, uint32_t> groups_;  // adapter and cache_salt
  std::unique_ptr<JobFeed> feed_;
  PlanReport report_;
};

}  // namespace tactus::offline
