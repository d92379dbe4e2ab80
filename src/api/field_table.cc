#include "api/field_table.h"

#include <algorithm>
#include <limits>

#include "api/chat/translation.h"
#include "api/messages/messages_request.h"
#include "api/request_parser.h"
#include "api/responses/responses_request.h"
#include "base/json.h"

namespace tactus::api {
namespace {

constexpr std::string_view kChat = "/v1/chat/completions", kResponses = "/v1/responses", kMessages = "/v1/messages",
                           kCountTokens = "/v1/messages/count_tokens", kTokenize = "/tokenize",
                           kDetokenize = "/detokenize";

constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kContent =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"],
    "properties": {"type": {"type": "string"}, "text": {"type": "string"}}}}]})";
constexpr std::string_view kChatMessages =
    R"({"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object", "required": ["role"], "properties": {
    "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
    "content": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"anyOf": [
      {"type": "string"}, {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"},
      "text": {"type": "string"}, "refusal": {"type": ["string", "null"]},
      "thinking": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}]}}]},
    "reasoning_content": {"type": ["string", "null"]},
    "refusal": {"type": ["string", "null"]},
    "tool_call_id": {"type": ["string", "null"]},
    "tool_calls": {"type": ["array", "null"], "items": {"type": "object", "required": ["function"],
      "properties": {"id": {"type": ["string", "null"]}, "type": {"type": ["string", "null"]},
      "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "arguments": {"type": ["string", "object", "null"]}}}}}}}}})";
constexpr std::string_view kChatTools =
    R"({"type": "array", "maxItems": 128, "items": {"type": "object", "required": ["type", "function"], "properties": {
    "type": {"type": "string", "enum": ["function"]},
    "function": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, "description": {"type": ["string", "null"]},
      "parameters": {"type": ["object", "null"]}, "strict": {"type": ["boolean", "null"]}}}}}})";
constexpr std::string_view kChatChoice =
    R"({"anyOf": [{"type": "string", "enum": ["none", "auto", "required"]}, {"type": "object",
    "required": ["type", "function"], "properties": {"type": {"type": "string", "enum": ["function"]},
    "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}]})";
constexpr std::string_view kFormat =
    R"({"type": "object", "required": ["type"], "properties": {
    "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]},
    "schema": {"type": ["object", "string", "boolean", "null"]}, "json_schema": {"type": ["object", "null"]}}})";
constexpr std::string_view kStop =
    R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1024},
    {"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 1024}}]})";
constexpr std::string_view kTokens = R"({"type": "array", "items": {"type": "integer", "minimum": 0}})";
constexpr std::string_view kChoices =
    R"({"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}})";
constexpr std::string_view kSchemaText = R"({"type": ["object", "string", "boolean"]})";

constexpr FieldRow kRows[] = {
    // --- All APIs ---
    {"model", "The served model's name; may be left out.", "", ""},
    {"temperature", "0 is greedy.", "", ""},
    {"top_p", "Only the likeliest tokens whose probabilities add up to this.", "", ""},
    {"top_k", "The number of likeliest tokens to draw from; -1 or 0: all.", "", ""},
    {"min_p", "Only tokens with at least this share of the likeliest token's probability.", "", ""},
    {"repetition_penalty", "Penalty on tokens that are in the prompt or answer; 1: none.", "", ""},
    {"presence_penalty", "Penalty on tokens that are in the answer.", "", ""},
    {"frequency_penalty", "Penalty on tokens in the answer, for each occurrence.", "", ""},
    {"seed", "The same seed gives the same text.",
     R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})", ""},
    {"logit_bias", "Token ids, each with what is added to its logit.",
     R"({"type": "object", "propertyNames": {"pattern": "^[0-9]{1,9}$"},
     "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})",
     ""},
    {"n", "The number of answers to one prompt.", "", ""},
    {"stop", "Texts that end the answer and are not part of it.", kStop, ""},
    {"stop_token_ids", "Tokens that end the answer.", kTokens, ""},
    {"ignore_eos", "The model's end token does not end the answer.", "", ""},
    {"min_tokens", "The fewest tokens before the answer may end; none of them is an end token.", "", ""},
    {"max_completion_tokens", "The most tokens of the answer; with the prompt they fit the context.", "", ""},
    {"max_tokens", "The most tokens of the answer; with the prompt they fit the context.", "", ""},
    {"ttft_slo_ms", "As slo.ttft_ms.", "", ""},
    {"tpot_slo_ms", "As slo.tbt_ms.", "", ""},
    {"ttlt_slo_ms", "As slo.jct_ms.", "", ""},
    {"slo", "Objectives of this request.", kObject, ""},
    {"slo.ttft_ms", "Until the first token.", "", ""},
    {"slo.tbt_ms", "Between two tokens.", "", ""},
    {"slo.jct_ms", "Until the end.", "", ""},
    {"slo.class", "The class of service.", "", ""},
    {"stream", "Answer as server-sent events.", "", ""},
    {"stream_options", "Only with stream.", kObject, ""},
    {"stream_options.include_usage", "A last chunk has the usage.", "", ""},
    {"stream_options.continuous_usage_stats", "Every chunk has the usage so far.", "", ""},
    {"stream_options.include_obfuscation", "Accepted; chunks are not padded.", "", ""},
    {"priority", "Lower runs first, if the scheduler orders by priority.", "", ""},
    {"user", "The end user.", "", ""},
    {"cache_salt", "Requests with different salts share no cached prefix.", "", ""},
    {"modalities", "Only text.",
     R"({"type": "array", "items": {"type": "string", "enum": ["text"]}, "minItems": 1, "maxItems": 1})", ""},
    {"best_of", "Equal to n.", R"({"type": "integer"})", ""},
    {"skip_special_tokens", "Only true.", R"({"type": "boolean", "enum": [true]})", ""},
    {"detokenize", "Only true.", R"({"type": "boolean", "enum": [true]})", ""},
    {"logprobs", "Log probabilities of the tokens.", "", ""},
    {"top_logprobs", "The number of likeliest tokens to show beside each token; only with logprobs.", "", ""},
    {"response_format", "What the answer must be: a JSON object, or JSON of a schema.", kFormat, ""},
    {"response_format.type", "", R"({"type": "string", "enum": ["text", "json_object", "json_schema"]})", ""},
    {"response_format.schema", "With type json_object: the schema.", kSchemaText, ""},
    {"response_format.json_schema", "The schema, with a name.", kObject, ""},
    {"response_format.json_schema.name", "The schema's name.", "", ""},
    {"response_format.json_schema.description", "The schema's description.", "", ""},
    {"response_format.json_schema.strict", "Every answer follows its schema.", "", ""},
    {"response_format.json_schema.schema", "A JSON schema.", kSchemaText, ""},
    {"structured_outputs", "What the answer must be, in one of five ways.", kObject, ""},
    {"structured_outputs.json", "JSON of this schema.", kSchemaText, ""},
    {"structured_outputs.regex", "What this expression matches.", "", ""},
    {"structured_outputs.choice", "One of these texts.", kChoices, ""},
    {"structured_outputs.grammar", "What this grammar, in Lark's notation, accepts.", "", ""},
    {"structured_outputs.json_object", "A JSON object.", "", ""},
    {"guided_json", "As structured_outputs.json.", kSchemaText, ""},
    {"guided_regex", "As structured_outputs.regex.", "", ""},
    {"guided_choice", "As structured_outputs.choice.", kChoices, ""},
    {"guided_grammar", "As structured_outputs.grammar.", "", ""},
    {"guided_json_object", "As structured_outputs.json_object.", "", ""},
    {"json_schema", "As structured_outputs.json.", kSchemaText, ""},
    {"regex", "As structured_outputs.regex.", "", ""},
    {"tools", "Functions that the model may call.", kChatTools, ""},
    {"tool_choice", "Whether it may, must, and which.", kChatChoice, ""},
    {"parallel_tool_calls", "Several calls in one answer.", R"({"type": "boolean"})", ""},
    {"reasoning_effort", "How much the model shall reason, for templates that use it.", "", ""},
    {"chat_template_kwargs", "Variables of the chat template.", kObject, ""},
    // --- Chats, completions, tokens ---
    {"messages", "The conversation.", kChatMessages, ""},
    {"documents", "Documents for the chat template.", R"({"type": "array", "items": {"type": "object"}})", ""},
    {"add_generation_prompt", "The template opens the assistant's turn.", "", ""},
    {"prompt", "A text, token ids, or a list of either.",
     R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}},
     {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
     {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}]})",
     "/v1/completions"},
    {"prompt", "The text.", R"({"type": "string"})", "/tokenize"},
    {"echo", "Return the prompt before the answer.", "", ""},
    {"add_special_tokens", "Add the special tokens that the tokeniser puts before a prompt.", "", ""},
    {"return_token_strs", "Return each token's text too.", "", ""},
    {"tokens", "Token ids.", kTokens, ""},
    // --- Responses ---
    {"input", "The conversation: a text, or a list of items.",
     R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object",
     "properties": {"type": {"type": ["string", "null"], "enum": ["message", "function_call", "function_call_output",
     "reasoning", null]}}}}]})",
     kResponses},
    {"instructions", "The system message before the conversation.", "", ""},
    {"text", "The form of the answer's text.", kObject, ""},
    {"text.format", "text, json_object, or json_schema with name and schema.",
     R"({"type": "object", "required": ["type"],
     "properties": {"type": {"type": "string", "enum": ["text", "json_object", "json_schema"]}}})",
     ""},
    {"text.verbosity", "Only medium.", R"({"type": "string", "enum": ["medium"]})", ""},
    {"tools", "Functions that the model may call; tools of other types are left out.",
     R"({"type": "array", "items": {"type": "object", "required": ["type"], "properties": {
     "type": {"type": "string"}, "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
     "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]},
     "strict": {"type": ["boolean", "null"]}}}})",
     kResponses},
    {"tool_choice", "Whether it may, must, and which.",
     R"({"anyOf": [{"type": "string", "enum": ["none", "auto", "required"]}, {"type": "object",
     "required": ["type", "name"], "properties": {"type": {"type": "string", "enum": ["function"]},
     "name": {"type": "string"}}}]})",
     kResponses},
    {"reasoning", "How much the model shall reason.", kObject, ""},
    {"reasoning.effort", "For templates that use it.", R"({"type": "string"})", ""},
    {"reasoning.summary", "Accepted; all of the reasoning is returned.", R"({"type": "string"})", ""},
    {"reasoning.generate_summary", "As summary.", R"({"type": "string"})", ""},
    {"max_output_tokens", "The most tokens of the answer; with the prompt they fit the context.", "", ""},
    {"safety_identifier", "The end user.", "", ""},
    {"metadata", "Texts that the answer repeats.",
     R"({"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string"}})", kResponses},
    {"store", "Accepted; no response is stored.", "", ""},
    {"truncation", "Only disabled.", R"({"type": "string", "enum": ["disabled"]})", ""},
    {"context_management", "Ignored, and named in x-tactus-ignored; the whole conversation is read.",
     R"({"type": "array", "items": {"type": "object"}})", kResponses},
    {"include", "Further output; none is supported.", R"({"type": "array", "items": {"type": "string"}})", ""},
    // --- Messages ---
    {"messages", "The conversation; it ends with the user's turn.",
     R"({"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object", "required": ["role"],
     "properties": {"role": {"type": "string", "enum": ["user", "assistant", "system"]}, "content": {"anyOf": [
     {"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {"type":
     {"type": "string", "enum": ["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]}}}}]}}}})",
     kMessages},
    {"system", "The system prompt before the conversation.", kContent, ""},
    {"tools", "Tools that the model may use.",
     R"({"type": "array", "maxItems": 1024, "items": {"type": "object", "required": ["name", "input_schema"],
     "properties": {"name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"},
     "type": {"type": ["string", "null"], "enum": ["custom", null]}, "description": {"type": ["string", "null"]},
     "input_schema": {"type": "object"}, "strict": {"type": ["boolean", "null"]}}}})",
     kMessages},
    {"tool_choice", "Whether it may, must, and which.",
     R"({"type": "object", "required": ["type"],
     "properties": {"type": {"type": "string", "enum": ["auto", "any", "tool", "none"]}}})",
     kMessages},
    {"tool_choice.disable_parallel_tool_use", "At most one tool use in an answer.", "", ""},
    {"tool_choice.name", "The tool, with type tool.", "", ""},
    {"thinking", "Whether the model shall think, for templates that use it.",
     R"({"type": "object", "required": ["type"],
     "properties": {"type": {"type": "string", "enum": ["enabled", "disabled", "adaptive"]}}})",
     ""},
    {"thinking.budget_tokens", "Accepted, but not a limit.", "", ""},
    {"output_config", "Effort and format of the answer.", kObject, ""},
    {"output_config.effort", "For templates that use it.", R"({"type": "string"})", ""},
    {"output_config.format", "json_schema with a schema.",
     R"({"type": "object", "required": ["type", "schema"],
     "properties": {"type": {"type": "string", "enum": ["json_schema"]}, "schema": {"type": "object"}}})",
     ""},
    {"context_management", "clear_thinking_20251015 is applied; edits of other types are ignored.",
     R"({"type": "object", "properties": {"edits": {"type": "array", "items": {"type": "object", "required": ["type"],
     "properties": {"type": {"type": "string"}}}}}})",
     kMessages},
    {"context_management.edits", "Parts of the history to remove.",
     R"({"type": "array", "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}})",
     ""},
    {"stop_sequences", "Texts that end the answer and are not part of it.",
     R"({"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 1024}})", ""},
    {"metadata", "About the request.", kObject, kMessages},
    {"metadata.user_id", "The end user.", "", kMessages},
};

// Bodies that contain every nested object, so that the parser reads its fields.
constexpr std::string_view kSharedProbe =
    R"("stream": true, "slo": {}, "structured_outputs": {}, "response_format": {"type": "json_schema", "json_schema": {"schema": {}}})";

struct FieldProbe {
  std::string body;
  std::vector<std::string_view> required;
};

// The probes of a route, one for each form of its body.
std::vector<FieldProbe> ProbesOf(std::string_view path) {
  const std::string shared(kSharedProbe);
  const std::string messages =
      R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "tool", "name": "f"},
      "thinking": {"type": "adaptive"}, "output_config": {}, "metadata": {}, "context_management": {}})";
  if (path == "/v1/completions") return {{R"({"prompt": "x", "stream_options": {}, )" + shared + "}", {"prompt"}}};
  if (path == kChat) {
    return {{R"({"messages": [{"role": "user", "content": "x"}], "stream_options": {}, "tools": [{"type": "function",
             "function": {"name": "f"}}], )" +
                 shared + "}",
             {"messages"}}};
  }
  if (path == kResponses) return {{R"({"input": "x", "text": {}, "reasoning": {}})", {"input"}}};
  if (path == kMessages) return {{messages, {"messages", "max_tokens"}}};
  if (path == kCountTokens) return {{messages, {"messages"}}};
  if (path == kTokenize) {
    return {{R"({"prompt": "x"})", {"prompt"}}, {R"({"messages": [{"role": "user", "content": "x"}]})", {"messages"}}};
  }
  if (path == kDetokenize) return {{R"({"tokens": []})", {"tokens"}}};
  return {};
}

bool IsShared(std::string_view name) {
  for (const std::string_view shared : SharedFields()) {
    if (name == shared || (name.starts_with(shared) && name[shared.size()] == '.')) return true;
  }
  return false;
}

// Runs the route's parser once; its errors do not matter.
void Ask(std::string_view path, const std::string& text, const RequestLimits& limits) {
  const Json body = Json::parse(text);
  if (path == "/v1/completions")
    (void)ReadCompletionRequest(body, limits);
  else if (path == kChat)
    (void)ReadChatRequest(body, limits);
  else if (path == kResponses)
    (void)ChatOfResponses(body);
  else if (path == kMessages || path == kCountTokens)
    (void)ChatOfMessages(body, path == kCountTokens);
  else if (path == kTokenize)
    (void)ParseTokenizeRequest(text, limits);
  else
    (void)ParseDetokenizeRequest(text, limits);
}

// `refused`: also fields that the parser knows only to refuse.
std::vector<FieldRecording::Asked> AskedOf(std::string_view path, const FieldProbe& probe, const RequestLimits& limits,
                                           bool refused = false) {
  std::vector<FieldRecording::Asked> asked;
  const auto add = [&](const FieldRecording& recording, bool shared_alone) {
    for (const auto& item : recording.asked()) {
      const bool of_a_list = item.name.find('[') != std::string::npos;
      const bool counts = (refused || item.kind != FieldRecording::Kind::kRefused) && !of_a_list;
      if (counts && (!shared_alone || IsShared(item.name))) asked.push_back(item);
    }
  };
  FieldRecording recording;
  Ask(path, probe.body, limits);
  add(recording, false);
  if (path == kResponses || path.starts_with(kMessages)) {  // the rest is parsed as a chat
    FieldRecording chat;
    Ask(kChat, ProbesOf(kChat).front().body, limits);
    add(chat, true);
  }
  return asked;
}

Json SchemaOf(const FieldRecording::Asked& asked, const FieldRow* row) {
  using Kind = FieldRecording::Kind;
  Json schema = Json::object();
  if (row != nullptr && !row->schema.empty()) {
    schema = Json::parse(row->schema);
  } else {
    switch (asked.kind) {
      case Kind::kNumber:
        schema["type"] = "number";
        schema[asked.above_min ? "exclusiveMinimum" : "minimum"] = asked.min;
        schema["maximum"] = asked.max;
        break;
      case Kind::kInteger:
        schema["type"] = "integer";
        schema["minimum"] = asked.least;
        if (asked.most < std::numeric_limits<int64_t>::max()) schema["maximum"] = asked.most;
        break;
      case Kind::kBoolean:
        schema["type"] = "boolean";
        break;
      case Kind::kString:
        schema["type"] = "string";
        // The limit is in bytes, of which there are at least as many as characters.
        if (asked.max_bytes < std::numeric_limits<int32_t>::max()) schema["maxLength"] = asked.max_bytes;
        break;
      default:
        break;
    }
  }
  return schema;
}

// Null counts as absent, except in required fields.
Json OrNull(Json schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return {{"anyOf", {std::move(schema), {{"type", "null"}}}}};
  if (type->is_string()) *type = Json::array({*type, "null"});
  if (const auto values = schema.find("enum"); values != schema.end()) values->push_back(nullptr);
  return schema;
}

}  // namespace

std::span<const FieldRow> FieldTable() {
  return kRows;
}

const FieldRow* FindField(std::string_view path, std::string_view name) {
  const FieldRow* found = nullptr;
  for (const FieldRow& row : kRows) {
    if (row.name != name) continue;
    const bool own = !row.path.empty() && path.starts_with(row.path);
    if (own) return &row;
    if (row.path.empty()) found = &row;
  }
  return found;
}

std::vector<FieldRecording::Asked> AskedOf(std::string_view path, const RequestLimits& limits) {
  std::vector<FieldRecording::Asked> all;
  for (const FieldProbe& probe : ProbesOf(path)) {
    for (auto& asked : AskedOf(path, probe, limits)) all.push_back(std::move(asked));
  }
  return all;
}

std::vector<std::string> NamesOf(std::string_view path, const RequestLimits& limits, bool refused) {
  std::vector<std::string> names;
  for (const FieldProbe& probe : ProbesOf(path)) {
    for (auto& asked : AskedOf(path, probe, limits, refused)) names.push_back(std::move(asked.name));
  }
  return names;
}

Json BodySchema(std::string_view path, const RequestLimits& limits) {
  std::vector<Json> forms;
  for (const FieldProbe& probe : ProbesOf(path)) {
    Json schema = {{"type", "object"}, {"required", probe.required}, {"properties", Json::object()}};
    for (const auto& asked : AskedOf(path, probe, limits)) {
      // A parent comes before its members and has its own properties.
      Json* holder = &schema;
      std::string_view name = asked.name;
      for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1))
        holder = &(*holder)["properties"][std::string(name.substr(0, dot))];
      const auto& required = probe.required;
      const bool must = holder == &schema && std::find(required.begin(), required.end(), name) != required.end();
      const FieldRow* row = FindField(path, asked.name);
      Json field = SchemaOf(asked, row);
      if (!must) field = OrNull(std::move(field));
      if (row != nullptr) field["description"] = row->doc;
      (*holder)["properties"][std::string(name)] = std::move(field);
    }
    forms.push_back(std::move(schema));
  }
  if (forms.empty()) return {{"type", "object"}};
  if (forms.size() == 1) return std::move(forms.front());
  return {{"anyOf", std::move(forms)}};
}

}  // namespace tactus::api
