// Writes the answer of Anthropic's /v1/messages: its object or its events. One choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_writer.h"

namespace tactus::api {

class MessagesWriter final : public AnswerWriter {
 public:
  // `id` with its prefix: "msg_...".
  MessagesWriter(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  const std::string& id() const override { return id_; }
  void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const AnswerUsage& usage) override;
  void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const AnswerUsage& usage) override;
  void AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) override;
  void AppendError(std::string* out, const Status& status) override;
  std::string Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                    std::string_view schedule) override;

 private:
  void Open(const AnswerPart& part, std::string* out);
  void Close(std::string* out);
  void AppendHead(std::string* out) const;  // the object's members before its content
  void AppendStop(std::string* out) const;

  const std::string id_, model_;
  // State of the stream: the block that is being written. Calls are blocks from their kCallBegin on.
  bool open_ = false;
  AnswerPart::Kind kind_ = AnswerPart::Kind::kText;
  int32_t blocks_ = 0;  // blocks that have begun
  FinishReason finish_ = FinishReason::kNone;
  bool called_ = false;
  std::string stop_string_;
};

// The error object of that API: {"type": "error", "error": {"type", "message"}}.
std::string MessagesErrorText(int http_status, std::string_view message, std::string_view param);

}  // namespace tactus::api
