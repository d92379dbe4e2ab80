// Binds option structs (tactus/option_fields.h) to a command line: flags, aliases, TACTUS_* environment names, one TOML
// file, --help by group, --print-config. Precedence: flag > environment > file > implied by a flag (FieldSpec::implies)
// > default. Main thread, before other threads start.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/unit_text.h"
#include "tactus/option_fields.h"
#include "tactus/status.h"

namespace tactus::cli {

struct FieldBinding {
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*, DurationText*,
                              BytesText*, std::optional<int64_t>*, std::optional<double>*>;
  std::string name;  // "max-num-seqs"
  FieldSpec spec;
  std::string group;
  Target target;
  std::string default_text;
};

// The environment variable of an option: TACTUS_MAX_NUM_SEQS of max-num-seqs.
std::string EnvironmentName(const std::string& option);
// on, true, 1, yes or off, false, 0, no. False: `text` is none of them.
bool ParseSwitch(const std::string& text, bool* out);
// Parses and range-checks a value and sets the field; the error names flag, value and limit.
Status SetField(const FieldBinding& field, const std::string& text);
// The field's value, in a form that SetField reads back.
std::string FieldText(const FieldBinding& field);

class CommandLine {
 public:
  // `usage` is the part after "tactus <command>", e.g. "[MODEL] [options]"; `about` one sentence.
  CommandLine(std::string command, std::string usage, std::string about);

  // Registers every field of an option struct, which must outlive this object.
  template <class Options>
  void Add(Options& options) {
    options.VisitFields(*this);
  }
  // A positional argument; optional unless `required`. Its key in a file is the name in lower case.
  void Positional(const std::string& name, std::string* target, bool required, const std::string& help);
  // Further positional arguments; a list in a file, with the name in lower case as key.
  void Rest(const std::string& name, std::vector<std::string>* target);

  // The options that --help lists, in the order of declaration; --help-all lists all. Without a call, or with few
  // options (kFewOptions in help_text.h), --help lists all. Precondition: the options are declared.
  void Common(std::vector<std::string> names);

  // Text at the end of --help, and text that --help-all has before it. Lines are wrapped; what follows two spaces
  // within a line continues below itself.
  void Epilog(std::string text) { epilog_ = std::move(text); }
  void Details(std::string text) { details_ = std::move(text); }

  // Visitor interface of VisitFields; also for fields declared in place.
  void Group(const std::string& group) { group_ = group; }
  template <class T>
  void Field(const char* name, T& target, FieldSpec spec) {
    AddBinding(name, spec, FieldBinding::Target(&target));
  }

  // The outcome of Parse, besides the fields that it sets.
  enum class Outcome { kRun, kDone, kBadUsage };
  // `args` without program and command. Prints help or the effective configuration to stdout, errors to stderr.
  Outcome Parse(const std::vector<std::string>& args);
  // Reads the options again, for a command that runs: prints nothing. The words that print something are ignored.
  Status Read(const std::vector<std::string>& args);
  // As Parse, for a command: returns the exit status if the command must not run.
  std::optional<int> ParseOrExit(const std::vector<std::string>& args);
  // Sets fields by name or alias and what they imply, without command line, environment or file. The name of a list may
  // occur several times. kNotFound: no such field, its name as param.
  Status Apply(const std::vector<std::pair<std::string, std::string>>& values);

  // The effective configuration as TOML for --config. Secrets are left out, each with a comment on whether it is set.
  // kInvalidArgument: a value is not UTF-8, which TOML requires.
  Result<std::string> ConfigText() const;
  struct PositionalArg {
    std::string name;
    FieldBinding field;
    bool required;
    std::string help;
  };
  const std::string& command() const { return command_; }
  const std::string& usage() const { return usage_; }
  const std::string& about() const { return about_; }
  const std::string& epilog() const { return epilog_; }
  const std::string& details() const { return details_; }
  const std::deque<FieldBinding>& fields() const { return fields_; }
  const std::vector<PositionalArg>& positionals() const { return positionals_; }
  const std::vector<std::string>& common() const { return common_; }

 private:
  // A command line, split.
  struct Given {
    std::vector<std::pair<const FieldBinding*, std::string>> values;  // in their order
    std::vector<std::string> positional;
    std::string config;
    bool help = false, help_all = false, describe = false, complete = false, print_config = false;
  };
  void AddBinding(const char* name, const FieldSpec& spec, FieldBinding::Target target);
  const FieldBinding* Find(const std::string& name) const;
  // Splits the command line at the first error: what was found before it stands in `given`.
  Status Split(const std::vector<std::string>& args, Given* given) const;
  std::vector<std::string> Names() const;         // names and aliases of all options
  Status Unknown(const std::string& flag) const;  // the error that names the nearest option
  Status ApplyAll(const Given& given);
  Status ApplyImplied(const std::vector<std::string>& already_set);  // FieldSpec::implies
  // Keys that a file may have: options, and positional arguments that are not options.
  const FieldBinding* FindKey(const std::string& name) const;

  std::string command_, usage_, about_, group_, epilog_, details_;
  std::deque<FieldBinding> fields_;
  std::vector<PositionalArg> positionals_;
  std::vector<std::string> common_;
  std::optional<FieldBinding> rest_;
};

}  // namespace tactus::cli
