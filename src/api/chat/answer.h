// The answer to one request: it takes what the engine says of all the request's prompts and choices and gives the
// response object, complete or chunk by chunk. Usage, finish reasons, logprobs and echo have one definition for both.
//
// Thread rule: one thread at a time; the engine outlives it. Invariants: the chunks of a stream add up to what the
// complete answer says; after a choice that ended badly it says nothing more.
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

// What an answer must know of its request; PrepareConversation (api/chat/conversation.h) fills it in.
struct AnswerShape {
  struct Prompt {
    std::shared_ptr<const std::vector<TokenId>> tokens;
    std::string echo;  // its text, before that of each of its choices; empty: not echoed
  };
  std::vector<Prompt> prompts;  // at least one, each of at least one token
  int32_t choices_per_prompt = 1;
  bool chat = false;
  std::string echo_members;  // of a response's object, that say what was asked: EchoOfResponses (api/translations.h)
  bool stream = false;       // answered in chunks; else complete
  bool echo = false;
  bool prompt_only = false;              // generated tokens are not sent
  bool prompt_logprobs = false;          // the prompt's rows go before those of each choice
  int32_t logprobs = -1;                 // as SamplingParams::logprobs
  bool include_usage = false;            // a stream ends with a chunk of usage
  bool continuous_usage = false;         // and each chunk says its prompt's usage so far
  std::string rule_field;                // that says what the answer must match; empty: none
  std::optional<AnswerReading> reading;  // of the text, for calls and reasoning; none: all of it is content
  const Engine* engine = nullptr;        // knows what tokens spell; null: no reasoning is counted
};

struct AnswerIdentity {
  std::string request_id;  // the answer's own has a prefix before it: "chatcmpl-" or "cmpl-"
  int64_t created = 0;     // Unix seconds
  std::string fingerprint;
};

// Equal fingerprints: same binary version, weights as stored and kernels, hence the same tokens for the same seed.
std::string Fingerprint(const ModelInfo& model);

// Of completions and chats, as the shape says.
std::unique_ptr<AnswerWriter> CompletionWriterOf(const Engine& engine, const AnswerShape& shape,
                                                 const AnswerIdentity& identity, ChunkFrame frame);

// The tokens of one choice that are reasoning: those that begin where its text is. Texts may lag behind tokens, and
// what looks like reasoning may be the beginning of its end marker, so the last ones are looked at again.
class TokenCount {
 public:
  void Add(size_t bytes);  // of the next token
  void Settle(const AnswerText& text);
  int64_t Reasoning(const AnswerText& text) const;

 private:
  std::vector<size_t> begins_;  // of the tokens that are not settled yet, in bytes of the text
  size_t end_ = 0;
  int64_t settled_ = 0;
};

class Answer {
 public:
  // Written as completions and chats are; or by a writer of another API.
  Answer(const Engine& engine, AnswerShape shape, AnswerIdentity identity, ChunkFrame frame = {});
  Answer(AnswerShape shape, std::unique_ptr<AnswerWriter> writer);

  // A stream has chunks for it. Not where a character or a stop string is undecided; logprobs are told with their
  // token.
  static bool Tells(const TokenDelta& delta);

  // --- What the engine tells the sink of one prompt's request, in its order. Where the answer is a stream, the chunks
  // that follow from it are appended to *chunks, perhaps none. Else `chunks` may be null.

  // Fails for a choice that ended without an answer, with the engine's reason; so does every call after it.
  Status OnDelta(size_t prompt, const TokenDelta& delta, std::string* chunks);
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  void OnDone(size_t prompt, const Usage& usage, std::string* chunks);
  // Before the last OnDone: the request's schedule (api/explain_text.h), which the answer or its last chunk tells.
  void Explain(std::string schedule) { schedule_ = std::move(schedule); }

  // Instead of what would follow in a stream.
  void AppendError(std::string* chunks, const Status& status) { writer_->AppendError(chunks, status); }

  // --- What it has so far ---
  bool done() const { return prompts_done_ == prompts_.size(); }  // of every prompt
  bool done(size_t prompt) const { return prompts_[prompt].done; }
  bool done_but(size_t prompt) const { return !done(prompt) && prompts_done_ + 1 == prompts_.size(); }
  bool begun() const { return begun_; }  // something of a choice has come
  // What the last OnDelta told.
  const std::vector<AnswerPart>& parts() const { return parts_; }
  AnswerUsage usage() const;  // of all prompts together
  // What was generated and how it ended, without echo. Not of a stream, which keeps no text.
  const ChoiceText& choice(size_t index) const { return choices_[index].text; }
  // The response object, when it is done; not of a stream. Takes the texts with it.
  std::string Complete() &&;

 private:
  struct PromptState {
    std::vector<std::vector<TokenLogprob>> logprobs;  // for echo; the first row has no probability
    Usage usage;                                      // so far, then what the engine says
    bool done = false;
  };
  struct ChoiceState {
    ChoiceText text;
    std::unique_ptr<AnswerText> reader;  // null: all of its text is content
    TokenCount tokens;                   // where there is a reader
    bool begun = false;                  // its first chunk was written
  };

  AnswerUsage UsageSoFar(size_t prompt) const;
  // Sets parts_ to what the delta says; whether the choice has called a tool; not where a stop string has cut the call
  // off.
  bool Read(ChoiceState* choice, const TokenDelta& delta);
  void AppendChunks(size_t prompt, size_t index, const TokenDelta& delta, bool called, std::string* chunks);

  AnswerShape shape_;  // constant once it is made
  const std::unique_ptr<AnswerWriter> writer_;
  std::vector<PromptState> prompts_;
  std::vector<ChoiceState> choices_;  // those of the first prompt first
  size_t prompts_done_ = 0;
  bool begun_ = false;
  std::vector<AnswerPart> parts_;  // of the delta that is told
  std::string schedule_;           // JSON; empty: not told
  Status status_;
};

}  // namespace tactus::api
