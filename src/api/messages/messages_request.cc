// Translates requests of Anthropic's /v1/messages: blocks become messages, the rest gets the names of chat fields.
#include "api/messages/messages_request.h"

#include <limits>

#include "api/chat/history.h"
#include "api/chat/request_fields.h"

namespace tactus::api {
namespace {

constexpr int64_t kLeastBudgetTokens = 1024;  // as in the API

class MessagesTranslator {
 public:
  MessagesTranslator(const Json& body, bool counting)
      : body_(body), counting_(counting), fields_(body), messages_(&out_.names) {}

  Result<Translation> Run() {
    out_.chat = Json::object();
    out_.tools = kMessagesTools;
    CopyShared(body_, &out_.chat);
    TACTUS_RETURN_IF_ERROR(ReadSystem());
    TACTUS_RETURN_IF_ERROR(ReadMessages());
    TACTUS_RETURN_IF_ERROR(ReadContextManagement());
    out_.chat["messages"] = std::move(messages_).Take();
    TACTUS_RETURN_IF_ERROR(ReadTools());
    TACTUS_RETURN_IF_ERROR(ReadChoice());
    TACTUS_RETURN_IF_ERROR(ReadThinking());
    TACTUS_RETURN_IF_ERROR(ReadOutputConfig());
    ReadRest();
    if (!fields_.ok()) return fields_.status();
    return std::move(out_);
  }

 private:
  Status ReadSystem() {
    const Json* system = fields_.Find("system");
    if (system == nullptr) return Status();
    TACTUS_ASSIGN_OR_RETURN(std::string text, TextOfBlocks(*system, "system"));
    messages_.Add({{"role", "system"}, {"content", std::move(text)}}, "system");
    return Status();
  }

  // The text of a text block.
  Result<std::string> TextOfBlock(const Json& block, const std::string& name, const char* member = "text") {
    Fields fields(block, name + ".");
    auto text = fields.String(member, std::numeric_limits<size_t>::max());
    if (!fields.ok()) return fields.status();
    if (!text) return InvalidArgument(fmt::format("{}.{}: missing", name, member), fmt::format("{}.{}", name, member));
    return std::move(*text);
  }

  // Limits the blocks of the body: a translated block needs far more memory than its text.
  Status CountBlocks(const Json& content, const std::string& name) {
    blocks_ += content.size();
    if (blocks_ <= kMaxMessages) return Status();
    return InvalidArgument(fmt::format("{}: the body has more than {} blocks, the limit", name, kMaxMessages), name);
  }

  // The text of a string or of a list of text blocks.
  Result<std::string> TextOfBlocks(const Json& content, const std::string& name) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) {
      return InvalidArgument(
          fmt::format("{}: expected a string or a list of blocks of text, got {}", name, TypeName(content)), name);
    }
    TACTUS_RETURN_IF_ERROR(CountBlocks(content, name));
    std::string text;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string block = fmt::format("{}[{}]", name, i);
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(content[i], block));
      if (type != "text") return NotTaken(type, block, "text");
      TACTUS_ASSIGN_OR_RETURN(const std::string more, TextOfBlock(content[i], block));
      if (i > 0) text += '\n';
      text += more;
    }
    return text;
  }

  Status ReadMessages() {
    const Json* messages = fields_.Find("messages");
    if (messages == nullptr) return InvalidArgument("messages: missing; give a list of messages", "messages");
    TACTUS_RETURN_IF_ERROR(CheckList(*messages, "messages", kMaxMessages));
    if (messages->empty()) return InvalidArgument("messages: none; give at least one", "messages");
    for (size_t i = 0; i < messages->size(); ++i)
      TACTUS_RETURN_IF_ERROR(ReadMessage((*messages)[i], fmt::format("messages[{}]", i)));
    if (messages_.ends_with_assistant()) {
      const std::string last = fmt::format("messages[{}]", messages->size() - 1);
      return Unimplemented(last +
                               ": continuing the assistant's last message is not supported; end "
                               "with a message of the user",
                           last);
    }
    return Status();
  }

  Status ReadMessage(const Json& message, const std::string& name) {
    if (!message.is_object())
      return InvalidArgument(fmt::format("{}: expected an object, got {}", name, TypeName(message)), name);
    Fields fields(message, name + ".");
    const auto role = fields.String("role", kMaxNameBytes);
    if (!fields.ok()) return fields.status();
    if (!role || (*role != "user" && *role != "assistant" && *role != "system")) {
      return InvalidArgument(
          fmt::format("{}.role: {} is none of user, assistant, system", name, role ? Shown(Json(*role)) : "nothing"),
          name + ".role");
    }
    const Json* content = fields.Find("content");
    const std::string content_name = name + ".content";
    if (content == nullptr && *role == "assistant") {  // an assistant message without text
      messages_.Add({{"role", *role}}, name);
      return Status();
    }
    if (content == nullptr) return InvalidArgument(content_name + ": missing", content_name);
    if (*role == "system") {
      TACTUS_ASSIGN_OR_RETURN(std::string text, TextOfBlocks(*content, content_name));
      messages_.Add({{"role", "system"}, {"content", std::move(text)}}, name);
      return Status();
    }
    const bool assistant = *role == "assistant";
    if (content->is_string()) {
      messages_.Add({{"role", *role}, {"content", *content}}, name);
      return Status();
    }
    if (!content->is_array()) {
      return InvalidArgument(
          fmt::format("{}: expected a string or a list of blocks, got {}", content_name, TypeName(*content)),
          content_name);
    }
    TACTUS_RETURN_IF_ERROR(CountBlocks(*content, content_name));
    // Begins a new turn even after another assistant turn.
    if (assistant) messages_.Add({{"role", "assistant"}, {"content", nullptr}}, name);
    std::string text;
    bool has_text = false;
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string block = fmt::format("{}[{}]", content_name, i);
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf((*content)[i], block));
      if (type == "text") {
        TACTUS_ASSIGN_OR_RETURN(const std::string more, TextOfBlock((*content)[i], block));
        if (has_text) text += '\n';
        text += more;
        has_text = true;
      } else if (assistant) {
        TACTUS_RETURN_IF_ERROR(ReadAssistantBlock((*content)[i], type, block));
      } else if (type == "tool_result") {
        // The user's text is added after the results, as templates expect.
        TACTUS_RETURN_IF_ERROR(ReadResult((*content)[i], block));
      } else {
        return NotTaken(type, block, "text and tool_result");
      }
    }
    if (assistant && has_text) messages_.AddAssistantText(text, name, false);
    const bool only_results = !content->empty() && !has_text;
    if (!assistant && !only_results) messages_.Add({{"role", "user"}, {"content", std::move(text)}}, name);
    return Status();
  }

  Status ReadAssistantBlock(const Json& block, const std::string& type, const std::string& name) {
    if (type == "tool_use") {
      Fields fields(block, name + ".");
      for (const char* needed : {"id", "name"}) {
        if (!fields.String(needed, kMaxNameBytes) && fields.ok())
          fields.Fail(InvalidArgument(fmt::format("{}.{}: missing", name, needed), fmt::format("{}.{}", name, needed)));
      }
      const Json* input = fields.Find("input");
      if (input != nullptr && !input->is_object()) fields.FailType("input", "an object", *input);
      if (!fields.ok()) return fields.status();
      messages_.AddCall(block["id"], block["name"], ArgumentsOf(input), name, name + ".input");
      return Status();
    }
    if (type == "thinking") {
      TACTUS_ASSIGN_OR_RETURN(const std::string text, TextOfBlock(block, name, "thinking"));
      messages_.AddReasoning(text, name, false);
      return Status();
    }
    if (type == "redacted_thinking") return Status();  // encrypted by another server, has no text
    return NotTaken(type, name, "text, tool_use and thinking");
  }

  // A call that was cut off has the beginning of its arguments under kIncompleteKey.
  static Json ArgumentsOf(const Json* input) {
    if (input == nullptr) return "{}";
    const auto cut = input->size() == 1 ? input->find(kIncompleteKey) : input->end();
    return cut != input->end() && cut->is_string() ? *cut : Json(input->dump());
  }

  // The text of a string or of a list of blocks. A block without text is replaced by its type: the model has requested
  // it, so the client can hardly leave it out.
  Result<std::string> TextOfResult(const Json& content, const std::string& name) {
    if (!content.is_array()) return TextOfBlocks(content, name);
    TACTUS_RETURN_IF_ERROR(CountBlocks(content, name));
    std::string text;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string block = fmt::format("{}[{}]", name, i);
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(content[i], block));
      if (i > 0) text += '\n';
      if (type == "text") {
        TACTUS_ASSIGN_OR_RETURN(const std::string more, TextOfBlock(content[i], block));
        text += more;
      } else if (type == "tool_reference") {  // a tool found by a search; it is in the request's tools
        TACTUS_ASSIGN_OR_RETURN(const std::string tool, TextOfBlock(content[i], block, "tool_name"));
        text += fmt::format("[tool: {}]", tool);
      } else if (type == "search_result") {
        for (const char* line : {"title", "source"}) {
          TACTUS_ASSIGN_OR_RETURN(const std::string more, TextOfBlock(content[i], block, line));
          text += more + '\n';
        }
        const auto found = content[i].find("content");
        if (found == content[i].end()) return InvalidArgument(block + ".content: missing", block + ".content");
        TACTUS_ASSIGN_OR_RETURN(const std::string more, TextOfBlocks(*found, block + ".content"));
        text += more;
      } else {
        text += NotShown(type);
      }
    }
    return text;
  }

  Status ReadResult(const Json& block, const std::string& name) {
    Fields fields(block, name + ".");
    const auto id = fields.String("tool_use_id", kMaxNameBytes);
    if (!id && fields.ok()) fields.Fail(InvalidArgument(name + ".tool_use_id: missing", name + ".tool_use_id"));
    (void)fields.Boolean("is_error");  // templates have no such field; the content shows it
    const Json* content = fields.Find("content");
    if (!fields.ok()) return fields.status();
    std::string text;
    if (content != nullptr) {
      TACTUS_ASSIGN_OR_RETURN(text, TextOfResult(*content, name + ".content"));
    }
    messages_.Add({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}}, name);
    return Status();
  }

  Status ReadTools() {
    const Json* tools = fields_.Find("tools");
    if (tools == nullptr) return Status();
    TACTUS_RETURN_IF_ERROR(CheckList(*tools, "tools", kMaxMessages));
    Json list = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string name = fmt::format("tools[{}]", i), chat = name + ".function";
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf((*tools)[i], name, "custom"));
      if (type != "custom") return NotTaken(type, name, "custom, which the client runs");
      Fields fields((*tools)[i], name + ".");
      const Json* schema = fields.Find("input_schema");
      if (schema == nullptr) return InvalidArgument(name + ".input_schema: missing", name + ".input_schema");
      Json function = {{"parameters", *schema}};
      for (const char* same : {"name", "description", "strict"}) {
        if (const Json* value = fields.Find(same)) function[same] = *value;
      }
      out_.names.Add(chat, name);
      out_.names.Add(chat + ".parameters", name + ".input_schema");
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    out_.chat["tools"] = std::move(list);
    return Status();
  }

  Status ReadChoice() {
    const Json* choice = fields_.Find("tool_choice");
    if (choice == nullptr) return Status();
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*choice, "tool_choice"));
    Fields fields(*choice, "tool_choice.");
    if (auto v = fields.Boolean("disable_parallel_tool_use"))
      out_.Set("parallel_tool_calls", "tool_choice.disable_parallel_tool_use", !*v);
    if (!fields.ok()) return fields.status();
    if (type == "auto" || type == "none") {
      out_.chat["tool_choice"] = type;
    } else if (type == "any") {
      if (!body_.contains("tools"))
        return InvalidArgument("tool_choice: \"any\" without tools; give tools", "tool_choice");
      out_.chat["tool_choice"] = "required";
    } else if (type == "tool") {
      const auto name = fields.String("name", kMaxNameBytes);
      if (!fields.ok()) return fields.status();
      if (!name) return InvalidArgument("tool_choice.name: missing; name one of the tools", "tool_choice.name");
      out_.chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
      out_.names.Add("tool_choice.function", "tool_choice");
    } else {
      return InvalidArgument(fmt::format("tool_choice.type: {} is none of auto, any, tool, none", Shown(Json(type))),
                             "tool_choice.type");
    }
    return Status();
  }

  // Context management removes parts of a long history. Removing reasoning is supported. Edits that depend on the
  // prompt's length (tool results, summaries) are reported as ignored, and the history stays whole.
  Status ReadContextManagement() {
    const Json* management = fields_.Find("context_management");
    if (management == nullptr) return Status();
    if (!management->is_object()) {
      fields_.FailType("context_management", "an object", *management);
      return fields_.status();
    }
    Fields fields(*management, "context_management.");
    const Json* edits = fields.Find("edits");
    if (edits == nullptr) return Status();
    const std::string list = "context_management.edits";
    TACTUS_RETURN_IF_ERROR(CheckList(*edits, list, kMaxMessages));
    for (size_t i = 0; i < edits->size(); ++i) {
      const std::string name = fmt::format("{}[{}]", list, i);
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf((*edits)[i], name));
      if (type == "clear_thinking_20251015")
        TACTUS_RETURN_IF_ERROR(ClearThinking((*edits)[i], name));
      else
        out_.ignored.push_back(fmt::format("{} ({})", name, type));
    }
    return Status();
  }

  Status ClearThinking(const Json& edit, const std::string& name) {
    constexpr int64_t kDefaultTurns = 1;  // as in the API
    const auto keep = edit.find("keep");
    if (keep != edit.end() && *keep == "all") return Status();
    int64_t turns = kDefaultTurns;
    if (keep != edit.end() && !keep->is_null()) {
      const std::string keep_name = name + ".keep";
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*keep, keep_name));
      if (type == "all") return Status();
      if (type != "thinking_turns") return NotTaken(type, keep_name, "all and thinking_turns");
      Fields fields(*keep, keep_name + ".");
      const auto value = fields.Integer("value", 1, std::numeric_limits<int64_t>::max());
      if (!fields.ok()) return fields.status();
      if (!value) return InvalidArgument(keep_name + ".value: missing", keep_name + ".value");
      turns = *value;
    }
    messages_.KeepReasoning(turns);
    return Status();
  }

  // Templates with optional reasoning read `enable_thinking` or `thinking`.
  Status ReadThinking() {
    const Json* thinking = fields_.Find("thinking");
    if (thinking == nullptr) return Status();
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*thinking, "thinking"));
    Fields fields(*thinking, "thinking.");
    (void)fields.Integer("budget_tokens", kLeastBudgetTokens, std::numeric_limits<int64_t>::max());
    if (!fields.ok()) return fields.status();
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return InvalidArgument(fmt::format("thinking.type: {} is none of enabled, disabled, adaptive", Shown(Json(type))),
                             "thinking.type");
    }
    Json& kwargs = out_.chat["chat_template_kwargs"];
    if (type == "adaptive" || (!kwargs.is_null() && !kwargs.is_object())) return Status();
    for (const char* name : {"enable_thinking", "thinking"}) kwargs[name] = type == "enabled";
    return Status();
  }

  Status ReadOutputConfig() {
    const Json* config = fields_.Find("output_config");
    if (config == nullptr) return Status();
    if (!config->is_object()) {
      fields_.FailType("output_config", "an object", *config);
      return fields_.status();
    }
    Fields fields(*config, "output_config.");
    if (const Json* effort = fields.Find("effort")) out_.Set("reasoning_effort", "output_config.effort", *effort);
    const Json* format = fields.Find("format");
    if (format == nullptr) return Status();
    const std::string name = "output_config.format";
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*format, name));
    if (type != "json_schema") return NotTaken(type, name, "json_schema");
    Json schema = {{"name", "answer"}, {"strict", true}};
    if (const auto given = format->find("schema"); given != format->end()) schema["schema"] = *given;
    out_.Set("response_format", name, {{"type", type}, {"json_schema", std::move(schema)}});
    out_.names.Add("response_format.json_schema", name);
    return Status();
  }

  void ReadRest() {
    if (auto v = fields_.Integer("max_tokens", 1, std::numeric_limits<int64_t>::max()))
      out_.chat["max_tokens"] = *v;
    else if (!counting_ && fields_.ok())
      fields_.Fail(InvalidArgument("max_tokens: missing; give the most tokens of the answer", "max_tokens"));
    if (const Json* stops = fields_.Find("stop_sequences")) {
      if (stops->is_array())
        out_.Set("stop", "stop_sequences", *stops);
      else
        fields_.FailType("stop_sequences", "a list of strings", *stops);
    }
    if (const Json* metadata = fields_.Find("metadata")) {
      if (!metadata->is_object()) return fields_.FailType("metadata", "an object", *metadata);
      Fields fields(*metadata, "metadata.");
      if (auto v = fields.String("user_id", kMaxNameBytes)) out_.Set("user", "metadata.user_id", *v);
      if (!fields.ok()) fields_.Fail(fields.status());
    }
    RefuseUnbuilt(&fields_);
    for (const char* name : {"container", "mcp_servers"}) fields_.Refuse(name);
    for (const auto& [name, here] :
         {std::pair("max_completion_tokens", "max_tokens"), std::pair("stop", "stop_sequences"),
          std::pair("response_format", "output_config.format"), std::pair("user", "metadata.user_id")}) {
      if (fields_.Has(name)) fields_.Fail(InvalidArgument(fmt::format("{}: here it is called {}", name, here), name));
    }
    if (fields_.Integer("n", 1, std::numeric_limits<int64_t>::max()).value_or(1) > 1)
      fields_.Refuse("n", "a message is one answer");
  }

  const Json& body_;
  const bool counting_;
  Fields fields_;
  Translation out_;
  MessageList messages_;
  size_t blocks_ = 0;  // in all contents so far
};

}  // namespace

Result<Translation> ChatOfMessages(const Json& body, bool counting) {
  return MessagesTranslator(body, counting).Run();
}

}  // namespace tactus::api
