// The chat half of a body: messages and what else a chat template may read, checked and written back as the JSON that
// the template gets. Roles and their extra fields (name, tool_calls, tool_call_id) pass through; content becomes one
// string.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "api/request_fields.h"

namespace tactus::api {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

bool KnownRole(std::string_view role) {
  for (const auto known : kRoles) {
    if (role == known) return true;
  }
  return false;
}

// A list of text parts is one text, joined by newlines.
Status JoinParts(const Json& parts, const std::string& where, Json* content) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string name = fmt::format("{}[{}]", where, i);
    if (part.is_string()) {
      text += (i > 0 ? "\n" : "") + part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      return InvalidArgument(fmt::format("{}: expected an object with a type, got {}", name, TypeName(part)), name);
    }
    if (*type != "text") {
      return Unimplemented(fmt::format("{}: parts of type {} are not supported yet; only text", name, Shown(*type)),
                           name);
    }
    const auto value = part.find("text");
    if (value == part.end() || !value->is_string())
      return InvalidArgument(fmt::format("{}.text: expected a string", name), name + ".text");
    text += (i > 0 ? "\n" : "") + value->get_ref<const std::string&>();
  }
  *content = std::move(text);
  return Status();
}

Status ReadMessage(const Json& message, const std::string& where, Json* out) {
  if (!message.is_object())
    return InvalidArgument(fmt::format("{}: expected an object, got {}", where, TypeName(message)), where);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || !KnownRole(role->get_ref<const std::string&>())) {
    return InvalidArgument(fmt::format("{}.role: {} is none of system, developer, user, assistant, tool", where,
                                       role == message.end() ? "nothing" : Shown(*role)),
                           where + ".role");
  }
  *out = message;
  // Templates know "system"; "developer" is its newer name.
  if (*role == "developer") (*out)["role"] = "system";
  const auto content = message.find("content");
  const bool missing = content == message.end() || content->is_null();
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null();
  if (has_calls && !calls->is_array()) {
    return InvalidArgument(fmt::format("{}.tool_calls: expected a list, got {}", where, TypeName(*calls)),
                           where + ".tool_calls");
  }
  if (missing) {
    if (*role == "assistant" && has_calls) return Status();
    return InvalidArgument(fmt::format("{}.content: missing", where), where + ".content");
  }
  if (content->is_string()) return Status();
  if (content->is_array()) return JoinParts(*content, where + ".content", &(*out)["content"]);
  return InvalidArgument(
      fmt::format("{}.content: expected a string or a list of text parts, got {}", where, TypeName(*content)),
      where + ".content");
}

}  // namespace

std::string ReadChatVariables(Fields* fields) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr) {
    fields->Fail(InvalidArgument("messages: missing", "messages"));
    return {};
  }
  if (!messages->is_array() || messages->empty() || messages->size() > kMaxMessages) {
    if (!messages->is_array())
      fields->FailType("messages", "a list", *messages);
    else
      fields->Fail(InvalidArgument(fmt::format("messages: {} of them; give 1 to {}", messages->size(), kMaxMessages),
                                   "messages"));
    return {};
  }
  Json variables = Json::object();
  Json& list = variables["messages"] = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    list.emplace_back();
    Status status = ReadMessage((*messages)[i], fmt::format("messages[{}]", i), &list.back());
    if (!status.ok()) {
      fields->Fail(std::move(status));
      return {};
    }
  }
  if (const Json* documents = fields->Find("documents")) {
    if (documents->is_array())
      variables["documents"] = *documents;
    else
      fields->FailType("documents", "a list", *documents);
  }
  variables["add_generation_prompt"] = fields->Boolean("add_generation_prompt").value_or(true);
  if (const Json* extra = fields->Find("chat_template_kwargs")) {
    if (!extra->is_object()) {
      fields->FailType("chat_template_kwargs", "an object", *extra);
      return {};
    }
    for (const auto& [key, value] : extra->get_ref<const Json::object_t&>()) {
      if (key == "messages" || key == "tools" || key == "documents" || key == "add_generation_prompt") {
        fields->Fail(InvalidArgument(fmt::format("chat_template_kwargs.{}: give it as a field of the request", key),
                                     "chat_template_kwargs." + key));
        return {};
      }
      variables.get_ref<Json::object_t&>().emplace_back(key, value);  // keys are unique already
    }
  }
  return variables.dump();
}

}  // namespace tactus::api
