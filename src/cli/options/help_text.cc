#include "cli/options/help_text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/json.h"

namespace tactus::cli {
namespace {

constexpr size_t kHelpColumn = 30;

bool IsNumber(const FieldBinding& f) {
  return std::holds_alternative<int64_t*>(f.target) || std::holds_alternative<double*>(f.target) ||
         std::holds_alternative<std::optional<int64_t>*>(f.target) ||
         std::holds_alternative<std::optional<double>*>(f.target);
}

std::string Dashed(const std::string& name) {
  return (name.size() == 1 ? "-" : "--") + name;
}

// "<tokens>", "on|off", "auto|float32|bfloat16".
std::string Takes(const FieldBinding& f) {
  if (std::holds_alternative<bool*>(f.target)) return "on|off";
  if (std::holds_alternative<DurationText*>(f.target) && *f.spec.choices)
    return fmt::format("<{}>|{}", f.spec.unit, f.spec.choices);
  if (*f.spec.choices) return f.spec.choices[0] == '|' ? f.spec.choices + 1 : f.spec.choices;
  if (*f.spec.unit) return fmt::format("<{}>", f.spec.unit);
  return IsNumber(f) ? "<number>" : "<text>";
}

std::string HelpOf(const FieldBinding& f) {
  std::string help = f.spec.help;
  if (IsNumber(f) && std::isfinite(f.spec.min) && std::isfinite(f.spec.max)) {
    help += fmt::format("; {:.15g} to {:.15g}", f.spec.min, f.spec.max);
  } else if (IsNumber(f) && std::isfinite(f.spec.min)) {
    help += fmt::format("; at least {:.15g}", f.spec.min);
  }
  if (!f.default_text.empty()) help += fmt::format("; default {}", f.default_text);
  return help;
}

// `text` in lines of at most `columns`, each after the first behind `indent` spaces; the first continues at `used`.
std::string Wrapped(std::string_view text, size_t used, size_t indent, size_t columns) {
  std::string out;
  size_t at = used;
  bool begins = true;  // a line, behind its indentation
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!begins && at + 1 + word.size() > columns) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!begins) {
      out += ' ';
      ++at;
    }
    begins = false;
    out += word;
    at += word.size();
  }
  return out;
}

// A flag in the first column, its help in the second, on the next line if the flag is too long.
std::string Entry(const std::string& flag, const std::string& help, size_t columns) {
  std::string out = "  " + flag;
  if (out.size() + 2 > kHelpColumn) {
    out += "\n" + std::string(kHelpColumn, ' ');
  } else {
    out.resize(kHelpColumn, ' ');
  }
  return out + Wrapped(help, kHelpColumn, kHelpColumn, columns) + "\n";
}

// Each line wrapped. What follows two spaces or more within a line continues below itself.
std::string WrappedLines(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    const size_t gap = line.find("  ", first);
    const size_t body = gap == std::string_view::npos ? first : std::min(line.find_first_not_of(' ', gap), line.size());
    out += line.substr(0, body);
    out += Wrapped(line.substr(body), body, body, columns) + "\n";
  }
  return out;
}

// By group; a group that is declared in two places is shown at its first.
std::vector<const FieldBinding*> ByGroup(const CommandLine& line) {
  std::vector<const FieldBinding*> by_group;
  for (const FieldBinding& f : line.fields()) {
    const auto same = [&f](const FieldBinding* other) { return other->group == f.group; };
    const auto last = std::find_if(by_group.rbegin(), by_group.rend(), same);
    by_group.insert(last == by_group.rend() ? by_group.end() : last.base(), &f);
  }
  return by_group;
}

bool IsCommon(const CommandLine& line, const FieldBinding& f) {
  return std::any_of(line.common().begin(), line.common().end(),
                     [&f](const std::string& name) { return name == f.name || name == f.spec.alias; });
}

}  // namespace

int TerminalColumns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<int>(size.ws_col, kLeastColumns, kMostColumns);
}

std::string HelpText(const CommandLine& line, HelpForm form) {
  const auto columns = static_cast<size_t>(form.columns);
  std::string out = Wrapped(line.about(), 0, 0, columns) + "\n\n";
  out += Wrapped(fmt::format("usage: tactus {} {}", line.command(), line.usage()), 0, 7, columns) + "\n";
  if (!line.positionals().empty()) out += "\n";
  for (const auto& p : line.positionals()) out += Entry(p.name, p.help, columns);
  const bool all = form.all || line.common().empty() || line.fields().size() <= kFewOptions;
  std::string group = "\n";
  size_t hidden = 0;
  for (const FieldBinding* f : ByGroup(line)) {
    if (!all && !IsCommon(line, *f)) {
      ++hidden;
      continue;
    }
    if (f->group != group) out += fmt::format("\n{}:\n", group = f->group);
    const std::string alias = *f->spec.alias ? ", " + Dashed(f->spec.alias) : "";
    out += Entry(Dashed(f->name) + alias + " " + Takes(*f), HelpOf(*f), columns);
  }
  out += "\nGeneral:\n" + Entry("--config <file>", "TOML file with any of these names as keys", columns) +
         Entry("--print-config", "print the effective configuration and exit", columns) +
         Entry("--help, --help-all",
               hidden == 0 ? "this text" : fmt::format("this text; {} more options with --help-all", hidden), columns);
  out += "\n" +
         Wrapped(
             "Every flag is also an environment variable (--max-num-seqs: TACTUS_MAX_NUM_SEQS); flag > environment > "
             "file > default.",
             0, 0, columns) +
         "\n";
  if (all) out += WrappedLines(line.details(), columns);
  return out + WrappedLines(line.epilog(), columns);
}

std::string OptionsJson(const CommandLine& line) {
  Json positionals = Json::array(), options = Json::array();
  for (const auto& p : line.positionals())
    positionals.push_back(Json{{"name", p.name}, {"required", p.required}, {"help", p.help}});
  for (const FieldBinding* f : ByGroup(line)) {
    Json option{{"name", f->name},
                {"alias", f->spec.alias},
                {"takes", Takes(*f)},
                {"switch", std::holds_alternative<bool*>(f->target)},
                {"choices", f->spec.choices},
                {"number", IsNumber(*f)},
                {"default", f->default_text},
                {"help", f->spec.help},
                {"group", f->group},
                {"common", line.common().empty() || IsCommon(line, *f)}};
    if (std::isfinite(f->spec.min)) option["least"] = f->spec.min;
    if (std::isfinite(f->spec.max)) option["most"] = f->spec.max;
    options.push_back(std::move(option));
  }
  const Json all{{"command", line.command()},
                 {"usage", line.usage()},
                 {"about", line.about()},
                 {"positionals", std::move(positionals)},
                 {"options", std::move(options)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CompletionLines(const CommandLine& line) {
  std::string out;
  for (const FieldBinding& f : line.fields()) {
    const std::string_view help = f.spec.help;
    const char* words = std::holds_alternative<bool*>(f.target) ? "on|off" : f.spec.choices;
    out += fmt::format("{}\t{}\t{}\n", Dashed(f.name), words, help.substr(0, help.find_first_of(";:(")));
  }
  return out +
         "--config\t\tTOML file of options\n--print-config\t\tprint the effective configuration\n"
         "--help\t\tcommon options\n--help-all\t\tall options\n";
}

}  // namespace tactus::cli
