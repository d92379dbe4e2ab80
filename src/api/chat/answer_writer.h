// How an answer is written: one implementation for each kind of API. An Answer (api/chat/answer.h) says what there is
// to write and in which order; the writer only knows the form. It may keep what its own form needs, of one answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_parts.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// What one choice of an answer has received.
struct ChoiceText {
  std::vector<AnswerPart> parts;                    // in order; neighbours of one kind, and of one call, are one part
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: chosen first, then the best
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;
};

// All of `parts` that is of this kind, joined.
std::string TextOf(const std::vector<AnswerPart>& parts, AnswerPart::Kind kind = AnswerPart::Kind::kText);
std::string ArgumentsOf(const std::vector<AnswerPart>& parts, int32_t call);  // as far as they came
bool Called(const std::vector<AnswerPart>& parts);                            // a tool
// The same, but where the stop string that ended the answer has cut the last call off: that one shall not be run.
bool CallsToRun(const std::vector<AnswerPart>& parts, std::string_view stop_string);
// Appends `part`, to the last one where both are more of the same.
void AppendPart(AnswerPart part, std::vector<AnswerPart>* parts);

// What one choice of a stream receives at once.
struct ChoiceDelta {
  const std::vector<AnswerPart>& parts;  // perhaps none: a token without text, or one whose text is undecided
  const std::vector<std::vector<TokenLogprob>>& logprobs;
  FinishReason finish = FinishReason::kNone;  // not kNone: the choice's last
  bool called = false;                        // the choice has called a tool, here or before
  std::string_view stop_string;
};

// What an answer tells of its tokens.
struct AnswerUsage : Usage {
  AnswerUsage() = default;
  AnswerUsage(const Usage& usage, int64_t reasoning = 0)  // NOLINT(google-explicit-constructor)
      : Usage(usage), reasoning_tokens(reasoning) {}

  int64_t reasoning_tokens = 0;  // of the completion: what was generated as reasoning, without its markers
};

// The prompt, where it goes before its answer (completions with echo).
struct EchoedPrompt {
  std::string_view text;
  const std::vector<std::vector<TokenLogprob>>& logprobs;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual const std::string& id() const = 0;  // with its prefix: "chatcmpl-..."

  // --- Streaming: whole chunks in their frames, appended to *out. For each choice begin, then deltas; choices take
  // turns. `usage`: of the choice's prompt, so far ---
  virtual void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const AnswerUsage& usage) = 0;
  virtual void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const AnswerUsage& usage) = 0;
  // After the end of every choice, once. `usage`: of all prompts. `schedule`: a JSON object, or empty.
  virtual void AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) = 0;

  // Instead of what would follow: the answer ends with an error.
  virtual void AppendError(std::string* out, const Status& status) = 0;

  // --- Whole: the response object. Echoed prompts are in the choices ---
  virtual std::string Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                            std::string_view schedule) = 0;
};

}  // namespace tactus::api
