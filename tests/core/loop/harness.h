// A step loop over the fake executor on a virtual clock, with all integrity checks after every pass.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/loop/replica.h"
#include "core/loop/timelines.h"
#include "core/trace/trace_writer.h"
#include "support/fake_executor.h"
#include "support/faulty_executor.h"

namespace tactus::testing {

struct HarnessConfig {
  core::SchedulerConfig scheduler;
  FakeExecutorConfig executor;
  std::vector<InjectedFault> faults;  // in chosen steps, besides the random ones of `executor`
  int64_t num_blocks = 64;
  int64_t swap_blocks = 0;    // in host memory
  int64_t import_blocks = 0;  // further ones for imports
  bool list_entered = false;  // KvCacheConfig::list_entered
  int32_t block_size = 4;
  int32_t max_model_len = 128;
  int32_t max_num_seqs = 8;
  int32_t max_queue = 64;
  bool prefix_caching = true;
  bool keep_timelines = true;  // as in ReplicaConfig, like the next
  bool lean = false;
  bool check_every_pass = true;
  bool fresh_policies = false;                 // clear all indexes of policies before each pass
  core::LengthPredictor* predictor = nullptr;  // null: the scheduler's, by name
  std::vector<TokenId> model_stop_ids;
  double draft_accuracy = 0;    // with executor.max_draft_tokens: share of right guesses
  bool tokens_on_host = false;  // for every other request
  int32_t stopwatch_every = 1;
  bool corrected = false;                   // scheduler.limits.step_time is corrected by the results
  std::string trace_path;                   // where to record; CloseTrace ends the recording
  std::string about;                        // for crash reports
  core::EventSink* further_sink = nullptr;  // receives the events too
};

// The output of one choice.
struct ChoiceOutput {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  int32_t stop_string = -1;
  std::vector<TimeNs> token_ns;
  std::vector<TokenLogprob> logprobs;  // first entry per token
  std::vector<DurationNs> gap_ns;      // per token
};

struct RequestOutput {
  std::shared_ptr<const Request> request;
  std::vector<ChoiceOutput> choices;
  bool done = false;
  core::RequestDoneEvent done_event;
  Status error;
  RequestTimeline timeline;                                                                 // at its end
  std::vector<std::pair<int32_t, std::vector<std::vector<TokenLogprob>>>> prompt_logprobs;  // first row, rows
};

// "!1 0:8+1* 2:0+4 c2": slot 1 is preempted; slot 0 computes position 8 and samples; slot 2 computes positions 0 to 3
// without sampling; two block copies. "0:8+4d3*": three of the four tokens are drafts. "out2 in1 p3": two blocks are
// swapped out, one in, and three tokens are padding.
std::string TextOf(const StepPlan& plan);

// Forwards all calls, logs each plan's text and counts the chained items per request.
class LoggingExecutor final : public Executor {
 public:
  explicit LoggingExecutor(Executor* inner) : inner_(*inner) {}
  ExecutorTraits traits() const override { return inner_.traits(); }
  void Submit(const StepPlan& plan) override;
  bool Poll(StepResult* result) override {
    if (at_poll) std::exchange(at_poll, nullptr)();
    return inner_.Poll(result);
  }
  void SetWakeup(std::function<void()> wakeup) override { inner_.SetWakeup(std::move(wakeup)); }
  TimeNs NextReadyNs() const override { return inner_.NextReadyNs(); }
  int64_t kv_block_bytes() const override { return inner_.kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { inner_.ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId block, const std::byte* from) override { inner_.WriteHostBlock(block, from); }
  std::vector<std::string> log;
  std::map<RequestHandle, int64_t> chained_items;
  std::function<void()> at_poll;  // called once within a pass, as if by another thread

 private:
  std::map<SlotId, RequestHandle> requests_;
  Executor& inner_;
};

class Harness final : public core::EventSink {
 public:
  explicit Harness(const HarnessConfig& config, core::InjectedChoices injected = {});
  ~Harness() override;

  // Ok unless the configuration was refused.
  const Status& scheduler_error() const { return scheduler_error_; }
  Result<RequestHandle> Submit(Request request);
  // Submits; a refusal fails the test.
  RequestHandle MustSubmit(Request request);
  // Submits a request migrated in; its choice begins with the tokens from there.
  Result<RequestHandle> SubmitImported(Request request, core::ImportedSequence imported);
  void Cancel(RequestHandle handle) { loop_->Cancel(handle); }
  // Called with each request before it is submitted.
  std::function<void(core::PreparedRequest*)> prepare;
  // Runs `call` within the next pass that polls for results.
  void InTheMiddleOfAPass(std::function<void()> call) { logging_->at_poll = std::move(call); }
  // Runs passes until nothing happens at this instant. Returns the first broken invariant, or empty.
  std::string Settle();
  // Advances the clock to the next result; false when none is in flight.
  bool Advance();
  // Settles and advances until idle or `limit` steps. Returns the first broken invariant, or empty.
  std::string Run(int64_t limit = 100000);

  void OnStep(const core::StepEvents& events) override;

  core::StepLoop& loop() { return *loop_; }
  core::KvCache& kv() { return replica_->kv(); }
  ManualClock& clock() { return clock_; }
  FakeExecutor& executor() { return *executor_; }
  const GuessingDrafts& drafts() const { return *drafts_; }
  const std::vector<std::string>& plans() const { return logging_->log; }
  const std::map<RequestHandle, int64_t>& chained_items() const { return logging_->chained_items; }
  core::Scheduler& scheduler() { return replica_->scheduler(); }
  std::map<RequestHandle, RequestOutput>& outputs() { return outputs_; }
  // Handle -> request, by submission order.
  const std::vector<RequestHandle>& handles() const { return handles_; }
  // All events of a kind, in order.
  const std::vector<core::StepRecord>& records() const { return records_; }
  const std::vector<core::ScheduledEvent>& scheduled() const { return scheduled_; }
  const std::vector<core::GapEvent>& gaps() const { return gaps_; }
  int64_t decisions_timed() const { return decisions_timed_; }  // passes with a decision time
  int64_t steps() const { return loop_->Stats().steps; }
  Status CloseTrace() { return replica_->CloseTap(); }

 private:
  std::string TakeTimeline(RequestOutput* out) const;
  Result<RequestHandle> Submit(Request request, const core::ImportedSequence* imported);

  HarnessConfig config_;
  ManualClock clock_;
  core::EventFanOut sinks_;
  Status scheduler_error_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<GuessingDrafts> drafts_;
  LoggingExecutor* logging_ = nullptr;  // in faulty_
  std::unique_ptr<FaultyExecutor> faulty_;
  std::unique_ptr<core::Replica> replica_;
  core::StepLoop* loop_ = nullptr;  // of replica_
  std::map<RequestHandle, RequestOutput> outputs_;
  std::vector<RequestHandle> handles_;
  std::vector<core::StepRecord> records_;
  std::vector<core::ScheduledEvent> scheduled_;
  std::vector<core::GapEvent> gaps_;
  int64_t decisions_timed_ = 0, passes_ = 0;
  std::vector<char> bytes_;
  std::string event_error_;
};

// The first inconsistency of a timeline; empty: none.
std::string BrokenTimeline(const RequestTimeline& timeline);

Request MakeRequest(std::vector<TokenId> prompt, int64_t max_tokens);
// `length` tokens drawn from `seed`; different seeds share no prefix blocks.
std::vector<TokenId> Tokens(uint64_t seed, int32_t length, int32_t vocab = 64);
// The fake model's output, computed without an engine: until max_tokens or a stop id.
std::vector<TokenId> ExpectedOutput(const FakeExecutorConfig& executor, const Request& request, int32_t choice,
                                    const std::vector<TokenId>& model_stop_ids);

}  // namespace tactus::testing
