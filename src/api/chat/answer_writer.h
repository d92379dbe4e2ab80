// Writes an answer: one implementation for each kind of API. An Answer (api/chat/answer.h) decides what is written and
// in which order; the writer only knows the format. It may keep state of one answer for that format.
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
  std::vector<AnswerPart> parts;                    // in order; adjacent text of one kind, and of one call, is one part
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: the chosen token first, then the likeliest
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;
};

// The text of all `parts` of this kind, joined.
std::string TextOf(const std::vector<AnswerPart>& parts, AnswerPart::Kind kind = AnswerPart::Kind::kText);
std::string ArgumentsOf(const std::vector<AnswerPart>& parts, int32_t call);  // as far as they arrived
bool Called(const std::vector<AnswerPart>& parts);                            // whether a tool was called
// As Called, but false if the stop string that ended the answer has cut the last call off, which must not be run.
bool CallsToRun(const std::vector<AnswerPart>& parts, std::string_view stop_string);
// Appends `part`, merged into the last one if both are of one kind and call.
void AppendPart(AnswerPart part, std::vector<AnswerPart>* parts);

// New data for one choice of a stream.
struct ChoiceDelta {
  const std::vector<AnswerPart>& parts;  // may be empty: a token without text, or with undecided text
  const std::vector<std::vector<TokenLogprob>>& logprobs;
  FinishReason finish = FinishReason::kNone;  // not kNone: this is the choice's last delta
  bool called = false;                        // the choice has called a tool, here or before
  std::string_view stop_string;
};

// The token counts of an answer.
struct AnswerUsage : Usage {
  AnswerUsage() = default;
  AnswerUsage(const Usage& usage, int64_t reasoning = 0)  // NOLINT(google-explicit-constructor)
      : Usage(usage), reasoning_tokens(reasoning) {}

  int64_t reasoning_tokens = 0;  // completion tokens that are reasoning, without its markers
};

// The prompt, sent before its answer (completions with echo).
struct EchoedPrompt {
  std::string_view text;
  const std::vector<std::vector<TokenLogprob>>& logprobs;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual const std::string& id() const = 0;  // with its prefix: "chatcmpl-..."

  // --- Streaming: whole chunks in their frames, appended to *out. For each choice: begin, then deltas; choices may
  // interleave. `usage`: that of the choice's prompt so far ---
  virtual void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const AnswerUsage& usage) = 0;
  virtual void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const AnswerUsage& usage) = 0;
  // Called once, after the end of every choice. `usage`: the sum over all prompts. `schedule`: a JSON object, or empty.
  virtual void AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) = 0;

  // Ends the answer with an error.
  virtual void AppendError(std::string* out, const Status& status) = 0;

  // --- Whole: the response object. Echoed prompts are in the choices ---
  virtual std::string Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                            std::string_view schedule) = 0;
};

}  // namespace tactus::api
