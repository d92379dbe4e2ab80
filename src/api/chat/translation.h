// Parts of the translations of /v1/responses and /v1/messages into the equivalent body of a chat. The parser of chats
// (api/request_parser.h) checks the values, in one place for all APIs; a translation maps names and shapes. Internal to
// api/. Any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/fields/field_names.h"
#include "api/fields/fields.h"
#include "api/tools/tools.h"
#include "base/json.h"
#include "tactus/status.h"

namespace tactus::api {

struct Translation {
  Json chat;         // the body of a chat
  FieldNames names;  // original names of its fields
  ToolLimits tools;
  std::vector<std::string> ignored;  // parts of the body that were left out, as ParsedRequest::ignored

  // Sets a field of the chat from the field `name` of the body.
  void Set(const char* field, const std::string& name, Json value) {
    chat[field] = std::move(value);
    names.Add(field, name);
  }
};

// Fields that mean the same in all APIs and keep their names.
std::span<const std::string_view> SharedFields();
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
