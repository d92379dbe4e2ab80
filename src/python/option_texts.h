// Options that Python gives by the names of their flags, as the texts that a command line would have.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/options/option_binding.h"
#include "python/status_error.h"

namespace tactus::python {

// Names as the flags have them ("max-num-seqs"); that of a list may come several times.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// Throws StatusError; kNotFound, with the name as param, for an option that there is not.
template <class Options>
void SetOptions(const OptionTexts& texts, Options* options) {
  cli::CommandLine line("", "", "");
  line.Add(*options);
  Check(line.Apply(texts));
}

// What a field holds, for Python: "flag", "whole", "number", "duration", "size" or "text".
inline const char* OptionKind(const cli::FieldBinding& field) {
  const auto& target = field.target;
  if (std::holds_alternative<bool*>(target)) return "flag";
  if (std::holds_alternative<int64_t*>(target) || std::holds_alternative<std::optional<int64_t>*>(target))
    return "whole";
  if (std::holds_alternative<double*>(target) || std::holds_alternative<std::optional<double>*>(target))
    return "number";
  if (std::holds_alternative<DurationText*>(target)) return "duration";
  if (std::holds_alternative<BytesText*>(target)) return "size";
  return "text";
}

// Names, each with its kind. Aliases too.
template <class Options>
OptionTexts OptionKinds() {
  Options options;
  cli::CommandLine line("", "", "");
  line.Add(options);
  OptionTexts kinds;
  for (const cli::FieldBinding& field : line.fields()) {
    kinds.emplace_back(field.name, OptionKind(field));
    if (*field.spec.alias != '\0') kinds.emplace_back(field.spec.alias, OptionKind(field));
  }
  return kinds;
}

}  // namespace tactus::python
