#include "cli/options/option_binding.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>

#include "base/check.h"
#include "base/utf8.h"
#include "cli/options/args.h"
#include "cli/options/config_file.h"

namespace tactus::cli {
namespace {

std::string EnvironmentName(const std::string& flag) {
  std::string name = "TACTUS_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string SmallLetters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> Choices(const char* text) {
  std::vector<std::string> out(1);
  for (const char* p = text; *p; ++p) {
    if (*p == '|')
      out.emplace_back();
    else
      out.back() += *p;
  }
  return out;
}

Status BadValue(const FieldBinding& field, const std::string& text, const std::string& expected) {
  return InvalidArgument(fmt::format("--{}: '{}' is not {}", field.name, text, expected), field.name);
}

Status CheckRange(const FieldBinding& field, const std::string& text, double value) {
  const FieldSpec& s = field.spec;
  if (value >= s.min && value <= s.max) return Status();
  const bool duration = std::holds_alternative<DurationText*>(field.target);
  const auto bound = [duration](double b) {
    return duration ? FormatDuration(static_cast<int64_t>(b)) : fmt::format("{:.15g}", b);
  };
  const std::string range = std::isinf(s.max)   ? fmt::format("at least {}", bound(s.min))
                            : std::isinf(s.min) ? fmt::format("at most {}", bound(s.max))
                                                : fmt::format("from {} to {}", bound(s.min), bound(s.max));
  const std::string unit = *s.unit && !duration ? fmt::format(" {}", s.unit) : "";
  return InvalidArgument(fmt::format("--{}: {} is out of range; give a value {}{}", field.name, text, range, unit),
                         field.name);
}

// A secret of only asterisks is the masked form that listings show: accepted as a key, it would let in every reader of
// a listing.
bool IsMask(const std::string& text) {
  return !text.empty() && text.find_first_not_of('*') == std::string::npos;
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

Status SetInteger(const FieldBinding& field, const std::string& text, int64_t* to) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return BadValue(field, text, "a whole number");
  TACTUS_RETURN_IF_ERROR(CheckRange(field, text, static_cast<double>(value)));
  *to = value;
  return Status();
}

Status SetDouble(const FieldBinding& field, const std::string& text, double* to) {
  double value = 0;
  if (!ParsePlainNumber(text, &value) || (std::isinf(value) && !field.spec.infinite))
    return BadValue(field, text, "a number");
  TACTUS_RETURN_IF_ERROR(CheckRange(field, text, value));
  *to = value;
  return Status();
}

bool ParseBool(const std::string& text, bool* out) {
  if (text == "on" || text == "true" || text == "1" || text == "yes") return *out = true, true;
  if (text == "off" || text == "false" || text == "0" || text == "no") return *out = false, true;
  return false;
}

}  // namespace

Status SetField(const FieldBinding& field, const std::string& text) {
  if (const auto* p = std::get_if<bool*>(&field.target)) {
    return ParseBool(text, *p) ? Status() : BadValue(field, text, "on or off");
  }
  if (const auto* p = std::get_if<int64_t*>(&field.target)) return SetInteger(field, text, *p);
  if (const auto* p = std::get_if<std::optional<int64_t>*>(&field.target)) {
    int64_t value = 0;
    TACTUS_RETURN_IF_ERROR(SetInteger(field, text, &value));
    **p = value;
    return Status();
  }
  if (const auto* p = std::get_if<double*>(&field.target)) return SetDouble(field, text, *p);
  if (const auto* p = std::get_if<std::optional<double>*>(&field.target)) {
    double value = 0;
    TACTUS_RETURN_IF_ERROR(SetDouble(field, text, &value));
    **p = value;
    return Status();
  }
  if (const auto* p = std::get_if<DurationText*>(&field.target)) {
    const auto words = Choices(field.spec.choices);
    const auto may_be = [&words](const char* word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    for (const auto& [word, ns] : {std::pair("auto", kAutoDuration), std::pair("none", int64_t{0})}) {
      if (text == word && may_be(word)) return **p = DurationText{ns}, Status();
    }
    if (const std::string missing = MissingUnit(text); !missing.empty())
      return InvalidArgument(fmt::format("--{}: '{}' {}", field.name, text, missing), field.name);
    auto value = ParseDuration(text);
    if (!value.ok() || (value->ns == 0 && may_be("none"))) {
      std::string wanted =
          may_be("none") ? "a duration of more than 0 such as 50ms, 1.5s or 2m" : "a duration such as 50ms, 1.5s or 2m";
      for (size_t i = 0; i < words.size(); ++i) wanted += (i == 0 ? ", nor " : " or ") + words[i];
      return BadValue(field, text, wanted);
    }
    TACTUS_RETURN_IF_ERROR(CheckRange(field, text, static_cast<double>(value->ns)));
    **p = *value;
    return Status();
  }
  if (const auto* p = std::get_if<BytesText*>(&field.target)) {
    auto value = ParseBytes(text);
    if (!value.ok()) return BadValue(field, text, "a size such as 8GiB, 512MiB or a number of bytes");
    TACTUS_RETURN_IF_ERROR(CheckRange(field, text, static_cast<double>(value->bytes)));
    **p = *value;
    return Status();
  }
  if (*field.spec.choices) {
    const auto choices = Choices(field.spec.choices);
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      std::string list;
      for (const auto& c : choices)
        if (!c.empty()) list += (list.empty() ? "" : ", ") + c;
      return InvalidArgument(fmt::format("--{}: '{}' is not one of: {}", field.name, text, list), field.name);
    }
  }
  if (field.spec.secret && IsMask(text)) {
    return InvalidArgument(
        fmt::format("--{}: '{}' is the mask of a secret; give the secret itself, or leave the option out", field.name,
                    text),
        field.name);
  }
  if (const auto* p = std::get_if<std::string*>(&field.target))
    **p = text;
  else
    std::get<std::vector<std::string>*>(field.target)->push_back(text);
  return Status();
}

std::string FieldText(const FieldBinding& field) {
  if (const auto* p = std::get_if<bool*>(&field.target)) return **p ? "on" : "off";
  if (const auto* p = std::get_if<int64_t*>(&field.target)) return fmt::format("{}", **p);
  if (const auto* p = std::get_if<double*>(&field.target))
    return fmt::format("{}", **p);  // the shortest text of the
                                    // same value
  if (const auto* p = std::get_if<DurationText*>(&field.target)) {
    if ((*p)->ns == kAutoDuration) return "auto";
    return (*p)->ns == 0 && std::string_view(field.spec.choices).find("none") != std::string_view::npos
               ? "none"
               : FormatDuration((*p)->ns);
  }
  if (const auto* p = std::get_if<BytesText*>(&field.target)) return FormatBytes((*p)->bytes);
  if (const auto* p = std::get_if<std::string*>(&field.target)) return **p;
  if (const auto* p = std::get_if<std::optional<int64_t>*>(&field.target)) return **p ? fmt::format("{}", ***p) : "";
  if (const auto* p = std::get_if<std::optional<double>*>(&field.target))
    return **p ? fmt::format("{:.15g}", ***p) : "";
  std::string joined;
  for (const auto& s : *std::get<std::vector<std::string>*>(field.target)) joined += (joined.empty() ? "" : ",") + s;
  return joined;
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

std::string CommandLine::HelpText() const {
  std::string out = fmt::format("{}\n\nusage: tactus {} {}\n", about_, command_, usage_);
  for (const auto& p : positionals_) out += fmt::format("\n  {:<12} {}", p.name, p.help);
  if (!positionals_.empty()) out += "\n";
  std::vector<const FieldBinding*> by_group;  // a group that is declared in two places is shown at its first
  for (const FieldBinding& f : fields_) {
    const auto same = [&f](const FieldBinding* other) { return other->group == f.group; };
    const auto last = std::find_if(by_group.rbegin(), by_group.rend(), same);
    by_group.insert(last == by_group.rend() ? by_group.end() : last.base(), &f);
  }
  std::string group = "\n";
  for (const FieldBinding* field : by_group) {
    const FieldBinding& f = *field;
    if (f.group != group) out += fmt::format("\n{}:\n", group = f.group);
    const bool number = std::holds_alternative<int64_t*>(f.target) || std::holds_alternative<double*>(f.target) ||
                        std::holds_alternative<std::optional<int64_t>*>(f.target) ||
                        std::holds_alternative<std::optional<double>*>(f.target);
    std::string flag = (f.name.size() == 1 ? "-" : "--") + f.name;
    if (*f.spec.alias) flag += fmt::format(", {}{}", std::string(f.spec.alias).size() == 1 ? "-" : "--", f.spec.alias);
    if (std::holds_alternative<bool*>(f.target))
      flag += " on|off";
    else if (std::holds_alternative<DurationText*>(f.target) && *f.spec.choices)
      flag += fmt::format(" <{}>|{}", f.spec.unit, f.spec.choices);
    else if (*f.spec.choices)
      flag += fmt::format(" {}", f.spec.choices[0] == '|' ? f.spec.choices + 1 : f.spec.choices);
    else if (*f.spec.unit)
      flag += fmt::format(" <{}>", f.spec.unit);
    else
      flag += number ? " <number>" : " <text>";
    std::string notes;
    if (number && std::isfinite(f.spec.min) && std::isfinite(f.spec.max)) {
      notes = fmt::format("; {:.15g} to {:.15g}", f.spec.min, f.spec.max);
    } else if (number && std::isfinite(f.spec.min)) {
      notes = fmt::format("; at least {:.15g}", f.spec.min);
    }
    if (!f.default_text.empty()) notes += fmt::format("; default {}", f.default_text);
    out += fmt::format("  {:<44} {}{}\n", flag, f.spec.help, notes);
  }
  out +=
      "\nGeneral:\n"
      "  --config <file>                              TOML file with any of these names as keys\n"
      "  --print-config                               print the effective configuration and exit\n"
      "  --help                                       this text\n"
      "\nEvery flag is also an environment variable (--max-num-seqs: TACTUS_MAX_NUM_SEQS);"
      " flag > environment > file > default.\n";
  return out + epilog_;
}

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

std::vector<std::string> CommandLine::Spelled(const std::vector<std::string>& args,
                                              std::vector<std::string>* positional) const {
  const auto is_word = [](const std::string& arg) { return arg.empty() || arg[0] != '-' || arg.size() == 1; };
  std::vector<std::string> spelled;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {  // arguments after it are positional
      positional->insert(positional->end(), args.begin() + static_cast<int64_t>(i) + 1, args.end());
      break;
    }
    const bool flag = args[i].rfind("--", 0) == 0;
    const size_t equals = flag ? args[i].find('=') : std::string::npos;
    const FieldBinding* f = flag ? Find(args[i].substr(2, equals == std::string::npos ? equals : equals - 2))
                            : args[i].size() == 2 && args[i][0] == '-' ? Find(args[i].substr(1))
                                                                       : nullptr;
    const bool takes_next = equals == std::string::npos && i + 1 < args.size();
    if (f != nullptr && flag && equals == std::string::npos && std::holds_alternative<bool*>(f->target)) {
      bool unused;
      const bool has_value = takes_next && ParseBool(args[i + 1], &unused);
      spelled.push_back(args[i] + "=" + (has_value ? args[i + 1] : "on"));
      if (has_value) ++i;
      continue;
    }
    if (f == nullptr && is_word(args[i])) {
      positional->push_back(args[i]);
      continue;
    }
    spelled.push_back(args[i]);
    if (takes_next && (f != nullptr || args[i] == "--config")) spelled.push_back(args[++i]);
    if (f == nullptr || !f->spec.several || rest_) continue;
    while (positional->size() >= positionals_.size() && i + 1 < args.size() && is_word(args[i + 1])) {
      spelled.push_back("--" + f->name);
      spelled.push_back(args[++i]);
    }
  }
  return spelled;
}

Status CommandLine::ApplyAll(const std::vector<std::string>& args, bool* help, bool* print_config) {
  // CLI11 splits and matches: names, aliases, --a=b, repetitions, what is unknown. Values stay text until SetField, so
  // that flags, environment and file share one parser. What CLI11 2.1 has for them serves the user worse, and tests/cli
  // holds each case:
  //   numbers      takes 0x1 and " 1" as 1; a size of -1 is 2^64 - 1, 3KB is 3072, 0.5KiB is refused; with units that
  //                take fractions 1234567891ns is 1234570000
  //   ranges       "Value 10 not in range 1 to 9", the same for a word: neither the unit nor what to give
  //   environment  an error names no variable, an alias has none, and an empty variable passes for an unset one
  //   --config     beats the environment; "4" passes for 4, an open quote for a value; errors name no line
  //   booleans     takes the "off" of --fast off as the model, or the model as the flag's value
  //   repetition   refuses the same value twice, and does not show the two that differ
  //   help         "--count,--number INT:INT in [1 - 9]=3 (Env:TACTUS_COUNT)": no unit, and all its parts would be ours
  CLI::App app;
  app.set_help_flag();
  app.allow_extras(false);
  std::deque<std::vector<std::string>> texts;
  std::vector<CLI::Option*> options;
  for (const FieldBinding& f : fields_) {
    auto dashes = [](const std::string& n) { return (n.size() == 1 ? "-" : "--") + n; };
    std::string names = dashes(f.name);
    if (*f.spec.alias) names += "," + dashes(f.spec.alias);
    texts.emplace_back();
    CLI::Option* option = app.add_option(names, texts.back());
    option->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options.push_back(option);
  }
  std::string config;
  app.add_option("--config", config);
  app.add_flag("--print-config", *print_config);
  app.add_flag("--help,-h", *help);

  // Positional arguments are not passed to CLI11, which splits "[a,b]" into two. A boolean flag may stand alone
  // ("--reserve-full") or have a value ("--prefix-caching off").
  std::vector<std::string> positional, joined = Spelled(args, &positional);
  std::reverse(joined.begin(), joined.end());  // CLI11 reads them from the back
  try {
    app.parse(joined);
  } catch (const CLI::ParseError& e) {
    return InvalidArgument(std::string(e.what()) + fmt::format("; 'tactus {} --help' lists the flags", command_));
  }
  if (*help) return Status();

  std::vector<std::string> already_set;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (options[i]->count() == 0) continue;
    already_set.push_back(fields_[i].name);
    TACTUS_RETURN_IF_ERROR(CheckGivenOnce(fields_[i], texts[i]));
    for (const auto& text : texts[i]) TACTUS_RETURN_IF_ERROR(SetField(fields_[i], text));
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
  if (config.empty()) {
    if (const char* path = std::getenv("TACTUS_CONFIG")) config = path;
  }
  for (size_t i = 0; i < positional.size() && i < positionals_.size(); ++i)
    already_set.push_back(positionals_[i].field.name);
  if (rest_ && positional.size() > positionals_.size()) already_set.push_back(rest_->name);
  if (!config.empty()) {
    const auto find = [this](const std::string& name) { return FindKey(name); };
    TACTUS_RETURN_IF_ERROR(ApplyConfigFile(config, find, &already_set));
  }
  TACTUS_RETURN_IF_ERROR(ApplyImplied(already_set));

  for (size_t i = 0; i < positionals_.size(); ++i) {
    std::string* target = std::get<std::string*>(positionals_[i].field.target);
    if (i < positional.size())
      *target = positional[i];
    else if (positionals_[i].required && target->empty() && !*print_config) {
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
    if (field == nullptr) return NotFound(fmt::format("'{}' is not an option", name), name);
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
  bool help = false, print_config = false;
  Status status = ApplyAll(args, &help, &print_config);
  if (help) {
    std::cout << HelpText();
    return Outcome::kDone;
  }
  if (!status.ok()) {
    std::cerr << "tactus " << command_ << ": " << status.message() << "\n";
    return Outcome::kBadUsage;
  }
  if (print_config) {
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
