#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "base/unit_text.h"
#include "cli/options/option_binding.h"

namespace tactus::cli {
namespace {

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

}  // namespace

bool ParseSwitch(const std::string& text, bool* out) {
  if (text == "on" || text == "true" || text == "1" || text == "yes") return *out = true, true;
  if (text == "off" || text == "false" || text == "0" || text == "no") return *out = false, true;
  return false;
}

Status SetField(const FieldBinding& field, const std::string& text) {
  if (const auto* p = std::get_if<bool*>(&field.target)) {
    return ParseSwitch(text, *p) ? Status() : BadValue(field, text, "on or off");
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

}  // namespace tactus::cli
