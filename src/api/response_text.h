// Answers as JSON text, written directly (one small chunk per token and stream: no document is built). Immutable after
// construction: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// The HTTP status of a failure, and its error object: {"error": {"message", "type", "param", "code"}}.
int HttpStatusOf(StatusCode code);
std::string ErrorText(int http_status, std::string_view message, std::string_view param = {});
std::string ErrorText(const Status& status);

// "stop", "length"; empty for an answer that did not end well.
std::string_view FinishText(FinishReason reason);

// What one choice of a non-streaming answer has received.
struct ChoiceText {
  std::string text;
  std::vector<std::vector<TokenLogprob>> logprobs;  // per token: chosen first, then the best
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;
};

// What goes before and after each chunk of a stream, so that no chunk is copied to be framed: of server-sent events
// {"data: ", "\n\n"}, of JSON lines {"", "\n"}.
struct ChunkFrame {
  std::string before, after;
};

struct AnswerStyle {
  bool chat = false;
  int32_t logprobs = -1;         // as SamplingParams::logprobs
  bool usage_in_chunks = false;  // stream_options.include_usage: "usage": null in every chunk but the last
  ChunkFrame frame;
};

class AnswerWriter {
 public:
  // `id` with its prefix ("chatcmpl-..."); `created` in Unix seconds. `engine` gives the bytes of tokens and outlives
  // this.
  AnswerWriter(const Engine& engine, AnswerStyle style, std::string id, int64_t created, std::string fingerprint);

  const std::string& id() const { return id_; }

  // --- Streaming: whole chunks in their frames, appended ---
  void AppendRole(std::string* out, int32_t index) const;
  // `text_offset`: code points of this choice's text before this delta; advanced by the delta's tokens. `usage` may be
  // null.
  void AppendDelta(std::string* out, int32_t index, const TokenDelta& delta, int64_t* text_offset,
                   const Usage* usage) const;
  // Completions with echo: the prompt as the first chunk of a choice.
  void AppendEcho(std::string* out, int32_t index, std::string_view text,
                  const std::vector<std::vector<TokenLogprob>>& rows, int64_t* text_offset) const;
  // A chunk without choices. Without usage that is null; `schedule` is a JSON object, or empty.
  void AppendLast(std::string* out, const Usage* usage, std::string_view schedule) const;

  // --- Whole ---
  // `text_offset`: where the generated text begins when echo put the prompt before it (prompt rows included in the
  // choice). `schedule`: a JSON object, or empty.
  std::string Whole(const std::vector<ChoiceText>& choices, const Usage& usage, std::string_view schedule = {}) const;

 private:
  void OpenChunk(std::string* out, int32_t index) const;
  void CloseChunk(std::string* out, const Usage* usage) const;
  void AppendFinish(std::string* out, FinishReason finish, std::string_view stop_string) const;
  void AppendLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows, int64_t* text_offset) const;
  void AppendChatLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows) const;

  const Engine& engine_;
  const AnswerStyle style_;
  const std::string id_;
  std::string chunk_head_, whole_head_;
};

std::string ModelsText(const ModelInfo& model, int64_t created);
std::string ModelText(const ModelInfo& model, int64_t created);
std::string TokenizeText(const Engine& engine, const std::vector<TokenId>& tokens, bool with_strings);
std::string DetokenizeText(const std::string& text);

}  // namespace tactus::api
