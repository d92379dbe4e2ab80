// Options that Python passes by flag name, as the texts of a command line.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/options/option_binding.h"
#include "python/status_error.h"

namespace tactus::python {

// Names as in flags ("max-num-seqs"); the name of a list may occur several times.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// Throws StatusError; kNotFound, with the name as param, for an unknown option.
template <class Options>
void SetOptions(const OptionTexts& texts, Options* options) {
  cli::CommandLine line("", "", "");
  line.Add(*options);
  Check(line.Apply(texts));
}

// The type of a field for Python: "flag", "whole", "number", "duration", "size" or "text".
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

// Names with their types, aliases included.
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
