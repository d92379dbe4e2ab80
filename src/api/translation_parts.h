// What the two translations share. Internal to api/.
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
// The `type` of an item; `without`: of one that says none, empty where it must.
Result<std::string> TypeOf(const Json& item, const std::string& name, std::string_view without = {});
Status NotTaken(const std::string& type, const std::string& name, std::string_view taken);

// The messages of a chat as they are translated one by one, each with the name of what it was made of.
class MessageList {
 public:
  explicit MessageList(FieldNames* names) : names_(names) {}

  void Add(Json message, const std::string& name);
  // To the assistant's turn: a message of it that is the last one, or a new one.
  void AddCall(Json id, Json function, Json arguments, const std::string& name, const std::string& arguments_name);
  // `own`: a message that has text already is another one, unless it has called tools.
  void AddReasoning(const std::string& text, const std::string& name, bool own);
  // Only the last `turns` of the assistant's turns that have reasoning keep it.
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
