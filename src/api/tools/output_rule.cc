#include "api/tools/output_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "base/schema_numbers.h"

namespace tactus::api {
namespace {

// Stores the rule of one field; a second rule is an error.
void Take(Fields* fields, ReadRule* read, const std::string& name, std::optional<OutputRule> rule) {
  if (!rule) return;
  if (rule->text.size() > kMaxRuleBytes) {
    return fields->Fail(InvalidArgument(
        fmt::format("{}: {} bytes are more than {}, the limit", name, rule->text.size(), kMaxRuleBytes), name));
  }
  if (read->rule.any()) {
    return fields->Fail(InvalidArgument(
        fmt::format("{}: another field already states what the answer must be; give one of them", name), name));
  }
  *read = {std::move(*rule), name};
}

// A schema with the type "json_object" describes that object, so it gets the type object. A schema with a type or
// values is left as it is: it states itself which other values are valid.
Json OfAnObject(const Json& schema) {
  if (schema == true) return Json::object({{"type", "object"}});
  for (const char* decides : {"type", "enum", "const", "$dynamicRef"}) {
    if (!schema.is_object() || schema.contains(decides)) return schema;
  }
  if (const auto all = schema.find("allOf"); all != schema.end() && !all->is_array()) return schema;  // rejected later
  Json object = schema;
  // Older drafts ignore keywords next to a reference.
  if (const auto found = object.find("$ref"); found != object.end()) {
    const Json reference = {{"$ref", *found}};
    object.erase("$ref");
    Json& all = object["allOf"];
    if (!all.is_array()) all = Json::array();
    all.push_back(reference);
  }
  object["type"] = "object";
  return object;
}

// A schema as JSON or as text. `of_object`: only objects are valid.
std::optional<OutputRule> SchemaRule(Fields* fields, const std::string& name, const Json& value,
                                     bool of_object = false) {
  Json parsed;
  const Json* schema = &value;
  if (value.is_string()) {
    std::vector<json_text::RoundedNumber> rounded;
    JsonLimits limits;
    limits.rounded = &rounded;
    auto read = ParseJson(value.get_ref<const std::string&>(), limits);
    const Status status = read.ok() ? CheckSchemaNumbers(*read, rounded) : read.status();
    if (!status.ok()) {
      fields->Fail(InvalidArgument(fmt::format("{}: {}", name, status.message()), name));
      return std::nullopt;
    }
    parsed = std::move(*read);
    schema = &parsed;
  }
  if (!schema->is_object() && !schema->is_boolean()) {
    fields->Fail(InvalidArgument(
        fmt::format("{}: expected a JSON schema (an object), got {} ({})", name, TypeName(*schema), Shown(*schema)),
        name));
    return std::nullopt;
  }
  const Json asked = of_object ? OfAnObject(*schema) : *schema;
  if (of_object && asked.size() == 1 && asked.is_object() && asked.value("type", Json()) == "object")
    return OutputRule{OutputRule::Kind::kJsonObject, {}};
  return OutputRule{OutputRule::Kind::kJsonSchema, asked.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

std::optional<OutputRule> TextRule(Fields* fields, OutputRule::Kind kind, const char* name) {
  auto text = fields->String(name, kMaxRuleBytes);
  if (!text) return std::nullopt;
  if (text->empty()) {
    fields->Fail(InvalidArgument(fmt::format("{}: empty; leave it out", fields->Name(name)), fields->Name(name)));
    return std::nullopt;
  }
  if (kind == OutputRule::Kind::kLark && text->find("::=") != std::string::npos) {
    fields->Fail(InvalidArgument(
        fmt::format("{}: this is GBNF ('::='); give the grammar in Lark's notation, from the rule 'start'",
                    fields->Name(name)),
        fields->Name(name)));
    return std::nullopt;
  }
  return OutputRule{kind, std::move(*text)};
}

std::optional<OutputRule> ChoicesRule(Fields* fields, const char* name) {
  const Json* list = fields->Find(name);
  if (list == nullptr) return std::nullopt;
  if (!list->is_array() || list->empty()) {
    fields->FailType(name, "a list of strings", *list);
    return std::nullopt;
  }
  if (list->size() > kMaxAnswerChoices) {
    fields->Fail(InvalidArgument(
        fmt::format("{}: {} strings are more than {}, the limit", fields->Name(name), list->size(), kMaxAnswerChoices),
        fields->Name(name)));
    return std::nullopt;
  }
  std::vector<std::string> choices;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
      fields->Fail(InvalidArgument(fmt::format("{}[{}]: expected a string that is not empty, got {}",
                                               fields->Name(name), choices.size(), Shown(item)),
                                   fields->Name(name)));
      return std::nullopt;
    }
    choices.push_back(item.get<std::string>());
  }
  return ChoiceRule(choices);
}

void ReadResponseFormat(Fields* fields, ReadRule* read) {
  const Json* format = fields->Find("response_format");
  if (format == nullptr) return;
  if (!format->is_object()) return fields->FailType("response_format", "an object with a type", *format);
  Fields inner(*format, "response_format.");
  const Json* type = inner.Find("type");
  if (type == nullptr || !type->is_string()) {
    return fields->Fail(InvalidArgument("response_format.type: give \"text\", \"json_object\" or \"json_schema\"",
                                        "response_format.type"));
  }
  const Json* beside = inner.Find("schema");  // as in llama.cpp and others
  if (beside != nullptr && *type != "json_object") {
    return fields->Fail(InvalidArgument(fmt::format("response_format.schema: only with type \"json_object\"{}",
                                                    *type == "json_schema" ? "; here it is json_schema.schema" : ""),
                                        "response_format.schema"));
  }
  if (*type == "json_object" && beside != nullptr) {
    Take(fields, read, "response_format.schema", SchemaRule(fields, "response_format.schema", *beside, true));
  } else if (*type == "json_object") {
    Take(fields, read, "response_format", OutputRule{OutputRule::Kind::kJsonObject, {}});
  } else if (*type == "json_schema") {
    const Json* holder = inner.Find("json_schema");
    if (holder == nullptr || !holder->is_object()) {
      return fields->Fail(InvalidArgument("response_format.json_schema: expected an object with a name and a schema",
                                          "response_format.json_schema"));
    }
    Fields json_schema(*holder, "response_format.json_schema.");
    json_schema.String("name", kMaxFormatNameBytes);
    json_schema.String("description", kMaxRuleBytes);
    json_schema.Boolean("strict");  // an answer always follows its schema
    const Json* schema = json_schema.Find("schema");
    if (schema == nullptr) {
      json_schema.Fail(
          InvalidArgument("response_format.json_schema.schema: missing; give the JSON schema of the answer",
                          "response_format.json_schema.schema"));
    }
    if (!json_schema.ok()) return fields->Fail(json_schema.status());
    Take(fields, read, "response_format.json_schema.schema",
         SchemaRule(fields, "response_format.json_schema.schema", *schema));
  } else if (*type != "text") {
    fields->Fail(InvalidArgument(
        fmt::format("response_format.type: {} is none of \"text\", \"json_object\", \"json_schema\"", Shown(*type)),
        "response_format.type"));
  }
}

// `prefix` of the kinds' names: "guided_", or empty within structured_outputs.
void ReadKinds(Fields* fields, const std::string& prefix, ReadRule* read) {
  const std::string json = prefix + "json", regex = prefix + "regex", choice = prefix + "choice",
                    grammar = prefix + "grammar";
  if (const Json* schema = fields->Find(json)) {
    Take(fields, read, fields->Name(json), SchemaRule(fields, fields->Name(json), *schema));
  }
  Take(fields, read, fields->Name(regex), TextRule(fields, OutputRule::Kind::kRegex, regex.c_str()));
  Take(fields, read, fields->Name(choice), ChoicesRule(fields, choice.c_str()));
  Take(fields, read, fields->Name(grammar), TextRule(fields, OutputRule::Kind::kLark, grammar.c_str()));
  const std::string object = prefix + "json_object";
  if (fields->Boolean(object).value_or(false)) {
    Take(fields, read, fields->Name(object), OutputRule{OutputRule::Kind::kJsonObject, {}});
  }
}

}  // namespace

OutputRule ChoiceRule(const std::vector<std::string>& choices) {
  // One lexeme: alternatives of a rule would each be an item of the parser, which allows 2,000.
  std::string text = "start: CHOICE\nCHOICE: ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += " | ";
    text += Json(choices[i]).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return {OutputRule::Kind::kLark, std::move(text)};
}

ReadRule ReadOutputRule(Fields* fields) {
  ReadRule read;
  ReadResponseFormat(fields, &read);
  if (const Json* outputs = fields->Find("structured_outputs")) {
    if (!outputs->is_object()) {
      fields->FailType("structured_outputs", "an object of json, regex, choice, grammar or json_object", *outputs);
    } else {
      Fields inner(*outputs, "structured_outputs.");
      ReadKinds(&inner, "", &read);
      inner.Refuse("structural_tag");
      inner.Refuse("whitespace_pattern");
      if (!inner.ok()) fields->Fail(inner.status());
    }
  }
  ReadKinds(fields, "guided_", &read);
  // llama.cpp and SGLang have these at the top.
  if (const Json* schema = fields->Find("json_schema"))
    Take(fields, &read, "json_schema", SchemaRule(fields, "json_schema", *schema));
  Take(fields, &read, "regex", TextRule(fields, OutputRule::Kind::kRegex, "regex"));
  fields->Refuse("guided_whitespace_pattern");
  return read;
}

}  // namespace tactus::api
