// A step loop over the fake executor on a virtual clock, with everything that can be checked checked after every pass.
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
  std::vector<InjectedFault> faults;  // of chosen steps; `executor` draws its own
  int64_t num_blocks = 64;
  int64_t swap_blocks = 0;    // of host memory
  int64_t import_blocks = 0;  // beside them, for what comes from elsewhere
  bool list_entered = false;  // the loop tells what is new in the prefix cache
  int32_t block_size = 4;
  int32_t max_model_len = 128;
  int32_t max_num_seqs = 8;
  int32_t max_queue = 64;
  bool prefix_caching = true;
  bool check_every_pass = true;
  bool fresh_policies = false;                 // forget every index before each pass
  core::LengthPredictor* predictor = nullptr;  // null: the one that the scheduler asks for by name
  std::vector<TokenId> model_stop_ids;
  double draft_accuracy = 0;    // with executor.max_draft_tokens: how often a guess is right
  bool tokens_on_host = false;  // of every other request
  int32_t stopwatch_every = 1;
  bool corrected = false;  // scheduler.limits.step_time learns from the results
  std::string trace_path;  // records there; CloseTrace ends it
  std::string about;       // for the account of a broken invariant
};

// What one choice of one request received.
struct ChoiceOutput {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  int32_t stop_string = -1;
  std::vector<TimeNs> token_ns;
  std::vector<TokenLogprob> logprobs;  // the first entry of each token's
  std::vector<DurationNs> gap_ns;      // of each token
};

struct RequestOutput {
  std::shared_ptr<const Request> request;
  std::vector<ChoiceOutput> choices;
  bool done = false;
  core::RequestDoneEvent done_event;
  Status error;
  RequestTimeline timeline;                                                                 // when it was done
  std::vector<std::pair<int32_t, std::vector<std::vector<TokenLogprob>>>> prompt_logprobs;  // first row, rows
};

// "!1 0:8+1* 2:0+4 c2" is: slot 1 preempted; slot 0 computes position 8 and samples; slot 2 computes positions 0 to 3
// without sampling; two block copies. "0:8+4d3*": three of the four tokens are drafts. "out2 in1 p3": two blocks are
// swapped out, one in, and three tokens are padding.
std::string TextOf(const StepPlan& plan);

// Passes everything on, writes down each plan's text and counts whose items took their input from the one before.
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
  std::function<void()> at_poll;  // once: what another thread does in the middle of a pass

 private:
  std::map<SlotId, RequestHandle> requests_;
  Executor& inner_;
};

class Harness final : public core::EventSink {
 public:
  explicit Harness(const HarnessConfig& config, core::InjectedChoices injected = {});
  ~Harness() override;

  // Empty `scheduler_error` means all is well; tests of refusals read it.
  const Status& scheduler_error() const { return scheduler_error_; }
  Result<RequestHandle> Submit(Request request);
  // Submits now; fails the test if refused.
  RequestHandle MustSubmit(Request request);
  // A request that has run elsewhere; its choice has the tokens from there.
  Result<RequestHandle> SubmitImported(Request request, core::ImportedSequence imported);
  void Cancel(RequestHandle handle) { loop_->Cancel(handle); }
  // Changes each request before it is submitted.
  std::function<void(core::PreparedRequest*)> prepare;
  // Once, in the middle of the next pass that asks for results.
  void InTheMiddleOfAPass(std::function<void()> call) { logging_->at_poll = std::move(call); }
  // Passes until nothing happens at this instant. Returns the first broken invariant, or empty.
  std::string Settle();
  // Advances the clock to the next result; false when none is in flight.
  bool Advance();
  // Settle and advance until idle or `limit` steps; returns what broke.
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
  // Everything of the kind that came, in order.
  const std::vector<core::StepRecord>& records() const { return records_; }
  const std::vector<core::ScheduledEvent>& scheduled() const { return scheduled_; }
  const std::vector<core::GapEvent>& gaps() const { return gaps_; }
  int64_t decisions_timed() const { return decisions_timed_; }  // passes that told a decision's time
  int64_t steps() const { return loop_->Stats().steps; }
  Status CloseTrace() { return replica_->CloseTap(); }

 private:
  std::string TakeTimeline(RequestOutput* out) const;
  Result<RequestHandle> Submit(Request request, const core::ImportedSequence* imported);

  HarnessConfig config_;
  ManualClock clock_;
  Status scheduler_error_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<GuessingDrafts> drafts_;
  LoggingExecutor* logging_ = nullptr;  // in faulty_
  std::unique_ptr<FaultyExecutor> faulty_;
  std::unique_ptr<core::Replica> replica_;
  core::StepLoop* loop_ = nullptr;  // the replica's
  std::map<RequestHandle, RequestOutput> outputs_;
  std::vector<RequestHandle> handles_;
  std::vector<core::StepRecord> records_;
  std::vector<core::ScheduledEvent> scheduled_;
  std::vector<core::GapEvent> gaps_;
  int64_t decisions_timed_ = 0, passes_ = 0;
  std::vector<char> bytes_;
  std::string event_error_;
};

// What does not add up in a timeline; empty: all does.
std::string BrokenTimeline(const RequestTimeline& timeline);

Request MakeRequest(std::vector<TokenId> prompt, int64_t max_tokens);
// `length` tokens from (seed), distinct enough to share nothing.
std::vector<TokenId> Tokens(uint64_t seed, int32_t length, int32_t vocab = 64);
// What the fake model answers, computed without any engine: until max_tokens or a stop id.
std::vector<TokenId> ExpectedOutput(const FakeExecutorConfig& executor, const Request& request, int32_t choice,
                                    const std::vector<TokenId>& model_stop_ids);

}  // namespace tactus::testing
