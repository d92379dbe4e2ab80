// One conversation with a model, message by message: what `tactus run` asks and prints. Main thread; answers are
// printed as they are made, on the engine's delivery thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/chat/conversation.h"
#include "tactus/engine.h"
#include "tactus/option_fields.h"
#include "tactus/sampling_options.h"

namespace tactus::cli {

// What a chat may change of its answers while it runs (/set).
struct AnswerSettings {
  StatedSampling sampling;  // over the defaults that the engine has
  std::optional<int64_t> seed;
  int64_t max_tokens = 0;  // at most what the context leaves; 0: that, at most --default-max-tokens

  template <class V>
  void VisitFields(V& v) {
    sampling.VisitFields(v);
    v.Field("seed", seed, {.help = "the same seed gives the same answer; default: drawn"});
    v.Field("max-tokens", max_tokens,
            {.unit = "tokens",
             .min = 0,
             .help = "longest answer; 0: what the context leaves, at most --default-max-tokens"});
  }
};

// How one question went.
struct Asked {
  Status status;             // not ok: nothing of it stays in the talk
  bool interrupted = false;  // Ctrl-C stopped the answer; what came of it stays
  std::string summary;       // one line about speed
  int64_t left_out = 0;      // of the oldest messages, which no longer fit into the context
};

class Talk {
 public:
  // `on_terminal`: Ctrl-C stops an answer and nothing else.
  Talk(Engine& engine, int64_t default_max_tokens, bool on_terminal);

  void Clear();  // the system message stays
  void SetSystem(const std::string& text);
  const std::string& system() const { return system_; }
  AnswerSettings& settings() { return settings_; }
  int64_t context() const { return limits_.max_model_len; }  // tokens of a question, what was before, and the answer
  // What answers are sampled with now.
  SamplingParams Sampling() const;

  // Asks and prints. Where the whole talk does not fit into the context with room for an answer, its oldest messages
  // are left out for good.
  Asked Ask(const std::string& question);
  // Continues the text as it is.
  Asked Continue(const std::string& start);

 private:
  std::vector<api::ChatMessage> Messages() const;
  Result<api::Prepared> PrepareToFit(int64_t* left_out);
  Result<api::Prepared> Prepare(api::ParsedRequest asked);
  void Generate(api::Prepared prepared, std::string* text, Asked* asked);

  Engine& engine_;
  const api::RequestLimits limits_;
  const bool on_terminal_;
  AnswerSettings settings_;
  std::string system_;
  std::vector<api::ChatMessage> messages_;  // of user and assistant in turn
};

}  // namespace tactus::cli
