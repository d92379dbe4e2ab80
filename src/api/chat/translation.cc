#include "api/chat/translation.h"

namespace tactus::api {
namespace {

// Sampling, this server's stop fields, vLLM's structured output, service: neither API has fields of these names.
constexpr std::string_view kShared[] = {"model",
                                        "temperature",
                                        "top_p",
                                        "stream",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "seed",
                                        "stop_token_ids",
                                        "ignore_eos",
                                        "min_tokens",
                                        "priority",
                                        "slo",
                                        "ttft_slo_ms",
                                        "tpot_slo_ms",
                                        "ttlt_slo_ms",
                                        "cache_salt",
                                        "chat_template_kwargs",
                                        "structured_outputs",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_json_object",
                                        "json_schema",
                                        "regex"};

}  // namespace

std::span<const std::string_view> SharedFields() {
  return kShared;
}

void CopyShared(const Json& body, Json* chat) {
  for (const auto& [key, value] : body.get_ref<const Json::object_t&>()) {
    for (const std::string_view shared : kShared) {
      if (key == shared) (*chat)[key] = value;
    }
  }
}

Status CheckList(const Json& list, const std::string& name, size_t max) {
  if (!list.is_array()) {
    return InvalidArgument(fmt::format("{}: expected a list, got {} ({})", name, TypeName(list), Shown(list)), name);
  }
  if (list.size() > max)
    return InvalidArgument(fmt::format("{}: {} of them are more than {}, the limit", name, list.size(), max), name);
  return Status();
}

Result<std::string> TypeOf(const Json& item, const std::string& name, std::string_view without) {
  if (!item.is_object())
    return InvalidArgument(fmt::format("{}: expected an object, got {}", name, TypeName(item)), name);
  const auto type = item.find("type");
  if (type == item.end() || type->is_null()) {
    if (!without.empty()) return std::string(without);
    return InvalidArgument(fmt::format("{}.type: missing", name), name + ".type");
  }
  if (!type->is_string()) {
    return InvalidArgument(fmt::format("{}.type: expected a string, got {}", name, TypeName(*type)), name + ".type");
  }
  return type->get<std::string>();
}

Status NotTaken(const std::string& type, const std::string& name, std::string_view taken) {
  return Unimplemented(fmt::format("{}: type {} is not supported; there is {}", name, Shown(Json(type)), taken), name);
}

void MessageList::Add(Json message, const std::string& name) {
  names_->Add(fmt::format("messages[{}]", list_.size()), name);
  list_.push_back(std::move(message));
}

Json& MessageList::Assistant(const std::string& name) {
  if (!ends_with_assistant()) Add({{"role", "assistant"}, {"content", nullptr}}, name);
  return list_.back();
}

void MessageList::AddCall(Json id, Json function, Json arguments, const std::string& name,
                          const std::string& arguments_name) {
  Json& message = Assistant(name);
  Json& calls = message["tool_calls"];
  // Only a call's arguments can still be refused later, so only they need a name.
  names_->Add(fmt::format("messages[{}].tool_calls[{}].function.arguments", list_.size() - 1, calls.size()),
              arguments_name);
  calls.push_back({{"id", std::move(id)},
                   {"type", "function"},
                   {"function", {{"name", std::move(function)}, {"arguments", std::move(arguments)}}}});
}

void MessageList::AddAssistantText(const std::string& text, const std::string& name, bool own) {
  // Text after a call and before its result belongs to the same answer.
  const bool another =
      ends_with_assistant() && own && !list_.back().contains("tool_calls") && list_.back()["content"].is_string();
  if (another) return Add({{"role", "assistant"}, {"content", text}}, name);
  Json& content = Assistant(name)["content"];
  if (content.is_string())
    content.get_ref<std::string&>().append("\n").append(text);
  else
    content = text;
}

void MessageList::AddReasoning(const std::string& text, const std::string& name, bool own) {
  if (text.empty()) return;
  const bool another =
      ends_with_assistant() && own && !list_.back().contains("tool_calls") && list_.back()["content"].is_string();
  if (another) Add({{"role", "assistant"}, {"content", nullptr}}, name);
  Json& reasoning = Assistant(name)["reasoning_content"];
  if (reasoning.is_string())
    reasoning.get_ref<std::string&>() += text;
  else
    reasoning = text;
}

void MessageList::KeepReasoning(int64_t turns) {
  auto& messages = list_.get_ref<Json::array_t&>();
  bool counted = false;  // this turn was counted; a turn reaches back to the previous user message
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if ((*message)["role"] == "user") counted = false;
    if (!message->contains("reasoning_content")) continue;
    if (!counted) --turns;
    counted = true;
    if (turns < 0) message->erase("reasoning_content");
  }
}

}  // namespace tactus::api
