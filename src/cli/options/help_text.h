// Texts made of a command line's options: --help, --help-all, and the JSON that completion and man pages are made of.
#pragma once

#include <cstddef>
#include <string>

#include "cli/options/option_binding.h"

namespace tactus::cli {

inline constexpr size_t kFewOptions = 40;  // up to here --help lists all
inline constexpr int kLeastColumns = 60, kMostColumns = 120;

struct HelpForm {
  int columns = 100;
  bool all = false;
};
// Options by group, help wrapped at `columns`.
std::string HelpText(const CommandLine& line, HelpForm form);

// The terminal's columns, from kLeastColumns to kMostColumns; 100 if standard output is not a terminal.
int TerminalColumns();

// {"command", "usage", "about", "positionals": [{"name", "required", "help"}], "options": [{"name", "alias", "takes",
// "switch", "choices", "least", "most", "default", "help", "group", "common"}]}, one line. `takes` as --help shows it;
// "least" and "most" only where there is a limit.
std::string OptionsJson(const CommandLine& line);

// A line for each option: "--flag\tits words, by |\tthe first clause of its help". Shell completion reads it.
std::string CompletionLines(const CommandLine& line);

}  // namespace tactus::cli
