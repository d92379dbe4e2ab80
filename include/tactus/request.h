// A request as every front end (HTTP, terminal, simulator) passes it to the engine, and the output of the engine. Plain
// data; no behaviour, no locks.
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
using RequestHandle = uint64_t;  // per engine, ascending in order of arrival; 0: no request

// Range of repetition_penalty: a value nearer to 0 would make logits overflow a float.
inline constexpr double kMinRepetitionPenalty = 0.01;
inline constexpr double kMaxRepetitionPenalty = 10.0;

// Sampling, in the order of docs/reference/api.md: logit_bias, repetition, frequency and presence penalties,
// temperature, min_p, top_k, top_p. Ties go to the lowest id. Temperature 0 is the argmax after bias and penalties.
// Defaults are neutral.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // 0: all
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // within the limits above; prompt and output tokens
  float presence_penalty = 0.0f;    // [-2, 2]; output tokens
  float frequency_penalty = 0.0f;   // [-2, 2]; output tokens
  uint64_t seed = 0;                // used with has_seed; otherwise drawn at intake, and recorded
  bool has_seed = false;
  int32_t logprobs = -1;  // -1: none; k >= 0: the sampled token and the k best, from the raw logits
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

// For plans that are consumed from both ends: the end that a request is taken from.
enum class PlanEnd : uint8_t { kNone, kLeft, kRight };

// The place of a request in the plan of its job (docs/how-to/batch.md). The orders `dfs`, `balance`, `blend` and
// `blend-dual-scan` use it; requests without a place go first.
struct PlannedPlace {
  int32_t position = -1;  // in the job's start order, from 0; -1: no place
  int32_t kv_tokens = 0;  // mean number of tokens whose K and V it reads per step; shared ones included

  // Used by `blend-dual-scan`, which consumes the plan from both ends.
  PlanEnd end = PlanEnd::kNone;
  int32_t density = 0;      // of the subtree planned with it, in millionths of the job's
  int32_t step_tokens = 0;  // of a step as dense as the job while its decodes read the whole KV memory

  bool operator==(const PlannedPlace&) const = default;
};

// When a choice ends; counts are tokens of the answer.
struct StopConditions {
  int64_t max_tokens = 16;              // >= 1; the caller has checked prompt + max_tokens <= context
  int64_t min_tokens = 0;               // tokens before which no stop id is sampled and no stop string ends the choice
  bool ignore_eos = false;              // the model's own stop ids do not end the choice; `stop_token_ids` still do
  std::vector<TokenId> stop_token_ids;  // set by the request
  std::vector<std::string> stop;        // stop strings: bytes, not tokens; never part of the output
};

class TokenGrammar;  // base/token_grammar.h

// Constraint on the text of an answer. Engine::CompileRule makes a grammar of it.
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

// The client for which a request's rules are compiled, and the request's waiting time so far.
struct RuleWait {
  std::string client;     // clients share the compiler threads fairly; empty: one client only
  int64_t waited_ms = 0;  // total; Engine::CompileRule adds to it
  bool over = false;      // the request has used up its waiting time: nothing more is compiled for it
};

struct Request {
  std::string id;                                      // X-Request-Id, or drawn at intake; for logs and traces
  std::shared_ptr<const std::vector<TokenId>> prompt;  // >= 1 token; shared by the choices
  SamplingParams sampling;
  StopConditions stop;
  int32_t n = 1;         // choices; one sequence each, the prompt's KV computed once
  int32_t priority = 0;  // lower runs first
  PlannedPlace planned;
  Slo slo;
  std::string slo_class;         // class of service, a label of metrics; empty: none
  int64_t arrival_ns = -1;       // by the steady clock (base/clock.h); latencies and slack count from it; -1: at submit
  std::string adapter;           // one of the engine's loaded adapters; empty: the base model. Part of the KV identity
  std::string cache_salt;        // part of the KV identity: requests with different salts share no KV
  std::string owner;             // may query its schedule (Engine::Timelines); empty: any caller
  std::string client;            // for per-client predictors; empty: unknown
  bool prompt_logprobs = false;  // `echo` with logprobs: logits of every prompt row
  OutputRule output;             // rule for the answer; moves with the request to another engine
  std::shared_ptr<const TokenGrammar> grammar;  // compiled from `output`; null without a rule
  bool shown_specials = false;                  // the answer's text shows special tokens: markers of tool calls
};

// kNone: not yet ended. kStop: a stop id or stop string. kLength: max_tokens. kCancelled, kError: the reason is in
// TokenDelta::error. kMigrated: it continues on another engine (tactus/migration.h), as the caller of MigrationPort
// knows.
enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError, kMigrated };
const char* FinishReasonName(FinishReason reason);

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;  // natural logarithm
};

// Output of one choice in one step.
struct TokenDelta {
  int32_t choice = 0;
  std::string text;  // whole UTF-8 characters only; empty while a character or a stop string is incomplete
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: chosen first, then the best in descending order
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;  // the stop string that ended the choice, if any
  Status error;             // with kError or kCancelled
};

// Token counts of one request, over all choices.
struct Usage {
  int64_t prompt_tokens = 0;  // counted once
  int64_t cached_tokens = 0;  // of the prompt, taken from the prefix cache
  int64_t completion_tokens = 0;
};

}  // namespace tactus
