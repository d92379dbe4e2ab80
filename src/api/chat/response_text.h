// Writes answers as JSON text directly, without building a document: a stream has one small chunk per token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_writer.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// The HTTP status of a failure. ErrorText is its error object: {"error": {"message", "type", "param", "code"}}.
int HttpStatusOf(StatusCode code);
// The `code` by which OpenAI's clients distinguish errors; empty: none.
std::string_view ErrorCodeOf(int http_status, std::string_view message, std::string_view param);
// Adds the words that OpenAI's clients look for to the message of a prompt that does not fit; leaves other messages as
// they are.
std::string WithContextLength(std::string_view message);
std::string ErrorText(int http_status, std::string_view message, std::string_view param = {});
std::string ErrorText(const Status& status);

// The value of the header x-tactus-ignored: the names of ignored fields; empty if there are none. Names come from the
// client, so bytes that could end a header are replaced, and the list is cut to about a kilobyte.
inline constexpr std::string_view kIgnoredHeader = "x-tactus-ignored";
std::string IgnoredText(const std::vector<std::string>& names);

// "stop", "tool_calls" (stopped, with a tool call) or "length"; empty for an answer that did not end well.
std::string_view FinishText(FinishReason reason, bool called = false);

// Text before and after each chunk of a stream, so that framing copies no chunk: {"data: ", "
//
// "} for server-sent events, {"", "
// "} for JSON lines.
struct ChunkFrame {
  std::string before, after;
};

struct CompletionForm {
  bool chat = false;
  int32_t logprobs = -1;          // as SamplingParams::logprobs
  bool include_usage = false;     // stream_options.include_usage: "usage": null in every chunk but the last
  bool continuous_usage = false;  // and each chunk has its prompt's usage so far
  ChunkFrame frame;
};

// Chat completions and completions. A delta of several parts becomes a chunk for each; the first has the logprobs, the
// last the finish reason.
class CompletionWriter final : public AnswerWriter {
 public:
  // `id` with its prefix ("chatcmpl-..."); `created` in Unix seconds. `engine` decodes tokens and outlives this.
  CompletionWriter(const Engine& engine, CompletionForm form, std::string id, int64_t created,
                   std::string_view fingerprint);

  const std::string& id() const override { return id_; }
  void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const AnswerUsage& usage) override;
  void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const AnswerUsage& usage) override;
  void AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) override;
  void AppendError(std::string* out, const Status& status) override;
  std::string Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                    std::string_view schedule) override;

 private:
  void OpenChunk(std::string* out, int32_t index) const;
  void CloseChunk(std::string* out, const AnswerUsage* usage) const;
  void AppendFinish(std::string* out, FinishReason finish, bool called, std::string_view stop_string) const;
  void AppendMessage(std::string* out, const std::vector<AnswerPart>& parts) const;
  // Position of the next token in a choice's text.
  struct TextPlace {
    int64_t characters = 0;
    std::string pending;  // bytes of an incomplete character
    size_t bytes = 0;     // of the complete characters
  };
  // `text`: the choice's text from its beginning, if available; it shows which special tokens are part of it.
  void AppendLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows, std::string_view text,
                      TextPlace* place) const;
  void Advance(TokenId token, std::string_view text, TextPlace* place) const;
  std::string TokenText(TokenId token) const;
  void AppendChatLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows) const;
  TextPlace* PlaceOf(int32_t index);

  const Engine& engine_;
  const CompletionForm form_;
  const std::string id_;
  std::string chunk_head_, whole_head_;
  std::vector<TextPlace> places_;  // of each choice: the end of the text sent so far
};

std::string ModelsText(const ModelInfo& model, int64_t created);
// `name`: one of the model's names.
std::string ModelText(const ModelInfo& model, std::string_view name, int64_t created);
std::string TokenizeText(const Engine& engine, const std::vector<TokenId>& tokens, bool with_strings);
std::string DetokenizeText(const std::string& text);

}  // namespace tactus::api
