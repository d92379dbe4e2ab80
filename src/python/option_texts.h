// Options that Python gives by the names of their flags, as the texts that a command line would have.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/option_binding.h"
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

// Aliases too.
template <class Options>
std::vector<std::string> OptionNames() {
  Options options;
  cli::CommandLine line("", "", "");
  line.Add(options);
  std::vector<std::string> names;
  for (const cli::FieldBinding& field : line.fields()) {
    names.push_back(field.name);
    if (*field.spec.alias != '\0') names.push_back(field.spec.alias);
  }
  return names;
}

}  // namespace tactus::python
