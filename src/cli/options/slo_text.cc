#include "cli/options/slo_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/printable.h"
#include "cli/options/option_binding.h"

namespace tactus::cli {

Result<Slo> ParseSlo(const std::string& text) {
  Slo slo;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size()), eq = text.find('=', at);
    const std::string name = text.substr(at, eq == std::string::npos ? comma - at : eq - at);
    int64_t* field = name == "ttft"  ? &slo.ttft_ns
                     : name == "tbt" ? &slo.tbt_ns
                     : name == "jct" ? &slo.jct_ns
                                     : nullptr;
    const std::string typed = eq < comma ? text.substr(eq + 1, comma - eq - 1) : "";
    if (const std::string missing = MissingUnit(typed); field && !missing.empty())
      return InvalidArgument(fmt::format("--slo: {} '{}' {}", name, Printable(typed), missing), "slo");
    auto value = eq < comma ? ParseDuration(typed) : InvalidArgument("none");
    if (!field || !value.ok() || value->ns <= 0) {
      return InvalidArgument(fmt::format("--slo: '{}' is not of the form ttft=500ms,tbt=100ms,jct=10s", text), "slo");
    }
    if (*field > 0) {
      return InvalidArgument(fmt::format("--slo: '{}': {} is given twice; give it once", Printable(text), name), "slo");
    }
    *field = value->ns;
    at = comma + 1;
  }
  return slo;
}

namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

Status BadMix(const std::string& part, const std::string& why) {
  return InvalidArgument(fmt::format("--slo-mix: '{}': {}; such as 'chat:0.5:ttft=10x,tbt=140..234ms;batch:0.2:none'",
                                     Printable(part), why),
                         "slo-mix");
}

// A finite number above 0 that spans the whole text.
std::optional<double> Positive(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    return std::nullopt;
  return value;
}

// 500ms, 140..234ms, 0.1s..1s, 10x or 5..10x; in a range without a unit at its left end, the unit of the right end
// applies.
std::optional<sim::ObjectiveRange> ReadRange(const std::string& text) {
  const size_t dots = text.find("..");
  std::string low = text.substr(0, dots), high = dots == std::string::npos ? low : text.substr(dots + 2);
  const std::string unit = high.substr(std::min(high.find_last_of("0123456789.") + 1, high.size()));
  if (!low.empty() && std::string_view("0123456789.").find(low.back()) != std::string_view::npos && low != high)
    low += unit;
  sim::ObjectiveRange range;
  const auto read = [&](std::string number) -> std::optional<double> {
    if (unit == "x") {
      if (number.empty() || number.back() != 'x') return std::nullopt;
      number.pop_back();
      return Positive(number);
    }
    const auto duration = ParseDuration(number);
    return duration.ok() && duration->ns > 0 ? std::optional(static_cast<double>(duration->ns)) : std::nullopt;
  };
  const auto from = read(low), to = read(high);
  if (!from || !to || *from > *to) return std::nullopt;
  range.low = *from;
  range.high = *to;
  range.times_alone = unit == "x";
  return range;
}

Status ReadObjectives(const std::string& part, const std::string& text, sim::SloClass* out) {
  if (text == "none") return Status();
  for (const std::string& objective : Split(text, ',')) {
    const size_t eq = objective.find('=');
    const std::string name = objective.substr(0, eq);
    sim::ObjectiveRange* range = name == "ttft"  ? &out->ttft
                                 : name == "tbt" ? &out->tbt
                                 : name == "jct" ? &out->jct
                                                 : nullptr;
    if (range == nullptr || eq == std::string::npos)
      return BadMix(part, fmt::format("'{}' is not one of ttft=, tbt=, jct= and none", Printable(objective)));
    if (range->high > 0) return BadMix(part, fmt::format("'{}' twice", name));
    const std::string typed = objective.substr(eq + 1);
    const size_t dots = typed.find("..");
    const std::string last = dots == std::string::npos ? typed : typed.substr(dots + 2);
    if (const std::string missing = MissingUnit(last); !missing.empty())
      return BadMix(part, fmt::format("'{}' {}", Printable(objective), missing));
    const auto value = ReadRange(typed);
    if (!value) {
      return BadMix(part,
                    fmt::format("'{}' is not a duration above 0, a multiple Nx or an ascending range a..b of them",
                                Printable(objective)));
    }
    *range = *value;
  }
  if (out->ttft.high > 0 && out->jct.high > 0 && out->ttft.times_alone == out->jct.times_alone &&
      !out->ttft.times_alone && out->ttft.low > out->jct.high) {
    return BadMix(part, "the first token is due after the whole answer: lower ttft, or leave one of the two out");
  }
  return Status();
}

}  // namespace

Result<sim::SloMix> ParseSloMix(const std::string& text) {
  sim::SloMix mix;
  if (text.empty()) return mix;
  for (const std::string& part : Split(text, ';')) {
    const std::vector<std::string> fields = Split(part, ':');
    if (fields.size() != 2 && fields.size() != 3) {
      return BadMix(part, fmt::format("{} fields instead of the 3 of NAME:SHARE:OBJECTIVES or the 2 of NAME:OBJECTIVES",
                                      fields.size()));
    }
    sim::SloClass c;
    c.name = fields[0];
    const bool control =
        std::any_of(c.name.begin(), c.name.end(), [](char b) { return static_cast<uint8_t>(b) < 0x20; });
    if (c.name.empty() || c.name.size() > sim::kMostClassNameBytes || control) {
      return BadMix(part,
                    fmt::format("a class name has 1 to {} bytes and no control characters", sim::kMostClassNameBytes));
    }
    if (std::any_of(mix.classes.begin(), mix.classes.end(), [&c](const sim::SloClass& o) { return o.name == c.name; }))
      return BadMix(part, fmt::format("class '{}' twice", c.name));
    if (fields.size() == 3) {
      const auto share = Positive(fields[1]);
      if (!share || *share > 1e6)
        return BadMix(part, fmt::format("share '{}' is not a number above 0 and at most 1e6", Printable(fields[1])));
      c.share = *share;
    }
    if (!mix.classes.empty() && mix.by_workload() != (c.share == 0))
      return BadMix(part, "some classes have a share and some have none: give a share to all of them or to none");
    TACTUS_RETURN_IF_ERROR(ReadObjectives(part, fields.back(), &c));
    mix.classes.push_back(std::move(c));
  }
  return mix;
}

}  // namespace tactus::cli
