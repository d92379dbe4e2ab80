// The engine for embedders: load a model, submit requests, receive tokens. The server and the terminal client stand on
// this header alone. Every function may be called from any thread, unless it says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/options.h"
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
  // Once, after every choice has finished, and then nothing more. `usage` counts what the client is told.
  virtual void OnDone(const Usage& usage) = 0;
};

struct ModelInfo {
  std::string name;                      // the first --served-model-name, else the model's
  std::vector<std::string> other_names;  // that requests may use too: the other --served-model-name
  std::string path;                      // the file or folder that was loaded
  std::string architecture;              // row of src/compute/config/architectures.def: "llama"
  int64_t max_model_len = 0;             // tokens: prompt and answer together
  int64_t vocab_size = 0;                // token ids are 0 to vocab_size - 1
  int64_t num_parameters = 0;
  int64_t hidden_size = 0, num_layers = 0;
  int64_t kv_bytes_per_token = 0;  // of all layers, with 16-bit K and V
  // Seconds of a prompt's token in a full step, and of reading a token's K and V, by the step times of this machine; 0:
  // none are stored.
  double prompt_token_s = 0, kv_token_s = 0;
  std::string weight_format;           // as the start-up line has it
  std::string kernels;                 // the kernel set in use: "avx512"
  SamplingParams generation_defaults;  // of requests that do not say: by flag, else by the model, else built in
  std::string chat_template;           // its Jinja source; empty: none
  int64_t front_end_bytes = 0;         // what the memory plan left of EngineOptions::front_end_bytes
};

// A snapshot, consistent within itself, taken without waiting for compute. Counts are since the engine was made.
// Tokens that were guessed ahead and verified (docs/speculation.md).
struct DraftCounts {
  int64_t drafts = 0;           // decodes that took guesses along
  int64_t draft_tokens = 0;     // guesses that they took
  int64_t accepted_tokens = 0;  // of those, the ones that the model would have sampled
};

struct EngineStats {
  int64_t running = 0, waiting = 0;  // sequences that hold KV; sequences that wait
  int64_t waiting_tokens = 0;        // that those in the queue have to compute, nothing of it being cached
  // Blocks of --block-size positions: all; in some live sequence's table; holding a prefix that no live sequence uses.
  int64_t kv_blocks_total = 0, kv_blocks_in_use = 0, kv_blocks_cached = 0;
  int64_t block_size = 0;                                       // positions of one
  int64_t step_tokens = 0;                                      // that a step computes at most
  int64_t steps = 0, prompt_tokens = 0, generation_tokens = 0;  // planned; of requests that began; sampled
  int64_t preemptions = 0, recomputed_tokens = 0;
  int64_t swap_blocks_total = 0, swap_blocks_used = 0;  // host memory of --swap-space
  int64_t swapped_sequences = 0, swapped_out_blocks = 0, swapped_in_blocks = 0;
  // Prompt tokens looked up in the prefix cache by the first start of each sequence; found there.
  int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  // Sequences, by how they ended (FinishReason).
  int64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  // Sequences that came from other engines, and that went to others (tactus/migration.h); KV blocks read out for those.
  int64_t migrated_in = 0, migrated_out = 0, migrated_out_blocks = 0;
  // By where guesses came from: a grammar that left no choice, what the text repeats, a smaller model.
  DraftCounts forced_drafts, ngram_drafts, model_drafts;
  double budget_utilization = 0;    // planned tokens / token budget, over all steps
  double kv_utilization = 0;        // blocks in use / all, mean over steps
  double step_time_correction = 1;  // measured / predicted by the step-time model, of the last steps with prompts
  uint64_t plan_hash = 0;           // over every plan, in order
  bool healthy = true;              // false after three executor errors in a row
};

class MigrationPort;  // tactus/migration.h

class Engine {
 public:
  using Progress =
      std::function<void(std::string_view line)>;  // start-up lines: memory plan, scheduler, time to ready;
                                                   // those that a user should not miss begin with "warning: "

  // Loads and starts; blocks until ready. kNotFound: no such model. kDataLoss: a damaged file. kInvalidArgument: an
  // option at fault, with its name as param, or a memory plan that does not fit, with its figures. kResourceExhausted:
  // no memory or threads at start.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, const Progress& progress = {});
  virtual ~Engine() = default;  // closes; what Close would have said is lost

  virtual const ModelInfo& model() const = 0;
  // Once `stop` is set, texts end within milliseconds: no tokens then, and kCancelled from the template.
  virtual std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop = {}) const = 0;
  // `text` makes at least so many tokens, by its bytes: what can never fit need not be tokenised. 0: nothing is known.
  virtual int64_t LeastTokens(std::string_view) const { return 0; }
  // Text of tokens, special ones included; bytes that are not UTF-8 are replaced.
  virtual std::string Detokenize(const std::vector<TokenId>& tokens) const = 0;
  virtual std::string TokenString(TokenId token) const = 0;  // the token's own bytes, invalid UTF-8 replaced
  virtual std::string TokenBytes(TokenId token) const = 0;
  // A control token: not part of the text unless Request::shown_specials says so.
  virtual bool IsSpecialToken(TokenId /*token*/) const { return false; }
  // The prompt text of `variables_json`: {"messages": [...], "tools": ..., "add_generation_prompt": bool, ...}. A BOS
  // that the template writes is in the text: tokenise it with add_special = false (TokenizeChat does).
  // kInvalidArgument: the model has no template, or the template refuses the variables.
  virtual Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop = {}) const = 0;
  virtual std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop = {}) const = 0;

  // The grammar that keeps an answer to `rule`, for Request::grammar. Off the step loop: it takes the caller's time, at
  // most some seconds, and where `wait` is given so long for all rules that are compiled with it. kInvalidArgument: the
  // rule cannot be taken, with the keyword or the place at fault. kUnimplemented: this engine has no grammars.
  // Precondition: rule.any().
  virtual Result<std::shared_ptr<const TokenGrammar>> CompileRule(const OutputRule& /*rule*/, StopToken /*stop*/ = {},
                                                                  RuleWait* /*wait*/ = nullptr) const {
    return Unimplemented("this engine keeps no answer to a grammar");
  }

  // Takes the request, or says why not: kResourceExhausted when the queue is full, kInvalidArgument (with the numbers)
  // for what can never fit, kUnavailable while draining. After an error the sink is never called.
  virtual Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) = 0;
  // For callers that would rather wait than be refused: ok when Submit would find room for a request of so many
  // sequences, or as many as there is ever room for. Nothing is kept for the caller: where others submit too, Submit
  // may still say kResourceExhausted, and the caller waits again. kDeadlineExceeded: no room within `timeout_ns`
  // nanoseconds. kUnavailable as Submit, also for those that wait already.
  virtual Status WaitForRoom(int32_t sequences, int64_t timeout_ns) = 0;
  // For front ends: a request that they did not submit because it can never fit counts as one that Submit refused.
  virtual void CountRefused(const Request& /*request*/, const Status& /*why*/) {}
  // Ends it at the next planning; its sink still gets kCancelled and OnDone. Unknown or finished: no effect.
  virtual void Cancel(RequestHandle handle) = 0;

  // Refuses new requests from now on. Returns when every accepted request has ended, or after `timeout_ns`
  // nanoseconds, when the rest ends with kUnavailable. Returns the number of requests cut off.
  virtual int64_t Drain(int64_t timeout_ns) = 0;

  // Cancels what runs and joins; kDataLoss: what was recorded (--trace-out) is not all in its file. Afterwards only the
  // destructor may be called, or Close again, which does nothing.
  virtual Status Close() { return Status(); }

  // The schedules of the requests that the query means, live or among the last that ended (kept_timelines() sequences);
  // empty: none is. From the moment its sink is told that it is done a request's schedule is complete. Waits for no
  // step.
  virtual std::vector<RequestTimeline> Timelines(const TimelineQuery&) const { return {}; }
  virtual int64_t kept_timelines() const { return 0; }
  // Whether a request that Submit has taken may still be refused by the gate (--gate predict): its first delta then has
  // kError with kResourceExhausted, and no token came before.
  virtual bool may_refuse() const { return false; }

  // Null: its sequences cannot move. Goes with the engine.
  virtual MigrationPort* migration() { return nullptr; }

  // What went wrong since the last call without ending a request, a line each, for whoever keeps a log: a damaged file
  // of --kv-cache-dir, a full disk. At most some dozen are kept.
  virtual std::vector<std::string> TakeWarnings() { return {}; }

  virtual EngineStats Stats() const = 0;
  // Prometheus text of the engine's metrics (tactus_* and the vllm:* names).
  virtual std::string MetricsText() const = 0;
  // What the run has brought so far (docs/api.md, "Result").
  virtual RunResult Outcome() const = 0;
};

}  // namespace tactus
