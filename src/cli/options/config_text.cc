#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "cli/options/option_binding.h"

namespace tactus::cli {
namespace {

// The shortest text that reads back as the same number and is not an integer in TOML.
std::string DoubleText(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".eni") == std::string::npos ? text + ".0" : text;
}

// In single quotes, without escapes, or in double quotes where escapes are needed.
std::string QuotedText(const std::string& text) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (text.find('\'') == std::string::npos && std::none_of(text.begin(), text.end(), control)) return "'" + text + "'";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      quoted += {'\\', c};
    else if (control(c))
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

std::string QuotedList(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? " " : ", ") + QuotedText(item);
  return list.empty() ? "[]" : "[" + list + " ]";
}

std::string ConfigLine(const FieldBinding& f) {
  if (f.spec.secret) {
    const auto* list = std::get_if<std::vector<std::string>*>(&f.target);
    const size_t set = list != nullptr ? (*list)->size() : FieldText(f).empty() ? 0 : 1;
    if (set == 0) return fmt::format("# {}: none is set\n", f.name);
    return fmt::format("# {}: {} set, and left out here as a secret; set it with {} or in a file of --config\n", f.name,
                       set == 1 ? "is" : fmt::format("{} are", set), EnvironmentName(f.name));
  }
  const auto* whole = std::get_if<std::optional<int64_t>*>(&f.target);
  const auto* real = std::get_if<std::optional<double>*>(&f.target);
  if ((whole != nullptr && !**whole) || (real != nullptr && !**real)) return fmt::format("# {} is not set\n", f.name);
  std::string value;
  if (const auto* b = std::get_if<bool*>(&f.target))
    value = **b ? "true" : "false";
  else if (whole != nullptr)
    value = FieldText(f);
  else if (real != nullptr)
    value = DoubleText(***real);
  else if (const auto* i = std::get_if<int64_t*>(&f.target))
    value = fmt::format("{}", **i);
  else if (const auto* d = std::get_if<double*>(&f.target))
    value = DoubleText(**d);
  else if (const auto* list = std::get_if<std::vector<std::string>*>(&f.target))
    value = QuotedList(**list);
  else
    value = QuotedText(FieldText(f));
  return fmt::format("{} = {}\n", f.name, value);
}

}  // namespace

Result<std::string> CommandLine::ConfigText() const {
  std::string text;
  const auto append = [&text](const FieldBinding& f) -> Status {
    const std::string line = ConfigLine(f);
    if (!IsValidUtf8(line)) {
      return InvalidArgument(
          fmt::format("--print-config: the value of '{}' is not UTF-8, and a TOML file holds no other "
                      "text; rename the file, or give the value as a flag",
                      f.name),
          f.name);
    }
    text += line;
    return Status();
  };
  for (const PositionalArg& p : positionals_) {
    if (Find(p.field.name) == nullptr) TACTUS_RETURN_IF_ERROR(append(p.field));
  }
  if (rest_) TACTUS_RETURN_IF_ERROR(append(*rest_));
  for (const FieldBinding& f : fields_) TACTUS_RETURN_IF_ERROR(append(f));
  return text;
}

}  // namespace tactus::cli
