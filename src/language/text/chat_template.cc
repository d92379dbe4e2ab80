#include "language/text/chat_template.h"

#include "base/json.h"
#include "language/text/jinja/template.h"

namespace tactus::language {
namespace {

// Field names in which clients send the model's reasoning, the standard one first.
constexpr const char* kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};

const Json* Reasoning(const Json& message) {
  if (!message.is_object()) return nullptr;
  for (const char* field : kReasoningFields) {
    const auto it = message.find(field);
    if (it != message.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

// As in transformers: under whatever name, templates find it as reasoning_content and as thinking.
Json AliasReasoning(const Json& messages) {
  Json out = Json::array();
  for (const Json& message : messages) {
    const Json* reasoning = Reasoning(message);
    if (reasoning == nullptr) {
      out.push_back(message);
      continue;
    }
    // Appended, each key once: operator[] would search all keys first.
    Json aliased = Json::object();
    auto& fields = aliased.get_ref<Json::object_t&>();
    const auto thinking = message.find("thinking");
    fields.emplace_back("thinking", thinking != message.end() ? *thinking : *reasoning);
    for (const auto& [key, value] : message.get_ref<const Json::object_t&>()) {
      if (key != "thinking") fields.emplace_back(key, key == "reasoning_content" ? *reasoning : value);
    }
    if (!message.contains("reasoning_content")) fields.emplace_back("reasoning_content", *reasoning);
    out.push_back(std::move(aliased));
  }
  return out;
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  JinjaChatTemplate(std::unique_ptr<jinja::Template> source, int64_t fixed_now_s) : template_(std::move(source)) {
    options_.now_s = fixed_now_s;
  }

  Result<std::string> Render(const Json& variables, StopToken stop) const override {
    jinja::RenderOptions options = options_;
    options.stop = stop;
    if (!variables.is_object()) return InvalidArgument("chat template: its variables must be an object");
    const auto messages = variables.find("messages");
    bool alias = false;
    if (messages != variables.end() && messages->is_array()) {
      for (const Json& message : *messages) alias = alias || Reasoning(message) != nullptr;
    }
    const bool complete =
        variables.contains("tools") && variables.contains("documents") && variables.contains("add_generation_prompt");
    if (!alias && complete) return template_->Render(variables, options);
    Json full = variables;
    full.emplace("tools", nullptr);  // always present, as apply_chat_template passes them
    full.emplace("documents", nullptr);
    full.emplace("add_generation_prompt", false);
    if (alias) full["messages"] = AliasReasoning(*messages);
    return template_->Render(full, options);
  }

 private:
  std::unique_ptr<jinja::Template> template_;
  jinja::RenderOptions options_;
};

class ChoosingChatTemplate final : public ChatTemplate {
 public:
  ChoosingChatTemplate(std::unique_ptr<ChatTemplate> plain, std::unique_ptr<ChatTemplate> tool_use)
      : plain_(std::move(plain)), tool_use_(std::move(tool_use)) {}

  Result<std::string> Render(const Json& variables, StopToken stop) const override {
    const auto tools = variables.is_object() ? variables.find("tools") : variables.end();
    const bool has_tools = variables.is_object() && tools != variables.end() && !tools->is_null();
    if (has_tools && tool_use_ != nullptr) return tool_use_->Render(variables, stop);
    if (plain_ != nullptr) return plain_->Render(variables, stop);
    return InvalidArgument(
        "none of the model's chat templates is named \"default\", for chats without tools; pass tools, or start with "
        "--chat-template FILE",
        "messages");
  }

 private:
  std::unique_ptr<ChatTemplate> plain_, tool_use_;
};

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::Choosing(std::unique_ptr<ChatTemplate> plain,
                                                     std::unique_ptr<ChatTemplate> tool_use) {
  return std::make_unique<ChoosingChatTemplate>(std::move(plain), std::move(tool_use));
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(std::string_view source, int64_t fixed_now_s) {
  TACTUS_ASSIGN_OR_RETURN(auto compiled, jinja::Template::Compile(source));
  return std::unique_ptr<ChatTemplate>(std::make_unique<JinjaChatTemplate>(std::move(compiled), fixed_now_s));
}

}  // namespace tactus::language
