#include "cli/options/changed_options.h"

#include <algorithm>
#include <map>

namespace tactus::cli {
namespace {

// Values by name. Comments stand for secrets and options that are not set.
std::map<std::string, std::string, std::less<>> ValuesOf(std::string_view text) {
  std::map<std::string, std::string, std::less<>> values;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = line.find(" = ");
    if (!line.starts_with('#') && equals != std::string_view::npos) values.emplace(line.substr(0, equals), line);
  }
  return values;
}

}  // namespace

std::vector<std::string> ChangedOptions(std::string_view before, std::string_view after,
                                        std::initializer_list<std::string_view> except) {
  const auto old_values = ValuesOf(before), new_values = ValuesOf(after);
  std::vector<std::string> changed;
  const auto add = [&](const auto& from, const auto& to) {
    for (const auto& [name, value] : from) {
      const auto other = to.find(name);
      if (other != to.end() && other->second == value) continue;
      const bool excepted = std::find(except.begin(), except.end(), name) != except.end();
      if (!excepted && std::find(changed.begin(), changed.end(), name) == changed.end()) changed.push_back(name);
    }
  };
  add(old_values, new_values);
  add(new_values, old_values);
  return changed;
}

}  // namespace tactus::cli
