#include "cli/options/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "base/input_file.h"
#include "cli/options/nearest.h"

namespace tactus::cli {
namespace {

// At most one line, without terminal control characters.
std::string Shown(std::string text, size_t most = 80) {
  if (text.size() > most) text = text.substr(0, most) + "...";
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

std::string TomlText(const toml::node& node) {
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return Shown(out.str());
}

const char* KindName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or a time";
  }
}

template <class T>
bool Is(const FieldBinding& field) {
  return std::holds_alternative<T*>(field.target);
}

bool IsWhole(const FieldBinding& field) {
  return Is<int64_t>(field) || Is<std::optional<int64_t>>(field);
}
bool IsReal(const FieldBinding& field) {
  return Is<double>(field) || Is<std::optional<double>>(field);
}

const char* Expected(const FieldBinding& field) {
  if (Is<bool>(field)) return "true or false";
  if (IsWhole(field)) return "a whole number";
  if (IsReal(field)) return "a number";
  if (Is<DurationText>(field)) return "a duration with its unit, such as \"50ms\"";
  if (Is<BytesText>(field)) return "a size such as \"8GiB\", or a number of bytes";
  if (Is<std::string>(field)) return "a string";
  return "a string or a list of strings";
}

// The hint for a number in place of a duration: the number with a unit.
std::string UnitFix(const FieldBinding& field, const toml::node& node) {
  if (!Is<DurationText>(field) || !node.is_number()) return {};
  const std::string number = TomlText(node);
  return fmt::format(": write \"{}ms\" or \"{}s\"", number, number);
}

// The value as text for SetField; absent if the type is wrong.
std::optional<std::string> TextOf(const FieldBinding& field, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    // Texts such as "on" and "50ms" are valid as on the command line; a number in quotes is an error.
    const bool quoted_number = IsWhole(field) || IsReal(field);
    return quoted_number ? std::nullopt : text;
  }
  if (const auto value = node.value_exact<bool>()) {
    return Is<bool>(field) ? std::optional(std::string(*value ? "on" : "off")) : std::nullopt;
  }
  const bool number = IsReal(field) || Is<BytesText>(field);
  if (const auto value = node.value_exact<int64_t>()) {
    const bool zero = Is<DurationText>(field) && *value == 0;  // 0 needs no unit
    return number || zero || IsWhole(field) ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  }
  if (const auto value = node.value_exact<double>()) {
    return number ? std::optional(fmt::format("{:.17g}", *value)) : std::nullopt;
  }
  return std::nullopt;
}

// The texts of a key's value; absent if the type is wrong.
std::optional<std::vector<std::string>> TextsOf(const FieldBinding& field, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list != nullptr && !Is<std::vector<std::string>>(field)) return std::nullopt;
  std::vector<std::string> texts;
  if (list == nullptr) {
    auto text = TextOf(field, node);
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
    return texts;
  }
  for (const toml::node& element : *list) {
    auto text = TextOf(field, element);
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
  }
  return texts;
}

// The key of a line that does not parse, for the message; its value may be a secret.
std::string KeyOfLine(const std::string& text, int64_t line) {
  std::istringstream in(text);
  std::string found;
  for (int64_t i = 0; i < line && std::getline(in, found); ++i) continue;
  const size_t equals = found.find('=');
  if (equals == std::string::npos) return "";
  found.erase(equals);
  while (!found.empty() && found.back() == ' ') found.pop_back();
  return fmt::format(" ('{}')", Shown(found));
}

Result<toml::table> Parse(const std::string& path) {
  auto text = ReadInputFile(path, kMostConfigBytes);
  if (!text.ok()) return InvalidArgument("--config: " + text.status().message(), "config");
  try {
    return toml::table(toml::parse(*text, path));
  } catch (const toml::parse_error& e) {
    const auto line = static_cast<int64_t>(e.source().begin.line);
    return InvalidArgument(fmt::format("--config {}: line {}{}: {}", path, line, KeyOfLine(*text, line),
                                       Shown(std::string(e.description()), 200)),
                           "config");
  }
}

}  // namespace

Status ApplyConfigFile(const std::string& path, const std::function<const FieldBinding*(const std::string&)>& find,
                       const std::vector<std::string>& names, std::vector<std::string>* already_set) {
  TACTUS_ASSIGN_OR_RETURN(const toml::table table, Parse(path));
  std::map<std::string, std::string> key_of;  // field -> its name in the file
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where = fmt::format("--config {}: line {}: ", path, node.source().begin.line);
    const FieldBinding* field = find(name);
    if (field == nullptr) {
      const std::string nearest = Nearest(name, names);
      return InvalidArgument(fmt::format("{}unknown key '{}'{}", where, Shown(name),
                                         nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)),
                             "config");
    }
    if (const auto [first, added] = key_of.emplace(field->name, name); !added) {
      return InvalidArgument(
          fmt::format("{}'{}' and '{}' are the same option; give one of them", where, first->second, name), "config");
    }
    const auto texts = TextsOf(*field, node);
    if (!texts) {
      return InvalidArgument(
          fmt::format("{}'{}' = {} is {}{}; it takes {}{}", where, name, field->spec.secret ? "***" : TomlText(node),
                      node.is_array() && Is<std::vector<std::string>>(*field) ? "not only strings: " : "",
                      KindName(node), Expected(*field), UnitFix(*field, node)),
          "config");
    }
    if (std::find(already_set->begin(), already_set->end(), field->name) != already_set->end()) continue;
    already_set->push_back(field->name);
    for (const std::string& text : *texts) {
      if (const Status set = SetField(*field, text); !set.ok())
        return InvalidArgument(where + set.message(), field->name);
    }
  }
  return Status();
}

}  // namespace tactus::cli
