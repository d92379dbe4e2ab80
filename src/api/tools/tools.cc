#include "api/tools/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "api/fields/fields.h"
#include "base/json.h"

namespace tactus::api {
namespace {

constexpr int kMaxRefs = 8;  // in a chain
// Limit on the keys and items visited to find the types of all parameters of a request; parameters beyond it have any
// type.
constexpr int64_t kMostLooks = 1 << 20;
constexpr std::string_view kToolTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

Status Bad(const std::string& where, std::string_view what) {
  return InvalidArgument(fmt::format("{}: {}", where, what), where);
}

bool IsToolName(std::string_view name, size_t most_bytes) {
  return !name.empty() && name.size() <= most_bytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

const Json* Member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// The target of a local reference ("#/$defs/Place"); null: none.
const Json* Follow(const Json& root, const std::string& reference, int64_t* left) {
  if (!reference.starts_with("#/")) return nullptr;
  const Json* at = &root;
  for (size_t begin = 1, end; begin < reference.size(); begin = end) {
    end = std::min(reference.find('/', begin + 1), reference.size());
    if ((*left -= static_cast<int64_t>(at->size())) < 0) return nullptr;
    try {
      const Json::json_pointer step(reference.substr(begin, end - begin));
      if (!at->contains(step)) return nullptr;
      at = &at->at(step);
    } catch (const Json::exception&) {
      return nullptr;  // not a JSON pointer
    }
  }
  return at;
}

const Json* Resolve(const Json& root, const Json* schema, int64_t* left) {
  for (int i = 0; i < kMaxRefs && schema != nullptr; ++i) {
    if ((*left -= 1 + static_cast<int64_t>(schema->size())) < 0) return nullptr;
    const Json* reference = Member(*schema, "$ref");
    if (reference == nullptr) return schema;
    if (!reference->is_string()) return nullptr;
    schema = Follow(root, reference->get_ref<const std::string&>(), left);
  }
  return nullptr;
}

// False: `type` is not the name of a type.
bool AddType(const Json& type, std::vector<std::string>* types) {
  if (!type.is_string()) return false;
  const auto& name = type.get_ref<const std::string&>();
  if (std::find(std::begin(kToolTypes), std::end(kToolTypes), name) == std::end(kToolTypes)) return false;
  if (std::find(types->begin(), types->end(), name) == types->end()) types->push_back(name);
  return true;
}

// The types that a value may have; false: any. `left`: keys and items that may still be visited.
bool CollectTypes(const Json& root, const Json& schema, int depth, int64_t* left, std::vector<std::string>* types) {
  if (depth > kMaxRefs) return false;
  const Json* resolved = Resolve(root, &schema, left);
  if (resolved == nullptr || !resolved->is_object()) return false;
  if (const Json* type = Member(*resolved, "type")) {
    if (!type->is_array()) return AddType(*type, types);
    if ((*left -= static_cast<int64_t>(type->size())) < 0) return false;
    for (const Json& item : *type) {
      if (!AddType(item, types)) return false;
    }
    return !type->empty();
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* options = Member(*resolved, key);
    if (options == nullptr || !options->is_array()) continue;
    for (const Json& option : *options) {
      if (!CollectTypes(root, option, depth + 1, left, types)) return false;
    }
    return !options->empty();
  }
  const Json* values = Member(*resolved, "enum");
  if (values == nullptr || !values->is_array() || values->empty()) return false;
  if ((*left -= static_cast<int64_t>(values->size())) < 0) return false;
  for (const Json& value : *values) {
    if (!value.is_string()) return false;
  }
  return AddType("string", types);
}

void ListParameters(const Json& schema, int64_t* left, Tool* tool) {
  const Json* properties = Member(schema, "properties");
  if (properties == nullptr || !properties->is_object()) return;
  std::set<std::string_view> required;
  if (const Json* names = Member(schema, "required"); names != nullptr && names->is_array()) {
    for (const Json& name : *names) {
      if (name.is_string()) required.insert(name.get_ref<const std::string&>());
    }
  }
  for (const auto& [name, property] : properties->get_ref<const Json::object_t&>()) {
    Tool::Parameter& parameter = tool->listed.emplace_back();
    parameter.name = name;
    if (!CollectTypes(schema, property, 0, left, &parameter.types)) parameter.types.clear();
    parameter.required = required.contains(name);
  }
}

// `left`: as in CollectTypes, for all tools together.
Status ReadTool(const Json& item, const std::string& where, const ToolLimits& limits, int64_t* left, Tool* tool) {
  if (!item.is_object()) return Bad(where, fmt::format("expected an object, got {}", TypeName(item)));
  const Json* type = Member(item, "type");
  if (type == nullptr) return Bad(where + ".type", "missing; give \"function\"");
  if (*type != "function") {
    return Unimplemented(fmt::format("{}.type: {} is not supported; give \"function\"", where, Shown(*type)),
                         where + ".type");
  }
  const std::string inner = where + ".function";
  const Json* function = Member(item, "function");
  if (function == nullptr) return Bad(inner, "missing");
  if (!function->is_object()) return Bad(inner, fmt::format("expected an object, got {}", TypeName(*function)));
  const Json* name = Member(*function, "name");
  if (name == nullptr) return Bad(inner + ".name", "missing");
  if (!name->is_string() || !IsToolName(name->get_ref<const std::string&>(), limits.name_bytes)) {
    return Bad(inner + ".name",
               fmt::format("{} is no name of 1 to {} letters, digits, _ and -", Shown(*name), limits.name_bytes));
  }
  tool->name = name->get<std::string>();
  if (const Json* description = Member(*function, "description"); description != nullptr && !description->is_string())
    return Bad(inner + ".description", fmt::format("expected a string, got {}", TypeName(*description)));
  if (const Json* strict = Member(*function, "strict")) {
    if (!strict->is_boolean())
      return Bad(inner + ".strict", fmt::format("expected true or false, got {}", Shown(*strict)));
    tool->strict = strict->get<bool>();
  }
  Json schema = Json::object();
  if (const Json* parameters = Member(*function, "parameters")) {
    if (!parameters->is_object())
      return Bad(inner + ".parameters", fmt::format("expected an object, got {}", TypeName(*parameters)));
    schema = *parameters;
    const Json* of = Member(schema, "type");
    // Other words for an object, such as "dict", are accepted.
    const bool other = of != nullptr && of->is_string() && *of != "object" &&
                       std::find(std::begin(kToolTypes), std::end(kToolTypes), of->get_ref<const std::string&>()) !=
                           std::end(kToolTypes);
    if (other || (of != nullptr && *of != "object" && tool->strict))
      return Bad(inner + ".parameters.type", fmt::format("{} is not \"object\"", Shown(*of)));
  } else {
    schema["properties"] = Json::object();
    schema["additionalProperties"] = false;  // a tool without parameters has no arguments
  }
  schema["type"] = "object";
  ListParameters(schema, left, tool);
  tool->parameters = schema.dump();
  return Status();
}

Status ReadChoice(const Json& choice, ToolSet* set, bool* none) {
  if (choice == "auto") return Status();
  if (choice == "none") {
    *none = true;
    return Status();
  }
  if (choice == "required") {
    set->choice = ToolSet::Choice::kRequired;
    return Status();
  }
  const Json* type = Member(choice, "type");
  if (choice.is_string() || type == nullptr) {
    return Bad("tool_choice",
               fmt::format("{} is none of \"auto\", \"none\", \"required\" and {{\"type\": \"function\", "
                           "\"function\": {{\"name\": ...}}}}",
                           Shown(choice)));
  }
  if (*type != "function") {
    return Unimplemented(fmt::format("tool_choice.type: {} is not supported; give \"function\"", Shown(*type)),
                         "tool_choice.type");
  }
  const Json* function = Member(choice, "function");
  const Json* name = function == nullptr ? nullptr : Member(*function, "name");
  if (name == nullptr || !name->is_string())
    return Bad("tool_choice.function.name", "missing; name one of the request's tools");
  const Tool* tool = set->Find(name->get_ref<const std::string&>());
  if (tool == nullptr)
    return Bad("tool_choice.function.name", fmt::format("{} is none of the request's tools", Shown(*name)));
  set->choice = ToolSet::Choice::kNamed;
  set->named = static_cast<size_t>(tool - set->tools.data());
  return Status();
}

}  // namespace

const Tool::Parameter* Tool::Find(std::string_view parameter) const {
  const auto it =
      std::find_if(listed.begin(), listed.end(), [&](const Parameter& known) { return known.name == parameter; });
  return it == listed.end() ? nullptr : &*it;
}

const Tool* ToolSet::Find(std::string_view name) const {
  const auto it = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  return it == tools.end() ? nullptr : &*it;
}

bool ToolSet::strict() const {
  return std::any_of(tools.begin(), tools.end(), [](const Tool& tool) { return tool.strict; });
}

Result<std::shared_ptr<const ToolSet>> ReadTools(const Json& body, const ToolLimits& limits) {
  const std::shared_ptr<const ToolSet> no_tools;
  const Fields fields(body);
  auto set = std::make_shared<ToolSet>();
  if (const Json* list = fields.Find("tools")) {
    if (!list->is_array()) return Bad("tools", fmt::format("expected a list, got {}", TypeName(*list)));
    if (list->size() > limits.tools)
      return Bad("tools", fmt::format("{} of them are more than {}, the limit", list->size(), limits.tools));
    int64_t left = kMostLooks;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string where = fmt::format("tools[{}]", i);
      Tool tool;
      TACTUS_RETURN_IF_ERROR(ReadTool((*list)[i], where, limits, &left, &tool));
      if (set->Find(tool.name) != nullptr)
        return Bad(where + ".function.name", fmt::format("\"{}\" appears twice; give each name once", tool.name));
      set->tools.push_back(std::move(tool));
    }
  }
  if (const Json* parallel = fields.Find("parallel_tool_calls")) {
    if (!parallel->is_boolean())
      return Bad("parallel_tool_calls", fmt::format("expected true or false, got {}", Shown(*parallel)));
    set->parallel = parallel->get<bool>();
  }
  bool none = false;
  if (const Json* choice = fields.Find("tool_choice")) TACTUS_RETURN_IF_ERROR(ReadChoice(*choice, set.get(), &none));
  if (set->tools.empty() && set->choice == ToolSet::Choice::kRequired)
    return Bad("tool_choice", "\"required\" without tools; give tools");
  if (set->tools.empty() || none) return no_tools;
  return std::shared_ptr<const ToolSet>(std::move(set));
}

}  // namespace tactus::api
