// One conversation with a model in `tactus run`: sends messages and prints answers. Main thread; the engine's delivery
// thread prints answers as they are generated.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/chat/conversation.h"
#include "tactus/engine.h"
#include "tactus/option_fields.h"
#include "tactus/sampling_options.h"

namespace tactus::cli {

// Settings of answers that a chat can change while it runs (/set).
struct AnswerSettings {
  StatedSampling sampling;  // override the engine's defaults
  std::optional<int64_t> seed;
  int64_t max_tokens = 0;  // 0: the rest of the context, at most --default-max-tokens

  template <class V>
  void VisitFields(V& v) {
    sampling.VisitFields(v);
    v.Field("seed", seed, {.help = "the same seed gives the same answer; default: drawn"});
    v.Field("max-tokens", max_tokens,
            {.unit = "tokens",
             .min = 0,
             .help = "longest answer; 0: the rest of the context, at most --default-max-tokens"});
  }
};

// The outcome of one question.
struct Asked {
  Status status;             // not ok: neither question nor answer is kept
  bool interrupted = false;  // Ctrl-C stopped the answer; its part is kept
  std::string summary;       // one line about speed
  int64_t left_out = 0;      // number of oldest messages dropped because the context is full
};

class Talk {
 public:
  // `on_terminal`: Ctrl-C stops only an answer.
  Talk(Engine& engine, int64_t default_max_tokens, bool on_terminal);

  void Clear();  // the system message stays
  void SetSystem(const std::string& text);
  const std::string& system() const { return system_; }
  const std::vector<api::ChatMessage>& messages() const { return messages_; }
  void SetMessages(std::vector<api::ChatMessage> messages) { messages_ = std::move(messages); }
  AnswerSettings& settings() { return settings_; }
  // Tokens of the earlier messages, the question and the answer.
  int64_t context() const { return limits_.max_model_len; }
  // The current sampling parameters.
  SamplingParams Sampling() const;

  // Sends the question and prints the answer. If the conversation and room for an answer exceed the context, its oldest
  // messages are dropped permanently.
  Asked Ask(const std::string& question);
  // Continues the text without a chat template.
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
  std::vector<api::ChatMessage> messages_;  // user and assistant in turn
};

}  // namespace tactus::cli
