// Parts that the translations of /v1/responses and /v1/messages share. Internal to api/.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "api/fields/field_names.h"
#include "api/fields/fields.h"
#include "base/json.h"

namespace tactus::api {

void CopyShared(const Json& body, Json* chat);
Status CheckList(const Json& list, const std::string& name, size_t max);
// The `type` of an item. `without`: the type of an item that states none; empty: a type is required.
Result<std::string> TypeOf(const Json& item, const std::string& name, std::string_view without = {});
Status NotTaken(const std::string& type, const std::string& name, std::string_view taken);

// The messages of a chat, translated one by one, each with the name of its source field.
class MessageList {
 public:
  explicit MessageList(FieldNames* names) : names_(names) {}

  void Add(Json message, const std::string& name);
  // Adds a call to the last message if that is the assistant's, else to a new one.
  void AddCall(Json id, Json function, Json arguments, const std::string& name, const std::string& arguments_name);
  // `own`: begins a new message if the last one already has text and no tool calls.
  void AddReasoning(const std::string& text, const std::string& name, bool own);
  // Keeps reasoning in only the last `turns` assistant turns that have reasoning.
  void KeepReasoning(int64_t turns);
  void AddAssistantText(const std::string& text, const std::string& name, bool own);
  bool ends_with_assistant() const { return !list_.empty() && list_.back()["role"] == "assistant"; }
  Json Take() && { return std::move(list_); }

 private:
  Json& Assistant(const std::string& name);

  FieldNames* names_;
  Json list_ = Json::array();
};

}  // namespace tactus::api
