// Splitting of command lines: names, aliases, --a=b, -oFILE, booleans that stand alone, repetitions, what is unknown.
// Values stay text until SetField, so that flags, environment and file share one parser.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "base/check.h"
#include "cli/options/args.h"
#include "cli/options/config_file.h"
#include "cli/options/help_text.h"
#include "cli/options/nearest.h"
#include "cli/options/option_binding.h"

namespace tactus::cli {
namespace {

std::string SmallLetters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Two different values of one flag are ambiguous; the same value twice is harmless.
Status CheckGivenOnce(const FieldBinding& field, const std::vector<std::string>& texts) {
  if (std::holds_alternative<std::vector<std::string>*>(field.target)) return Status();
  for (const std::string& text : texts) {
    if (text == texts[0]) continue;
    const std::string values = field.spec.secret ? "" : fmt::format(" ('{}' and '{}')", texts[0], text);
    return InvalidArgument(fmt::format("--{} is given twice{}; give it once", field.name, values), field.name);
  }
  return Status();
}

bool IsWord(const std::string& arg) {
  return arg.empty() || arg[0] != '-' || arg.size() == 1;
}

}  // namespace

std::string EnvironmentName(const std::string& flag) {
  std::string name = "TACTUS_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

CommandLine::CommandLine(std::string command, std::string usage, std::string about)
    : command_(std::move(command)), usage_(std::move(usage)), about_(std::move(about)) {}

void CommandLine::AddBinding(const char* name, const FieldSpec& spec, FieldBinding::Target target) {
  FieldBinding field{name, spec, group_, target, {}};
  field.default_text = FieldText(field);
  fields_.push_back(std::move(field));
}

void CommandLine::Positional(const std::string& name, std::string* target, bool required, const std::string& help) {
  positionals_.push_back({name, {SmallLetters(name), {}, "", target, ""}, required, help});
}

void CommandLine::Common(std::vector<std::string> names) {
  for (const std::string& name : names) TACTUS_CHECK_MSG(Find(name) != nullptr, name + " is no option");
  common_ = std::move(names);
}

void CommandLine::Rest(const std::string& name, std::vector<std::string>* target) {
  rest_ = FieldBinding{SmallLetters(name), {}, "", target, ""};
}

const FieldBinding* CommandLine::Find(const std::string& name) const {
  if (name.empty()) return nullptr;  // "--", and no alias
  for (const FieldBinding& f : fields_) {
    if (f.name == name || name == f.spec.alias) return &f;
  }
  return nullptr;
}

const FieldBinding* CommandLine::FindKey(const std::string& name) const {
  if (const FieldBinding* option = Find(name)) return option;
  for (const PositionalArg& p : positionals_) {
    if (p.field.name == name) return &p.field;
  }
  return rest_ && rest_->name == name ? &*rest_ : nullptr;
}

std::vector<std::string> CommandLine::Names() const {
  std::vector<std::string> names;
  for (const FieldBinding& f : fields_) {
    names.push_back(f.name);
    if (*f.spec.alias) names.emplace_back(f.spec.alias);
  }
  return names;
}

Status CommandLine::Unknown(const std::string& flag) const {
  std::vector<std::string> names = Names();
  names.insert(names.end(), {"config", "print-config", "help", "help-all"});
  const std::string dashes = flag.substr(0, std::min(flag.find_first_not_of('-'), size_t{2}));
  const std::string name = flag.substr(dashes.size());
  const std::string nearest = Nearest(name, names);
  const std::string meant =
      nearest.empty() ? ";" : fmt::format("; did you mean {}{}?", nearest.size() == 1 ? "-" : "--", nearest);
  return InvalidArgument(
      fmt::format("unknown option {}{} 'tactus {} --help-all' lists all options", flag, meant, command_), name);
}

Status CommandLine::Split(const std::vector<std::string>& args, Given* given) const {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {  // all behind it is positional
      given->positional.insert(given->positional.end(), args.begin() + static_cast<int64_t>(i) + 1, args.end());
      break;
    }
    if (IsWord(arg)) {
      given->positional.push_back(arg);
      continue;
    }
    const bool is_long = arg.rfind("--", 0) == 0;
    const size_t equals = is_long ? arg.find('=') : std::string::npos;
    const std::string flag = is_long ? arg.substr(0, equals) : arg.substr(0, 2);
    if (equals == std::string::npos && (is_long || arg.size() == 2)) {
      bool* const on = flag == "--help" || flag == "-h" ? &given->help
                       : flag == "--help-all"           ? &given->help_all
                       : flag == "--describe-options"   ? &given->describe
                       : flag == "--complete-options"   ? &given->complete
                       : flag == "--print-config"       ? &given->print_config
                                                        : nullptr;
      if (on != nullptr) {
        *on = true;
        continue;
      }
    }
    const FieldBinding* field = Find(flag.substr(is_long ? 2 : 1));
    const bool config = flag == "--config";
    if (field == nullptr && !config) return Unknown(flag);
    std::string value;
    if (equals != std::string::npos) {
      value = arg.substr(equals + 1);
    } else if (!is_long && arg.size() > 2) {
      value = arg.substr(2);
    } else if (field != nullptr && is_long && std::holds_alternative<bool*>(field->target)) {
      bool unused;
      value = i + 1 < args.size() && ParseSwitch(args[i + 1], &unused) ? args[++i] : "on";
    } else {
      const bool missing = i + 1 == args.size() || (args[i + 1].rfind("--", 0) == 0 && args[i + 1].size() > 2);
      if (missing) {
        return InvalidArgument(fmt::format("{}: the value is missing; give {}{}VALUE", flag, flag, is_long ? "=" : " "),
                               flag.substr(is_long ? 2 : 1));
      }
      value = args[++i];
    }
    if (config) {
      given->config = value;
      continue;
    }
    given->values.emplace_back(field, value);
    if (!field->spec.several || rest_) continue;
    while (given->positional.size() >= positionals_.size() && i + 1 < args.size() && IsWord(args[i + 1]))
      given->values.emplace_back(field, args[++i]);
  }
  return Status();
}

Status CommandLine::ApplyAll(const Given& given) {
  std::vector<std::string> already_set;
  for (const FieldBinding& f : fields_) {
    std::vector<std::string> texts;
    for (const auto& [field, text] : given.values) {
      if (field == &f) texts.push_back(text);
    }
    if (texts.empty()) continue;
    already_set.push_back(f.name);
    TACTUS_RETURN_IF_ERROR(CheckGivenOnce(f, texts));
    for (const auto& text : texts) TACTUS_RETURN_IF_ERROR(SetField(f, text));
  }
  for (const FieldBinding& f : fields_) {
    if (std::find(already_set.begin(), already_set.end(), f.name) != already_set.end()) continue;
    const char* value = std::getenv(EnvironmentName(f.name).c_str());
    if (!value && *f.spec.alias) value = std::getenv(EnvironmentName(f.spec.alias).c_str());
    if (!value) continue;
    already_set.push_back(f.name);
    Status s = SetField(f, value);
    if (!s.ok()) return InvalidArgument(fmt::format("{}: {}", EnvironmentName(f.name), s.message()), f.name);
  }
  std::string config = given.config;
  if (config.empty()) {
    if (const char* path = std::getenv("TACTUS_CONFIG")) config = path;
  }
  const std::vector<std::string>& positional = given.positional;
  for (size_t i = 0; i < positional.size() && i < positionals_.size(); ++i)
    already_set.push_back(positionals_[i].field.name);
  if (rest_ && positional.size() > positionals_.size()) already_set.push_back(rest_->name);
  if (!config.empty()) {
    const auto find = [this](const std::string& name) { return FindKey(name); };
    TACTUS_RETURN_IF_ERROR(ApplyConfigFile(config, find, Names(), &already_set));
  }
  TACTUS_RETURN_IF_ERROR(ApplyImplied(already_set));

  for (size_t i = 0; i < positionals_.size(); ++i) {
    std::string* target = std::get<std::string*>(positionals_[i].field.target);
    if (i < positional.size())
      *target = positional[i];
    else if (positionals_[i].required && target->empty() && !given.print_config) {
      return InvalidArgument(fmt::format("{} is missing: tactus {} {}", positionals_[i].name, command_, usage_));
    }
  }
  if (positional.size() > positionals_.size()) {
    if (!rest_) {
      return InvalidArgument(
          fmt::format("unexpected argument '{}': tactus {} {}", positional[positionals_.size()], command_, usage_));
    }
    std::get<std::vector<std::string>*>(rest_->target)
        ->assign(positional.begin() + static_cast<int64_t>(positionals_.size()), positional.end());
  }
  return Status();
}

Status CommandLine::Apply(const std::vector<std::pair<std::string, std::string>>& values) {
  std::vector<std::string> set;
  for (const auto& [name, text] : values) {
    const FieldBinding* field = Find(name);
    if (field == nullptr) {
      return NotFound(fmt::format("'{}' is not an option; 'tactus {} --help-all' lists all options", name, command_),
                      name);
    }
    const bool again = std::find(set.begin(), set.end(), field->name) != set.end();
    if (again && !std::holds_alternative<std::vector<std::string>*>(field->target))
      return InvalidArgument(fmt::format("--{} is given twice; give it once", field->name), field->name);
    TACTUS_RETURN_IF_ERROR(SetField(*field, text));
    set.push_back(field->name);
  }
  return ApplyImplied(set);
}

Status CommandLine::ApplyImplied(const std::vector<std::string>& already_set) {
  for (const FieldBinding& f : fields_) {
    const auto* on = std::get_if<bool*>(&f.target);
    if (*f.spec.implies == '\0' || on == nullptr || !**on) continue;
    std::istringstream pairs(f.spec.implies);
    for (std::string pair; pairs >> pair;) {
      const size_t equals = pair.find('=');
      const FieldBinding* implied = Find(pair.substr(0, equals));
      TACTUS_CHECK_MSG(implied != nullptr && equals != std::string::npos, f.name + " implies '" + pair + "'");
      if (std::find(already_set.begin(), already_set.end(), implied->name) != already_set.end()) continue;
      TACTUS_RETURN_IF_ERROR(SetField(*implied, pair.substr(equals + 1)));
    }
  }
  return Status();
}

CommandLine::Outcome CommandLine::Parse(const std::vector<std::string>& args) {
  Given given;
  Status status = Split(args, &given);
  if (given.help || given.help_all) {
    std::cout << HelpText(*this, {.columns = TerminalColumns(), .all = given.help_all});
    return Outcome::kDone;
  }
  if (given.describe) {
    std::cout << OptionsJson(*this);
    return Outcome::kDone;
  }
  if (given.complete) {
    std::cout << CompletionLines(*this);
    return Outcome::kDone;
  }
  if (status.ok()) status = ApplyAll(given);
  if (!status.ok()) {
    std::cerr << "tactus " << command_ << ": " << status.message() << "\n";
    return Outcome::kBadUsage;
  }
  if (given.print_config) {
    const auto text = ConfigText();
    if (!text.ok()) {
      std::cerr << "tactus " << command_ << ": " << text.status().message() << "\n";
      return Outcome::kBadUsage;
    }
    std::cout << *text;
    return Outcome::kDone;
  }
  return Outcome::kRun;
}

Status CommandLine::Read(const std::vector<std::string>& args) {
  Given given;
  TACTUS_RETURN_IF_ERROR(Split(args, &given));
  return ApplyAll(given);
}

std::optional<int> CommandLine::ParseOrExit(const std::vector<std::string>& args) {
  switch (Parse(args)) {
    case Outcome::kDone:
      return kExitOk;
    case Outcome::kBadUsage:
      return kExitUsage;
    case Outcome::kRun:
      break;
  }
  return std::nullopt;
}

}  // namespace tactus::cli
