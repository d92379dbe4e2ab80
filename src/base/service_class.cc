#include "base/service_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/unit_text.h"

namespace tactus {
namespace {

constexpr size_t kMostNameBytes = 64;
// Values of gate= and the gate (core/sched/choices.def) of each.
constexpr std::pair<const char*, const char*> kGates[] = {{"off", "none"}, {"queue", "queue"}, {"shed", "predict"}};

Status Bad(const std::string& text, const std::string& why) {
  return InvalidArgument(
      fmt::format("--slo-class: '{}': {}; such as interactive:ttft=500ms,tbt=50ms,weight=4,share=20%,gate=shed",
                  Printable(text), why),
      "slo-class");
}

bool ReadNumber(std::string_view text, double* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool ReadShare(std::string_view text, double* out) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  if (!ReadNumber(text, out)) return false;
  if (percent) *out /= 100;
  return *out > 0 && *out <= 1;
}

Status ReadField(const std::string& text, const std::string& field, ServiceClass* out, std::vector<std::string>* seen) {
  const size_t eq = field.find('=');
  const std::string name = field.substr(0, eq), value = eq == std::string::npos ? "" : field.substr(eq + 1);
  int64_t* const objective = name == "ttft"  ? &out->slo.ttft_ns
                             : name == "tbt" ? &out->slo.tbt_ns
                             : name == "jct" ? &out->slo.jct_ns
                                             : nullptr;
  if (objective == nullptr && name != "weight" && name != "share" && name != "gate")
    return Bad(text, fmt::format("'{}' is none of ttft=, tbt=, jct=, weight=, share= and gate=", Printable(field)));
  if (std::find(seen->begin(), seen->end(), name) != seen->end()) return Bad(text, fmt::format("{} twice", name));
  seen->push_back(name);
  if (objective != nullptr) {
    if (const std::string missing = MissingUnit(value); !missing.empty())
      return Bad(text, fmt::format("{} '{}' {}", name, Printable(value), missing));
    const auto duration = ParseDuration(value);
    if (!duration.ok() || duration->ns <= 0)
      return Bad(text, fmt::format("{} '{}' is no duration above 0", name, Printable(value)));
    *objective = duration->ns;
    return Status();
  }
  if (name == "gate") {
    const auto gate =
        std::find_if(std::begin(kGates), std::end(kGates), [&](const auto& g) { return value == g.first; });
    if (gate == std::end(kGates))
      return Bad(text, fmt::format("gate '{}' is none of off, queue and shed", Printable(value)));
    out->gate = gate->second;
    return Status();
  }
  if (name == "share") {
    if (!ReadShare(value, &out->share))
      return Bad(text,
                 fmt::format("share '{}' is no share above 0 and up to 100%, such as 20% or 0.2", Printable(value)));
    return Status();
  }
  if (!ReadNumber(value, &out->weight) || !(out->weight >= kLeastClassWeight && out->weight <= kMostClassWeight)) {
    return Bad(text, fmt::format("weight '{}' is no number from {} to {}", Printable(value), kLeastClassWeight,
                                 kMostClassWeight));
  }
  return Status();
}

Result<ServiceClass> ParseOne(const std::string& text) {
  const size_t colon = text.find(':');
  ServiceClass c;
  c.name = text.substr(0, colon);
  const bool control = std::any_of(c.name.begin(), c.name.end(), [](char b) { return static_cast<uint8_t>(b) < 0x20; });
  if (c.name.empty() || c.name.size() > kMostNameBytes || control)
    return Bad(text, fmt::format("a class has a name of 1 to {} bytes without control characters", kMostNameBytes));
  std::vector<std::string> seen;
  for (size_t at = colon == std::string::npos ? text.size() : colon + 1; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    TACTUS_RETURN_IF_ERROR(ReadField(text, text.substr(at, comma - at), &c, &seen));
    at = comma + 1;
  }
  if (c.slo.ttft_ns > 0 && c.slo.jct_ns > 0 && c.slo.ttft_ns > c.slo.jct_ns) {
    return Bad(text, "the first token is due after the whole answer: lower ttft, or leave one of the two out");
  }
  return c;
}

}  // namespace

Result<std::vector<ServiceClass>> ParseServiceClasses(const std::vector<std::string>& texts) {
  std::vector<ServiceClass> classes;
  double shares = 0;
  for (const std::string& text : texts) {
    if (classes.size() == kMostServiceClasses)
      return Bad(text, fmt::format("more than {} classes", kMostServiceClasses));
    TACTUS_ASSIGN_OR_RETURN(ServiceClass c, ParseOne(text));
    if (FindServiceClass(classes, c.name) != 0) return Bad(text, fmt::format("class '{}' is declared twice", c.name));
    shares += c.share;
    if (shares > 1 + 1e-9) {
      return Bad(text, fmt::format("the shares of all classes up to this one are {:.4g} % together; at most 100 %",
                                   100 * shares));
    }
    classes.push_back(std::move(c));
  }
  return classes;
}

std::string TextOf(const ServiceClass& c) {
  std::string text = c.name + ":";
  const auto add = [&text](const char* name, int64_t ns) {
    if (ns > 0) text += fmt::format("{}={},", name, FormatDuration(ns));
  };
  add("ttft", c.slo.ttft_ns);
  add("tbt", c.slo.tbt_ns);
  add("jct", c.slo.jct_ns);
  text += fmt::format("weight={}", c.weight);
  if (c.share > 0) text += fmt::format(",share={}", c.share);
  for (const auto& [word, gate] : kGates) {
    if (c.gate == gate) text += fmt::format(",gate={}", word);
  }
  return text;
}

uint8_t FindServiceClass(const std::vector<ServiceClass>& classes, std::string_view name) {
  const auto found = std::find_if(classes.begin(), classes.end(), [name](const auto& c) { return c.name == name; });
  return found == classes.end() ? 0 : static_cast<uint8_t>(found - classes.begin() + 1);
}

Status ApplyServiceClass(const std::vector<ServiceClass>& classes, Request* request) {
  if (classes.empty() || request->slo_class.empty()) return Status();
  const uint8_t index = FindServiceClass(classes, request->slo_class);
  if (index == 0) {
    std::string known;
    for (const ServiceClass& c : classes) known += (known.empty() ? "" : ", ") + c.name;
    return InvalidArgument(fmt::format("slo.class '{}' is unknown; this server has {}: name one of them, or state "
                                       "objectives without a class",
                                       Printable(request->slo_class), known),
                           "slo.class");
  }
  const Slo& of_class = classes[index - 1u].slo;
  const Slo own = request->slo;
  // The request's own objectives win: a class objective that would make the first token due after the whole answer is
  // not set.
  if (own.ttft_ns == 0 && (own.jct_ns == 0 || of_class.ttft_ns <= own.jct_ns)) request->slo.ttft_ns = of_class.ttft_ns;
  if (own.tbt_ns == 0) request->slo.tbt_ns = of_class.tbt_ns;
  if (own.jct_ns == 0 && of_class.jct_ns >= own.ttft_ns) request->slo.jct_ns = of_class.jct_ns;
  return Status();
}

}  // namespace tactus
