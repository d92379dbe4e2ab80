#include "api/tools/written_calls.h"

#include <fmt/format.h>

#include "api/fields/json.h"
#include "base/json.h"

namespace tactus::api {
namespace {

using Body = ToolFormat::Body;

// The arguments as JSON text. Arguments that are not an object are the model's own text.
std::string ArgumentsText(const Json& function) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end()) return "{}";
  return arguments->is_string() ? arguments->get<std::string>()
                                : arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The recursion is bounded by the limit on the nesting of JSON.
void AppendLiteral(const Json& value, std::string* out) {
  if (value.is_object()) {
    *out += '{';
    bool first = true;
    for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) {
      if (!first) *out += ", ";
      first = false;
      *out += Quoted(key) + ": ";
      AppendLiteral(member, out);
    }
    *out += '}';
  } else if (value.is_array()) {
    *out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) *out += ", ";
      AppendLiteral(value[i], out);
    }
    *out += ']';
  } else if (value.is_boolean()) {
    *out += value.get<bool>() ? "True" : "False";
  } else if (value.is_null()) {
    *out += "None";
  } else {
    *out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

std::string PythonCall(const std::string& name, const Json& function) {
  const auto arguments = function.find("arguments");
  std::string out = name + "(";
  if (arguments != function.end() && arguments->is_object()) {
    bool first = true;
    for (const auto& [key, value] : arguments->get_ref<const Json::object_t&>()) {
      if (!first) out += ", ";
      first = false;
      out += key + "=";
      AppendLiteral(value, &out);
    }
  } else {
    out += ArgumentsText(function);
  }
  return out + ")";
}

std::string WrittenCall(const ToolFormat& form, const Json& function) {
  const auto given = function.find("name");
  const std::string name = given != function.end() && given->is_string() ? given->get<std::string>() : std::string();
  std::string out;
  switch (form.body) {
    case Body::kPythonic:
      return PythonCall(name, function);
    case Body::kNamedJson:
      for (const std::string_view part :
           {form.call_begin, form.head_before, std::string_view(name), form.head_after, form.head_end})
        out += part;
      return out + ArgumentsText(function) + std::string(form.call_end);
    default: {
      std::string object = form.name_is_key ? fmt::format("{{{}: {}}}", Quoted(name), ArgumentsText(function))
                                            : fmt::format("{{\"{}\": {}, \"{}\": {}}}", form.name_key, Quoted(name),
                                                          form.arguments_key, ArgumentsText(function));
      if (form.listed || form.bare || form.call_begin.empty()) return object;
      for (const std::string_view part :
           {form.call_begin, form.after_begin, std::string_view(object), form.before_end, form.call_end})
        out += part;
      return out;
    }
  }
}

}  // namespace

std::string WrittenCalls(const ToolFormat* format, const Json& calls) {
  if (format == nullptr || format->body == Body::kParameters || format->body == Body::kHarmony)
    format = FindToolFormat("json");
  const ToolFormat& form = *format;
  std::string out;
  for (const Json& call : calls) {
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    if (!out.empty()) out += form.between;
    out += WrittenCall(form, *function);
  }
  if (out.empty()) return out;
  if (form.listed) out = "[" + out + "]";
  if (form.listed && form.body == Body::kJson && !form.bare) out = std::string(form.call_begin) + out;
  if (form.section_begin.empty() || form.bare) return out;
  const bool in_section = !form.listed && (form.body != Body::kJson || form.call_begin.empty());
  std::string section(form.section_begin);
  if (in_section) section += form.after_begin;
  section += out;
  if (in_section) section += form.before_end;
  return section + std::string(form.section_end);
}

}  // namespace tactus::api
