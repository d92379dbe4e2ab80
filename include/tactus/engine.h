// The engine for embedders: load a model, submit requests, receive tokens. The server and the terminal client use only
// this header. Every function may be called from any thread unless its comment states otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/options.h"
#include "tactus/past_request.h"
#include "tactus/request.h"
#include "tactus/run_result.h"
#include "tactus/stop_token.h"
#include "tactus/timeline.h"

namespace tactus {

// Receives what a request produces. Called on the engine's delivery thread, in order, never concurrently for one
// request; must not block.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // What one choice received in one step. The last call per choice has finish != kNone.
  virtual void OnDelta(const TokenDelta& delta) = 0;
  // With Request::prompt_logprobs, as the prompt is computed, in order, once for all choices: a row per prompt token
  // from the second on (nothing predicts the first); in a row the token's own first, then the best in descending order.
  virtual void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>&) {}
  // Once, after every choice has finished; the last call. `usage`: the counts that the client receives.
  virtual void OnDone(const Usage& usage) = 0;
};

struct ModelInfo {
  std::string name;                      // the first --served-model-name, else the model's
  std::vector<std::string> other_names;  // further names that requests may use: the other --served-model-name
  std::string path;                      // the file or folder that was loaded
  std::string architecture;              // row of src/compute/config/architectures.def: "llama"
  int64_t max_model_len = 0;             // tokens: prompt and answer together
  int64_t vocab_size = 0;                // token ids are 0 to vocab_size - 1
  int64_t num_parameters = 0;
  int64_t hidden_size = 0, num_layers = 0;
  int64_t kv_bytes_per_token = 0;  // of all layers, with 16-bit K and V
  // Seconds per prompt token in a full step, and per token whose K and V are read, from the step times of this machine;
  // 0: none are stored.
  double prompt_token_s = 0, kv_token_s = 0;
  double overlap_interference = 1;     // of products and reads of KV at the same time: 0 none, 1 they take turns
  std::string weight_format;           // as in the start-up line
  std::string kernels;                 // the kernel set in use: "avx512"
  std::string device;                  // what computes: "cpu (AMD EPYC 9655)", "NVIDIA H200"
  SamplingParams generation_defaults;  // where a request leaves them open: from flags, else the model, else built in
  std::string chat_template;           // its Jinja source; empty: none
  int64_t memory_bytes = 0;            // the memory plan's total: weights, activations, KV, swap space, front end
  int64_t front_end_bytes = 0;         // what the memory plan left of EngineOptions::front_end_bytes
};

// Tokens that were guessed ahead and verified (docs/concepts/speculation.md).
struct DraftCounts {
  int64_t drafts = 0;           // decodes with guesses
  int64_t draft_tokens = 0;     // guesses in those
  int64_t accepted_tokens = 0;  // guesses that the model would have sampled
};

// A snapshot, consistent within itself, taken without waiting for compute. Counts start when the engine is made.
struct EngineStats {
  int64_t running = 0, waiting = 0;  // sequences that hold KV; sequences that wait
  int64_t waiting_tokens = 0;        // left to compute for queued sequences, cached prefixes not subtracted
  // Blocks of --block-size positions: all; in some live sequence's table; holding a prefix that no live sequence uses.
  int64_t kv_blocks_total = 0, kv_blocks_in_use = 0, kv_blocks_cached = 0;
  int64_t block_size = 0;                                       // positions per block
  int64_t step_tokens = 0;                                      // token limit of a step
  int64_t steps = 0, prompt_tokens = 0, generation_tokens = 0;  // planned; of started requests; sampled
  int64_t preemptions = 0, recomputed_tokens = 0;
  int64_t swap_blocks_total = 0, swap_blocks_used = 0;  // host memory of --swap-space
  int64_t swapped_sequences = 0, swapped_out_blocks = 0, swapped_in_blocks = 0;
  // Prompt tokens at the first start of each sequence: looked up in the prefix cache; found there.
  int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  // Sequences by FinishReason.
  int64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  // Sequences that came from other engines; that moved to others (tactus/migration.h); KV blocks read for those moves.
  int64_t migrated_in = 0, migrated_out = 0, migrated_out_blocks = 0;
  // By source of the guesses: a grammar that allows one token, repetition in the text, a draft model.
  DraftCounts forced_drafts, ngram_drafts, model_drafts;
  double budget_utilization = 0;    // planned tokens / token budget, over all steps
  double kv_utilization = 0;        // blocks in use / all, mean over steps
  double step_time_correction = 1;  // measured / predicted by the step-time model, over the last steps with prompts
  uint64_t plan_hash = 0;           // over every plan, in order
  // The oldest step without a result (-1: none), since when the executor has had it as the next one, by the engine's
  // clock, and the time that it was predicted to take (0: not known).
  int64_t step_in_flight = -1, step_since_ns = 0, step_predicted_ns = 0;
  bool healthy = true;  // false after three executor errors in a row, or when the device has failed
};

class LiveFeed;       // tactus/live.h
class MigrationPort;  // tactus/migration.h

class Engine {
 public:
  // Receives start-up lines: memory plan, scheduler, time to ready. Important ones begin with "warning: ".
  using Progress = std::function<void(std::string_view line)>;

  // Loads and starts; blocks until ready. kNotFound: no such model. kDataLoss: a damaged file. kInvalidArgument: a
  // wrong option, named as param, or a memory plan that does not fit, with its figures. kResourceExhausted: no memory
  // or threads at start.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, const Progress& progress = {});
  virtual ~Engine() = default;  // closes; the Status of Close is lost

  virtual const ModelInfo& model() const = 0;
  // Once `stop` is set, these calls return within milliseconds: without tokens, or kCancelled from the template.
  virtual std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop = {}) const = 0;
  // A lower bound of the token count of `text`, from its bytes: a prompt that cannot fit need not be tokenised. 0: no
  // bound is known.
  virtual int64_t LeastTokens(std::string_view) const { return 0; }
  // Text of tokens, special ones included; bytes that are not UTF-8 are replaced.
  virtual std::string Detokenize(const std::vector<TokenId>& tokens) const = 0;
  virtual std::string TokenString(TokenId token) const = 0;  // the token's own bytes, invalid UTF-8 replaced
  virtual std::string TokenBytes(TokenId token) const = 0;
  // A control token: it appears in the text only if Request::shown_specials is set.
  virtual bool IsSpecialToken(TokenId /*token*/) const { return false; }
  // The prompt text for `variables_json`: {"messages": [...], "tools": ..., "add_generation_prompt": bool, ...}. The
  // text includes a BOS that the template writes: tokenise it with add_special = false (TokenizeChat does).
  // kInvalidArgument: the model has no template, or the template rejects the variables.
  virtual Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop = {}) const = 0;
  virtual std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop = {}) const = 0;

  // The grammar for Request::grammar that enforces `rule`. Runs on the caller's thread, not in the step loop, for some
  // seconds at most; with `wait`, that limit covers all rules compiled with it. kInvalidArgument: the rule is invalid
  // or not supported, with the keyword or position. kUnimplemented: this engine has no grammars. Precondition:
  // rule.any().
  virtual Result<std::shared_ptr<const TokenGrammar>> CompileRule(const OutputRule& /*rule*/, StopToken /*stop*/ = {},
                                                                  RuleWait* /*wait*/ = nullptr) const {
    return Unimplemented("this engine does not support grammars");
  }

  // Accepts the request or returns why not: kResourceExhausted when the queue is full, kInvalidArgument (with the
  // numbers) for a request that can never fit, kUnavailable while draining. After an error the sink is never called.
  virtual Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) = 0;
  // For callers that prefer waiting to a refusal: ok when Submit would have room for a request of `sequences`
  // sequences, or for the most that ever fits if that is fewer. Nothing is reserved: if others submit too, Submit may
  // still return kResourceExhausted, and the caller waits again. kDeadlineExceeded: no room within `timeout_ns`
  // nanoseconds. kUnavailable as for Submit, also for callers that wait already.
  virtual Status WaitForRoom(int32_t sequences, int64_t timeout_ns) = 0;
  // For front ends: counts a request that they did not submit because it can never fit as refused by Submit.
  virtual void CountRefused(const Request& /*request*/, const Status& /*why*/) {}
  // Ends the request at the next planning; its sink still receives kCancelled and OnDone. Unknown or finished: no
  // effect.
  virtual void Cancel(RequestHandle handle) = 0;

  // Refuses new requests from now on. Returns once every accepted request has ended, or after `timeout_ns` nanoseconds,
  // when the remaining ones end with kUnavailable. Returns the number of requests cut off.
  virtual int64_t Drain(int64_t timeout_ns) = 0;

  // Cancels running requests and joins the threads. kDataLoss: the recording (--trace-out) is not complete in its file.
  // Afterwards only the destructor may be called, or Close again, which does nothing.
  virtual Status Close() { return Status(); }

  // The schedules of the requests that match the query, live or among the last ended ones (kept_timelines() sequences);
  // empty: none matches. A request's schedule is complete once its sink has received OnDone. Waits for no step.
  virtual std::vector<RequestTimeline> Timelines(const TimelineQuery&) const { return {}; }
  virtual int64_t kept_timelines() const { return 0; }
  // Whether the gate may still refuse a request that Submit has accepted (--gate predict): its first delta then has
  // kError with kResourceExhausted, and no token came before.
  virtual bool may_refuse() const { return false; }

  // Null: its sequences cannot move. Owned by the engine.
  virtual MigrationPort* migration() { return nullptr; }

  // Faults since the last call that ended no request, one line each, for logs: a damaged file of --kv-cache-dir, a full
  // disk. At most some dozen are kept.
  virtual std::vector<std::string> TakeWarnings() { return {}; }

  virtual EngineStats Stats() const = 0;
  // Why Stats().healthy is false, with the error of the executor or of the device; ok while it is true.
  virtual Status Failure() const { return Status(); }
  // Prometheus text of the engine's metrics (tactus_* and the vllm:* names).
  virtual std::string MetricsText() const = 0;
  // The last steps that have ended, oldest first, a line each: for the log of a step that does not end.
  virtual std::string LastSteps() const { return {}; }
  // The result of the run so far (docs/reference/api.md, "Result").
  virtual RunResult Outcome() const = 0;

  // Replaces the objectives of the service classes (--slo-class as typed) for requests that are submitted from now on.
  // kInvalidArgument, and nothing changes: a text is wrong, or something else than an objective differs from the start.
  virtual Status SetServiceClasses(const std::vector<std::string>& /*slo_class*/) {
    return Unimplemented("this engine has no service classes");
  }

  // Records of what runs; null: none. Owned by the engine; for one watcher.
  virtual LiveFeed* live() { return nullptr; }
  // The requests that ended within the last ten minutes, in the order of their arrival; the newest if they are many.
  virtual std::vector<PastRequest> PastRequests() const { return {}; }
  // The file with the step times in use; empty: there is none.
  virtual std::string StepTimesFile() const { return {}; }
};

}  // namespace tactus
