// A request as every front end (HTTP, terminal, simulator) hands it to the engine, and what comes back. Plain data; no
// behaviour, no locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tactus/status.h"

namespace tactus {

using TokenId = int32_t;         // row of the vocabulary, from 0
using RequestHandle = uint64_t;  // of an engine, ascending in order of arrival; 0 is no request

// What repetition_penalty may be: nearer to 0 it would blow logits up beyond what a float holds.
inline constexpr double kMinRepetitionPenalty = 0.01;
inline constexpr double kMaxRepetitionPenalty = 10.0;

// Sampling, in the order of docs/api.md: logit_bias, repetition, frequency and presence penalties, temperature, min_p,
// top_k, top_p. Ties go to the lowest id. Temperature 0 is the argmax after bias and penalties. Defaults are neutral.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // 0: all
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // within the limits above; prompt and output tokens
  float presence_penalty = 0.0f;    // [-2, 2]; output tokens
  float frequency_penalty = 0.0f;   // [-2, 2]; output tokens
  uint64_t seed = 0;                // with has_seed; otherwise drawn at intake, and recorded
  bool has_seed = false;
  int32_t logprobs = -1;  // -1: none; k >= 0: the chosen token's and the k best, of the raw logits
  std::vector<std::pair<TokenId, float>> logit_bias;  // sorted by id, no duplicates

  bool NeedsHistory() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// Objectives in nanoseconds; 0 means none stated.
struct Slo {
  int64_t ttft_ns = 0;  // arrival to first token
  int64_t tbt_ns = 0;   // longest gap between two tokens of a stream
  int64_t jct_ns = 0;   // arrival to last token

  bool any() const { return ttft_ns > 0 || tbt_ns > 0 || jct_ns > 0; }
  bool operator==(const Slo&) const = default;
};

// The end of a plan that a request is taken from, where both are scanned.
enum class PlanEnd : uint8_t { kNone, kLeft, kRight };

// Where the plan of a job puts a request among its others (docs/batch.md). The orders `dfs`, `balance`, `blend` and
// `blend-dual-scan` go by it; requests that no plan has placed go before those.
struct PlannedPlace {
  int32_t position = -1;  // in the order in which the job starts, from 0; -1: no plan has placed it
  int32_t kv_tokens = 0;  // whose K and V it will read per step, on average over its life; shared ones too

  // What a scan of the plan's ends goes by (`blend-dual-scan`).
  PlanEnd end = PlanEnd::kNone;
  int32_t density = 0;      // of the subtree that it is planned with, in millionths of the job's
  int32_t step_tokens = 0;  // of a step that is as dense as the job while its decodes read the whole KV memory

  bool operator==(const PlannedPlace&) const = default;
};

// When a choice ends; counts are tokens of the answer.
struct StopConditions {
  int64_t max_tokens = 16;              // >= 1; the engine's caller has checked prompt + max_tokens <= context
  int64_t min_tokens = 0;               // tokens before which no stop id is sampled and no stop string ends it
  bool ignore_eos = false;              // the model's own stop ids do not end it; `stop_token_ids` still do
  std::vector<TokenId> stop_token_ids;  // of the request
  std::vector<std::string> stop;        // stop strings: bytes, not tokens; never part of the output
};

class TokenGrammar;  // base/token_grammar.h

// What the text of an answer must be. Engine::CompileRule makes a grammar of it.
struct OutputRule {
  enum class Kind : uint8_t {
    kNone,
    kJsonObject,  // any JSON object
    kJsonSchema,  // `text` is the schema
    kRegex,       // `text` matches the whole answer
    kLark,        // `text` is a grammar in Lark's notation, from `start`
  };
  Kind kind = Kind::kNone;
  std::string text;

  bool any() const { return kind != Kind::kNone; }
  bool operator==(const OutputRule&) const = default;
};

// For which client a request's rules are compiled, and how long the request has waited for them so far.
struct RuleWait {
  std::string client;     // which shares the places where rules are compiled with others; empty: there are no others
  int64_t waited_ms = 0;  // in all; Engine::CompileRule adds to it
  bool over = false;      // the request has waited for as long as it may: nothing more is compiled for it
};

struct Request {
  std::string id;                                      // X-Request-Id or drawn at intake; for logs and traces
  std::shared_ptr<const std::vector<TokenId>> prompt;  // >= 1 token; shared by the choices
  SamplingParams sampling;
  StopConditions stop;
  int32_t n = 1;         // choices; one sequence each, the prompt's KV computed once
  int32_t priority = 0;  // lower runs first
  PlannedPlace planned;
  Slo slo;
  std::string slo_class;         // label of metrics; empty: none
  int64_t arrival_ns = -1;       // when it came in, by the steady clock (base/clock.h); latencies and slack count from
                                 // there. -1: when it is submitted
  std::string adapter;           // of those that the engine has loaded; empty: the model alone. Part of the KV identity
  std::string cache_salt;        // part of the KV identity: requests with different salts share nothing
  std::string owner;             // who may ask for its schedule (Engine::Timelines); empty: everybody
  std::string client;            // for per-client predictors; empty: unknown
  bool prompt_logprobs = false;  // `echo` with logprobs: logits of every prompt row
  OutputRule output;             // what the answer must match; goes along when the request moves to another engine
  std::shared_ptr<const TokenGrammar> grammar;  // of `output`; null without one
  bool shown_specials = false;                  // the answer's text shows special tokens: markers of tool calls
};

// kNone: not yet. kStop: a stop id or stop string. kLength: max_tokens. kCancelled, kError: TokenDelta::error says why.
// kMigrated: it goes on at another engine (tactus/migration.h); whoever began to move it knows.
enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError, kMigrated };
const char* FinishReasonName(FinishReason reason);

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;  // natural logarithm
};

// What one choice of a request received in one step.
struct TokenDelta {
  int32_t choice = 0;
  std::string text;  // whole UTF-8 characters only; empty while a character or a stop is undecided
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: chosen first, then the best in descending order
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;  // the stop string that ended it, if one did
  Status error;             // with kError or kCancelled
};

// Tokens of one request, over all choices.
struct Usage {
  int64_t prompt_tokens = 0;  // counted once
  int64_t cached_tokens = 0;  // of the prompt, taken from the prefix cache
  int64_t completion_tokens = 0;
};

}  // namespace tactus
