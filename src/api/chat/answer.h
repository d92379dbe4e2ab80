// The answer to one request: collects the engine's events for all prompts and choices of the request and writes the
// response object, complete or chunk by chunk. Usage, finish reasons, logprobs and echo have one definition for both.
//
// Thread rule: one thread at a time; the engine outlives it. Invariants: the chunks of a stream add up to the complete
// answer; after a choice that ended badly nothing more is written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/chat/answer_text.h"
#include "api/chat/answer_writer.h"
#include "api/chat/response_text.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// What an answer needs to know about its request; PrepareConversation (api/chat/conversation.h) fills it in.
struct AnswerShape {
  struct Prompt {
    std::shared_ptr<const std::vector<TokenId>> tokens;
    std::string echo;  // the prompt's text, sent before each of its choices; empty: not echoed
  };
  std::vector<Prompt> prompts;  // at least one, each of at least one token
  int32_t choices_per_prompt = 1;
  bool chat = false;
  std::string echo_members;  // of a response object: from EchoOfResponses (api/responses/responses_request.h)
  bool stream = false;       // answered in chunks; else complete
  bool echo = false;
  bool prompt_only = false;              // generated tokens are not sent
  bool prompt_logprobs = false;          // the prompt's rows precede those of each choice
  int32_t logprobs = -1;                 // as SamplingParams::logprobs
  bool include_usage = false;            // a stream ends with a chunk of usage
  bool continuous_usage = false;         // and each chunk has its prompt's usage so far
  std::string rule_field;                // the field that states what the answer must match; empty: none
  std::optional<AnswerReading> reading;  // how calls and reasoning are found in the text; none: all text is content
  const Engine* engine = nullptr;        // decodes tokens; null: reasoning tokens are not counted
};

struct AnswerIdentity {
  std::string request_id;  // the answer's id adds a prefix: "chatcmpl-" or "cmpl-"
  int64_t created = 0;     // Unix seconds
  std::string fingerprint;
};

// Equal fingerprints: same binary version, weights as stored and kernels, hence the same tokens for the same seed.
std::string Fingerprint(const ModelInfo& model);

// The writer for completions or chats, as `shape` states.
std::unique_ptr<AnswerWriter> CompletionWriterOf(const Engine& engine, const AnswerShape& shape,
                                                 const AnswerIdentity& identity, ChunkFrame frame);

// Counts the reasoning tokens of one choice: those that begin inside reasoning text. Text may lag behind tokens, and
// apparent reasoning may be the beginning of its end marker, so the last tokens are classified again.
class TokenCount {
 public:
  void Add(size_t bytes);  // adds the next token
  void Settle(const AnswerText& text);
  int64_t Reasoning(const AnswerText& text) const;

 private:
  std::vector<size_t> begins_;  // where the tokens that are not settled yet begin, in bytes of the text
  size_t end_ = 0;
  int64_t settled_ = 0;
};

class Answer {
 public:
  // The first writes as completions and chats do, the second with another API's writer.
  Answer(const Engine& engine, AnswerShape shape, AnswerIdentity identity, ChunkFrame frame = {});
  Answer(AnswerShape shape, std::unique_ptr<AnswerWriter> writer);

  // Whether a stream sends chunks for this delta. False while a character or a stop string is undecided; logprobs are
  // sent with their token.
  static bool Tells(const TokenDelta& delta);

  // --- The engine's events for one prompt's request, in the engine's order. If the answer is a stream, the resulting
  // chunks, perhaps none, are appended to *chunks; otherwise `chunks` may be null.

  // Fails with the engine's reason if a choice ended without an answer; so does every later call.
  Status OnDelta(size_t prompt, const TokenDelta& delta, std::string* chunks);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage, std::string* chunks);
  // Call before the last OnDone: sets the request's schedule (api/explain_text.h), which the answer or its last chunk
  // contains.
  void Explain(std::string schedule) { schedule_ = std::move(schedule); }

  // Ends a stream with an error.
  void AppendError(std::string* chunks, const Status& status) { writer_->AppendError(chunks, status); }

  // --- State so far ---
  bool done() const { return prompts_done_ == prompts_.size(); }  // all prompts are done
  bool done(size_t prompt) const { return prompts_[prompt].done; }
  bool done_but(size_t prompt) const { return !done(prompt) && prompts_done_ + 1 == prompts_.size(); }
  bool begun() const { return begun_; }  // a delta has arrived
  // The parts of the last OnDelta.
  const std::vector<AnswerPart>& parts() const { return parts_; }
  AnswerUsage usage() const;  // of all prompts together
  // The generated text and how it ended, without echo. Not for a stream, which keeps no text.
  const ChoiceText& choice(size_t index) const { return choices_[index].text; }
  // The response object, once done; not for a stream. Consumes the texts.
  std::string Complete() &&;

 private:
  struct PromptState {
    std::vector<std::vector<TokenLogprob>> logprobs;  // for echo; the first row has no probability
    Usage usage;                                      // counted so far, then the engine's final value
    bool done = false;
  };
  struct ChoiceState {
    ChoiceText text;
    std::unique_ptr<AnswerText> reader;  // null: all of its text is content
    TokenCount tokens;                   // where there is a reader
    bool begun = false;                  // its first chunk was written
  };

  AnswerUsage UsageSoFar(size_t prompt) const;
  // Sets parts_ to the delta's parts. Returns whether the choice has called a tool; false if a stop string has cut the
  // call off.
  bool Read(ChoiceState* choice, const TokenDelta& delta);
  void AppendChunks(size_t prompt, size_t index, const TokenDelta& delta, bool called, std::string* chunks);

  AnswerShape shape_;  // constant once it is made
  const std::unique_ptr<AnswerWriter> writer_;
  std::vector<PromptState> prompts_;
  std::vector<ChoiceState> choices_;  // prompt by prompt
  size_t prompts_done_ = 0;
  bool begun_ = false;
  std::vector<AnswerPart> parts_;  // parts of the current delta
  std::string schedule_;           // JSON; empty: not sent
  Status status_;
};

}  // namespace tactus::api
