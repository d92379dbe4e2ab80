// Writes the answer of /v1/responses: its object or its events, each with a number. One choice.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_writer.h"

namespace tactus::api {

struct ResponsesForm {
  std::string id;       // "resp_..."
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::string echo;  // members that repeat the request, from EchoOfResponses
};

class ResponsesWriter final : public AnswerWriter {
 public:
  explicit ResponsesWriter(ResponsesForm form) : form_(std::move(form)) {}

  const std::string& id() const override { return form_.id; }
  void AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo, const AnswerUsage& usage) override;
  void AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta, const AnswerUsage& usage) override;
  void AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) override;
  void AppendError(std::string* out, const Status& status) override;
  std::string Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                    std::string_view schedule) override;

 private:
  // An item of the output: a message, reasoning, or a call.
  struct Item {
    AnswerPart::Kind kind = AnswerPart::Kind::kText;  // kCallBegin for a call
    std::string id, name, call_id;
    std::string text;  // or the call's arguments
  };
  enum class ItemStatus { kInProgress, kCompleted, kIncomplete };

  void Take(const AnswerPart& part, std::string* out);
  void Open(const AnswerPart& part, std::string* out);
  void Close(ItemStatus status, std::string* out);
  void AppendItem(std::string* out, const Item& item, ItemStatus status) const;
  void AppendContentPart(std::string* out, const Item& item) const;
  void AppendPlace(std::string* out) const;  // item_id, output_index
  void OpenEvent(std::string* out, std::string_view type);
  void CloseEvent(std::string* out) const;
  void AppendResponse(std::string* out, std::string_view status, const AnswerUsage* usage, std::string_view error,
                      std::string_view schedule) const;
  const char* EndStatus() const { return finish_ == FinishReason::kLength ? "incomplete" : "completed"; }

  const ResponsesForm form_;
  std::vector<Item> items_;
  bool streams_ = false;  // events are written
  bool open_ = false;     // the last item is being written
  bool begun_ = false;
  FinishReason finish_ = FinishReason::kNone;
  bool cut_ = false;      // the last item is incomplete
  int64_t sequence_ = 0;  // of the next event
};

// The event of an error before or instead of a response, framed; `sequence`: its number.
std::string ResponsesErrorText(int http_status, std::string_view message, std::string_view param, int64_t sequence);

}  // namespace tactus::api
