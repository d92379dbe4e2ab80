// Translates requests of /v1/responses: input items become messages, the rest gets the names of chat fields.
#include "api/responses/responses_request.h"

#include <limits>

#include "api/chat/request_fields.h"

namespace tactus::api {
namespace {

constexpr size_t kMaxMetadata = 16;
constexpr std::string_view kItems = "message, function_call, function_call_output and reasoning";
// The type of tools that the client runs. Others run on a server or take plain text: they are not passed to the model.
constexpr const char* kOwnTool = "function";

class ResponsesTranslator {
 public:
  explicit ResponsesTranslator(const Json& body) : body_(body), fields_(body), messages_(&out_.names) {}

  Result<Translation> Run() {
    out_.chat = Json::object();
    CopyShared(body_, &out_.chat);
    TACTUS_RETURN_IF_ERROR(ReadInput());
    out_.chat["messages"] = std::move(messages_).Take();
    TACTUS_RETURN_IF_ERROR(ReadText());
    TACTUS_RETURN_IF_ERROR(ReadTools());
    TACTUS_RETURN_IF_ERROR(ReadReasoning());
    ReadRest();
    if (!fields_.ok()) return fields_.status();
    return std::move(out_);
  }

 private:
  Status ReadInput() {
    if (const auto text = fields_.String("instructions", std::numeric_limits<size_t>::max()))
      messages_.Add({{"role", "system"}, {"content", *text}}, "instructions");
    out_.names.Add("messages", "input");
    const Json* input = fields_.Find("input");
    if (input == nullptr) return InvalidArgument("input: missing; give a text or a list of items", "input");
    if (input->is_string()) {
      messages_.Add({{"role", "user"}, {"content", *input}}, "input");
      return Status();
    }
    TACTUS_RETURN_IF_ERROR(CheckList(*input, "input", kMaxMessages));
    if (input->empty()) return InvalidArgument("input: no items; give at least one", "input");
    for (size_t i = 0; i < input->size(); ++i)
      TACTUS_RETURN_IF_ERROR(ReadItem((*input)[i], fmt::format("input[{}]", i)));
    return Status();
  }

  Status ReadItem(const Json& item, const std::string& name) {
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(item, name, "message"));
    if (type == "message") return ReadMessage(item, name);
    if (type == "function_call") return ReadCall(item, name);
    if (type == "function_call_output") return ReadOutput(item, name);
    if (type == "reasoning") return ReadReasoningItem(item, name);
    return NotTaken(type, name, kItems);
  }

  Status ReadMessage(const Json& item, const std::string& name) {
    Fields fields(item, name + ".");
    const auto role = fields.String("role", kMaxNameBytes);
    if (!fields.ok()) return fields.status();
    if (!role || (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer")) {
      return InvalidArgument(fmt::format("{}.role: {} is none of user, assistant, system, developer", name,
                                         role ? Shown(Json(*role)) : "nothing"),
                             name + ".role");
    }
    const Json* content = fields.Find("content");
    const bool silent = *role == "assistant" && content == nullptr;  // an assistant message without text
    const Json none = "";
    TACTUS_ASSIGN_OR_RETURN(std::string text, TextOfContent(silent ? &none : content, name + ".content"));
    if (*role == "assistant")
      messages_.AddAssistantText(text, name, true);
    else
      messages_.Add({{"role", *role}, {"content", std::move(text)}}, name);
    return Status();
  }

  // The text of a string or of a list of text parts. In a tool's result a part that is not text is replaced by its
  // type: the model has requested it, so the client can hardly leave it out.
  Result<std::string> TextOfContent(const Json* content, const std::string& name, bool of_result = false) {
    if (content == nullptr) return InvalidArgument(name + ": missing", name);
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) {
      return InvalidArgument(
          fmt::format("{}: expected a string or a list of text parts, got {}", name, TypeName(*content)), name);
    }
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string part_name = fmt::format("{}[{}]", name, i);
      TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf((*content)[i], part_name));
      const bool refusal = type == "refusal";
      if (i > 0) text += '\n';
      if (of_result && type.find("text") == std::string::npos) {
        text += NotShown(type);
        continue;
      }
      if (!refusal && type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text")
        return NotTaken(type, part_name, "input_text and output_text");
      Fields part((*content)[i], part_name + ".");
      const auto value = part.String(refusal ? "refusal" : "text", std::numeric_limits<size_t>::max());
      if (!part.ok()) return part.status();
      if (!value) {
        const std::string missing = part_name + (refusal ? ".refusal" : ".text");
        return InvalidArgument(missing + ": missing", missing);
      }
      text += *value;
    }
    return text;
  }

  Status ReadCall(const Json& item, const std::string& name) {
    Fields fields(item, name + ".");
    for (const char* needed : {"call_id", "name", "arguments"}) {
      if (!fields.String(needed, std::numeric_limits<size_t>::max()) && fields.ok())
        fields.Fail(InvalidArgument(fmt::format("{}.{}: missing", name, needed), fmt::format("{}.{}", name, needed)));
    }
    if (!fields.ok()) return fields.status();
    messages_.AddCall(item["call_id"], item["name"], item["arguments"], name, name + ".arguments");
    return Status();
  }

  Status ReadOutput(const Json& item, const std::string& name) {
    Fields fields(item, name + ".");
    const auto id = fields.String("call_id", kMaxNameBytes);
    if (!fields.ok()) return fields.status();
    if (!id) return InvalidArgument(name + ".call_id: missing", name + ".call_id");
    const auto output = item.find("output");
    std::string text;  // null: the call returned nothing
    if (output == item.end() || !output->is_null()) {
      TACTUS_ASSIGN_OR_RETURN(text, TextOfContent(fields.Find("output"), name + ".output", true));
    }
    messages_.Add({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}}, name);
    return Status();
  }

  // Encrypted reasoning comes from another server and has no text.
  Status ReadReasoningItem(const Json& item, const std::string& name) {
    Fields fields(item, name + ".");
    const Json* content = fields.Find("content");
    if (content == nullptr) return Status();
    TACTUS_ASSIGN_OR_RETURN(const std::string text, TextOfContent(content, name + ".content"));
    messages_.AddReasoning(text, name, true);
    return Status();
  }

  Status ReadText() {
    const Json* text = fields_.Find("text");
    if (text == nullptr) return Status();
    if (!text->is_object()) {
      fields_.FailType("text", "an object with a format", *text);
      return fields_.status();
    }
    Fields fields(*text, "text.");
    if (const auto verbosity = fields.String("verbosity", kMaxNameBytes); verbosity && *verbosity != "medium")
      fields.Refuse("verbosity", "write it into the instructions");
    const Json* format = fields.Find("format");
    if (!fields.ok()) return fields.status();
    if (format == nullptr) return Status();
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*format, "text.format"));
    out_.Set("response_format", "text.format", *format);
    if (type != "json_schema") return Status();
    Json schema = *format;
    schema.erase("type");
    out_.chat["response_format"] = {{"type", type}, {"json_schema", std::move(schema)}};
    out_.names.Add("response_format.json_schema", "text.format");
    return Status();
  }

  Status ReadTools() {
    const Json* tools = fields_.Find("tools");
    if (tools != nullptr) {
      TACTUS_RETURN_IF_ERROR(CheckList(*tools, "tools", kMaxMessages));
      Json list = Json::array();
      for (size_t i = 0; i < tools->size(); ++i) {
        const std::string name = fmt::format("tools[{}]", i);
        TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf((*tools)[i], name));
        if (type != kOwnTool) {
          out_.ignored.push_back(fmt::format("{} ({})", name, type));
          continue;
        }
        out_.names.Add(fmt::format("tools[{}].function", list.size()), name);
        Json function = (*tools)[i];
        function.erase("type");
        list.push_back({{"type", "function"}, {"function", std::move(function)}});
      }
      out_.chat["tools"] = std::move(list);
    }
    const Json* choice = fields_.Find("tool_choice");
    if (choice == nullptr) return Status();
    if (tools != nullptr && !tools->empty() && out_.chat["tools"].empty() && *choice != "auto" && *choice != "none") {
      return InvalidArgument(
          fmt::format("tool_choice: {} although none of the tools is a function; give one", Shown(*choice)),
          "tool_choice");
    }
    out_.chat["tool_choice"] = *choice;
    if (!choice->is_object()) return Status();
    TACTUS_ASSIGN_OR_RETURN(const std::string type, TypeOf(*choice, "tool_choice"));
    if (type != "function") return NotTaken(type, "tool_choice", "function");
    Json function = *choice;
    function.erase("type");
    out_.chat["tool_choice"] = {{"type", "function"}, {"function", std::move(function)}};
    out_.names.Add("tool_choice.function", "tool_choice");
    return Status();
  }

  Status ReadReasoning() {
    const Json* reasoning = fields_.Find("reasoning");
    if (reasoning == nullptr) return Status();
    if (!reasoning->is_object()) {
      fields_.FailType("reasoning", "an object with an effort", *reasoning);
      return fields_.status();
    }
    Fields fields(*reasoning, "reasoning.");
    if (const Json* effort = fields.Find("effort")) out_.Set("reasoning_effort", "reasoning.effort", *effort);
    for (const char* name : {"summary", "generate_summary"}) (void)fields.Find(name);  // all reasoning is returned
    return Status();
  }

  void ReadRest() {
    if (auto v = fields_.Integer("max_output_tokens", 1, std::numeric_limits<int64_t>::max()))
      out_.Set("max_completion_tokens", "max_output_tokens", *v);
    out_.names.Add("max_tokens", "max_output_tokens");  // for the error of an answer that does not fit
    if (auto v = fields_.Boolean("parallel_tool_calls")) out_.chat["parallel_tool_calls"] = *v;
    if (const Json* stop = fields_.Find("stop")) out_.chat["stop"] = *stop;
    for (const char* name : {"safety_identifier", "user"}) {
      if (auto v = fields_.String(name, kMaxNameBytes)) out_.Set("user", name, *v);
    }
    ReadMetadata();
    (void)fields_.Boolean("store");  // nothing is stored either way; the response states it
    fields_.Refuse("previous_response_id", "no response is kept; send the whole conversation as input");
    fields_.Refuse("conversation", "no conversation is kept; send it as input");
    fields_.Refuse("prompt", "no prompts are kept; send its text as input");
    fields_.RefuseTrue("background");
    if (auto v = fields_.String("truncation", kMaxNameBytes); v && *v != "disabled")
      fields_.Refuse("truncation", "only \"disabled\"");
    if (fields_.Integer("top_logprobs", 0, kMaxLogprobs).value_or(0) > 0)
      fields_.Refuse("top_logprobs", "they are in /v1/chat/completions");
    ReadInclude();
    ReadContextManagement();
    RefuseUnbuilt(&fields_);
    for (const auto& [name, here] :
         {std::pair("messages", "input"), std::pair("max_tokens", "max_output_tokens"),
          std::pair("max_completion_tokens", "max_output_tokens"), std::pair("response_format", "text.format"),
          std::pair("reasoning_effort", "reasoning.effort")}) {
      if (fields_.Has(name)) fields_.Fail(InvalidArgument(fmt::format("{}: here it is called {}", name, here), name));
    }
    if (fields_.Integer("n", 1, std::numeric_limits<int64_t>::max()).value_or(1) > 1)
      fields_.Refuse("n", "a response has one answer");
  }

  void ReadMetadata() {
    const Json* metadata = fields_.Find("metadata");
    if (metadata == nullptr) return;
    if (!metadata->is_object()) return fields_.FailType("metadata", "an object of texts", *metadata);
    if (metadata->size() > kMaxMetadata) {
      return fields_.Fail(InvalidArgument(
          fmt::format("metadata: {} pairs are more than {}, the limit", metadata->size(), kMaxMetadata), "metadata"));
    }
    for (const Json& value : *metadata) {
      if (!value.is_string()) return fields_.FailType("metadata", "texts", value);
    }
  }

  // Edits of earlier parts of the conversation are ignored; all of it is read.
  void ReadContextManagement() {
    const Json* edits = fields_.Find("context_management");
    if (edits == nullptr) return;
    if (!edits->is_array()) return fields_.FailType("context_management", "a list of objects", *edits);
    for (size_t i = 0; i < edits->size(); ++i) {
      const Json& edit = (*edits)[i];
      const bool has_type = edit.is_object() && edit.contains("type") && edit["type"].is_string();
      out_.ignored.push_back(fmt::format("context_management[{}]{}", i,
                                         has_type ? fmt::format(" ({})", edit["type"].get<std::string>()) : ""));
    }
  }

  void ReadInclude() {
    const Json* include = fields_.Find("include");
    if (include == nullptr) return;
    if (!include->is_array()) return fields_.FailType("include", "a list of texts", *include);
    for (const Json& item : *include) {
      if (!item.is_string()) return fields_.FailType("include", "a list of texts", item);
      if (item == "message.output_text.logprobs")
        return fields_.Refuse("include", "logprobs are in /v1/chat/completions");
    }
  }

  const Json& body_;
  Fields fields_;
  Translation out_;
  MessageList messages_;
};

// The tools that the model may call: the echo lists only these, so that a client does not wait for a search that never
// runs.
Json ToolsInUse(const Json& given) {
  Json in_use = Json::array();
  for (const Json& tool : given) {
    if (tool["type"] == kOwnTool) in_use.push_back(tool);
  }
  return in_use;
}

// The shortest text of a float, as the client sent it: as a double 0.7f is 0.699999988.
Json Shortest(float value) {
  return Json::parse(fmt::format("{}", value));
}

}  // namespace

Result<Translation> ChatOfResponses(const Json& body) {
  return ResponsesTranslator(body).Run();
}

std::string EchoOfResponses(const Json& body, const SamplingParams& sampling) {
  const Fields fields(body);
  const auto given = [&](const char* name, Json otherwise) {
    const Json* value = fields.Find(name);
    return value != nullptr ? *value : std::move(otherwise);
  };
  Json text = given("text", Json::object());
  if (!text.contains("format") || text["format"].is_null()) text["format"] = {{"type", "text"}};
  Json reasoning = given("reasoning", Json::object());
  for (const char* name : {"effort", "summary"}) {
    if (!reasoning.contains(name)) reasoning[name] = nullptr;
  }
  const Json echo = {
      {"instructions", given("instructions", nullptr)},
      {"max_output_tokens", given("max_output_tokens", nullptr)},
      {"max_tool_calls", given("max_tool_calls", nullptr)},
      {"parallel_tool_calls", given("parallel_tool_calls", true)},
      {"previous_response_id", nullptr},
      {"reasoning", std::move(reasoning)},
      {"background", false},
      {"service_tier", "default"},
      {"store", false},
      {"temperature", Shortest(sampling.temperature)},
      {"text", std::move(text)},
      {"tool_choice", given("tool_choice", "auto")},
      {"tools", ToolsInUse(given("tools", Json::array()))},
      {"top_logprobs", 0},
      {"top_p", Shortest(sampling.top_p)},
      {"truncation", "disabled"},
      {"user", given("user", nullptr)},
      {"metadata", given("metadata", Json::object())},
  };
  std::string members = echo.dump();
  members.front() = ',';
  members.pop_back();
  return members;
}

}  // namespace tactus::api
