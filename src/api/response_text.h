// Answers as JSON text, written directly (one small chunk per token and stream: no document is built).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_writer.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// The HTTP status of a failure, and its error object: {"error": {"message", "type", "param", "code"}}.
int HttpStatusOf(StatusCode code);
std::string ErrorText(int http_status, std::string_view message, std::string_view param = {});
std::string ErrorText(const Status& status);

// "stop", "tool_calls" (it stopped and has called a tool), "length"; empty for an answer that did not end well.
std::string_view FinishText(FinishReason reason, bool called = false);

// What goes before and after each chunk of a stream, so that no chunk is copied to be framed: of server-sent events
// {"data: ", "\n\n"}, of JSON lines {"", "\n"}.
struct ChunkFrame {
  std::string before, after;
};

struct CompletionForm {
  bool chat = false;
  int32_t logprobs = -1;          // as SamplingParams::logprobs
  bool include_usage = false;     // stream_options.include_usage: "usage": null in every chunk but the last
  bool continuous_usage = false;  // and each chunk says its prompt's usage so far
  ChunkFrame frame;
};

// Chat completions and completions. A delta of several parts is a chunk for each; the first has the logprobs, the last
// the finish reason.
class CompletionWriter final : public AnswerWriter {
 public:
  // `id` with its prefix ("chatcmpl-..."); `created` in Unix seconds. `engine` gives the bytes of tokens and outlives
  // this.
  CompletionWriter(const Engine& engine, CompletionForm form, std::string id, int64_t created,
                   std::string_view fingerprint);

  const std::string& id() const override { return id_; }
  void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const Usage& usage) override;
  void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const Usage& usage) override;
  void AppendLast(std::string* out, const Usage& usage, std::string_view schedule) override;
  void AppendError(std::string* out, const Status& status) override;
  std::string Whole(const std::vector<ChoiceText>& choices, const Usage& usage, std::string_view schedule) override;

 private:
  void OpenChunk(std::string* out, int32_t index) const;
  void CloseChunk(std::string* out, const Usage* usage) const;
  void AppendFinish(std::string* out, FinishReason finish, bool called, std::string_view stop_string) const;
  void AppendMessage(std::string* out, const std::vector<AnswerPart>& parts) const;
  void AppendLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows, int64_t* text_offset) const;
  void AppendChatLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows) const;
  int64_t* TextOffset(int32_t index);

  const Engine& engine_;
  const CompletionForm form_;
  const std::string id_;
  std::string chunk_head_, whole_head_;
  std::vector<int64_t> text_offsets_;  // of each choice: code points that its chunks have told
};

std::string ModelsText(const ModelInfo& model, int64_t created);
std::string ModelText(const ModelInfo& model, int64_t created);
std::string TokenizeText(const Engine& engine, const std::vector<TokenId>& tokens, bool with_strings);
std::string DetokenizeText(const std::string& text);

}  // namespace tactus::api
