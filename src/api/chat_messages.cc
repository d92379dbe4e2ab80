// The chat half of a body: messages and what else a chat template may read, checked and written back as the JSON that
// the template gets. Roles and their extra fields (name, tool_calls, tool_call_id) pass through; content becomes one
// string; a call's arguments become what the template takes.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

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

// The arguments of the calls in an assistant's message as objects, as templates take them, or as text.
Status ReadCalls(const std::string& where, bool arguments_as_text, Json* calls) {
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    if (!call.is_object()) {
      const std::string name = fmt::format("{}[{}]", where, i);
      return InvalidArgument(fmt::format("{}: expected an object, got {}", name, TypeName(call)), name);
    }
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end()) continue;
    const std::string name = fmt::format("{}[{}].function.arguments", where, i);
    if (arguments->is_null() || (arguments->is_string() && arguments->get_ref<const std::string&>().empty()))
      *arguments = Json::object();
    if (arguments->is_string()) {
      auto read = ParseJson(arguments->get_ref<const std::string&>());
      if (!read.ok() || !read->is_object()) return InvalidArgument(fmt::format("{}: no JSON object", name), name);
      if (!arguments_as_text) *arguments = std::move(read).value();
    } else if (!arguments->is_object()) {
      return InvalidArgument(
          fmt::format("{}: expected a string of JSON or an object, got {}", name, TypeName(*arguments)), name);
    } else if (arguments_as_text) {
      *arguments = arguments->dump();
    }
  }
  return Status();
}

// --- Tools for a model whose template knows none ---

std::string_view TextField(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? std::string_view(it->get_ref<const std::string&>())
                                               : std::string_view();
}

// Calls in the history as the model was told to write them, and results as the user's words.
void WriteCallsAsText(Json* messages) {
  std::map<std::string, std::string, std::less<>> names;  // of calls by their ids
  for (Json& message : *messages) {
    if (message["role"] == "tool") {
      std::string name(TextField(message, "name"));
      if (const auto it = names.find(TextField(message, "tool_call_id")); name.empty() && it != names.end())
        name = it->second;
      const std::string content(TextField(message, "content"));
      message = Json{{"role", "user"}, {"content", fmt::format("Result of {}:\n{}", name, content)}};
      continue;
    }
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array() || calls->empty()) continue;
    std::string text(TextField(message, "content"));
    for (const Json& call : *calls) {
      const auto function = call.find("function");
      if (function == call.end() || !function->is_object()) continue;
      const auto arguments = function->find("arguments");
      const std::string name(TextField(*function, "name"));
      names.emplace(TextField(call, "id"), name);
      const Json written = {{"name", name}, {"arguments", arguments == function->end() ? Json::object() : *arguments}};
      if (!text.empty()) text += '\n';
      text += written.dump();
    }
    message["content"] = text;
    message.erase("tool_calls");
  }
}

// The tools, in a message of their own or at the end of the first one.
void TellTools(const Json& tools, bool as_system, Json* messages) {
  std::string text = "You can call these tools:\n";
  for (const Json& tool : tools) text += tool["function"].dump() + "\n";
  text +=
      "To call one, answer with nothing but a JSON object {\"name\": ..., \"arguments\": {...}}; for several calls, "
      "one "
      "object on each line. If no tool is needed, answer in words.";
  Json& first = (*messages)[0];
  const char* role = as_system ? "system" : "user";
  if (first["role"] == role && first["content"].is_string())
    first["content"] = as_system ? first["content"].get<std::string>() + "\n\n" + text
                                 : text + "\n\n" + first["content"].get<std::string>();
  else
    messages->insert(messages->begin(), Json{{"role", role}, {"content", text}});
}

Status ReadMessage(const Json& message, const std::string& where, bool arguments_as_text, Json* out) {
  if (!message.is_object())
    return InvalidArgument(fmt::format("{}: expected an object, got {}", where, TypeName(message)), where);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || !KnownRole(role->get_ref<const std::string&>())) {
    return InvalidArgument(fmt::format("{}.role: {} is none of system, developer, user, assistant, tool", where,
                                       role == message.end() ? "nothing" : Shown(*role)),
                           where + ".role");
  }
  // Of other servers; templates know none of them.
  for (const char* goes_on : {"prefix", "partial"}) {
    if (const auto asked = message.find(goes_on); asked != message.end() && *asked == true) {
      const std::string name = fmt::format("{}.{}", where, goes_on);
      return Unimplemented(name +
                               ": an answer that goes on from the assistant's last message is not supported; give "
                               "the text to /v1/completions, or leave it out",
                           name);
    }
  }
  if (const auto images = message.find("images"); images != message.end() && !images->is_null() && !images->empty()) {
    return Unimplemented(where + ".images: images are not supported; leave them out", where + ".images");
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
  if (has_calls) TACTUS_RETURN_IF_ERROR(ReadCalls(where + ".tool_calls", arguments_as_text, &(*out)["tool_calls"]));
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

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

// Templates know it by one of three names; chat_template_kwargs say it more exactly.
void ReadEffort(Fields* fields, Json* variables) {
  const auto effort = fields->String("reasoning_effort", kMaxNameBytes);
  if (!effort) return;
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    return fields->Fail(
        InvalidArgument(fmt::format("reasoning_effort: '{}' is none of none, minimal, low, medium, high, xhigh, max",
                                    effort->substr(0, 60)),
                        "reasoning_effort"));
  }
  const bool thinks = *effort != "none";
  if (thinks) (*variables)["reasoning_effort"] = *effort;
  (*variables)["enable_thinking"] = thinks;
  (*variables)["thinking"] = thinks;
}

// As Anthropic's API has it, and servers of models that think.
void ReadThinking(Fields* fields, Json* variables) {
  const Json* thinking = fields->Find("thinking");
  if (thinking == nullptr) return;
  const auto type = thinking->is_object() ? thinking->find("type") : thinking->end();
  const bool enabled = type != thinking->end() && *type == "enabled";
  if (!thinking->is_object() || type == thinking->end() || (!enabled && *type != "disabled" && *type != "adaptive")) {
    return fields->Fail(
        InvalidArgument("thinking: give {\"type\": ...} with \"enabled\", \"disabled\" or \"adaptive\"", "thinking"));
  }
  if (*type == "adaptive") return;
  (*variables)["enable_thinking"] = enabled;
  (*variables)["thinking"] = enabled;
}

}  // namespace

std::string ReadChatVariables(Fields* fields, const ChatStyle& style, const ToolSet* tools) {
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
    Status status = ReadMessage((*messages)[i], fmt::format("messages[{}]", i), style.arguments_as_text, &list.back());
    if (!status.ok()) {
      fields->Fail(std::move(status));
      return {};
    }
  }
  if (!style.template_knows_tools) WriteCallsAsText(&list);
  if (tools != nullptr && style.template_knows_tools)
    variables["tools"] = *fields->Find("tools");
  else if (tools != nullptr)
    TellTools(*fields->Find("tools"), style.template_knows_system, &list);
  if (const Json* documents = fields->Find("documents")) {
    if (documents->is_array())
      variables["documents"] = *documents;
    else
      fields->FailType("documents", "a list", *documents);
  }
  variables["add_generation_prompt"] = fields->Boolean("add_generation_prompt").value_or(true);
  ReadEffort(fields, &variables);
  ReadThinking(fields, &variables);
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
      if (key == "reasoning_effort" || key == "enable_thinking" || key == "thinking") variables.erase(key);
      variables.get_ref<Json::object_t&>().emplace_back(key, value);  // keys are unique already
    }
  }
  return variables.dump();
}

}  // namespace tactus::api
