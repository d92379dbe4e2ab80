#include "engine/start/options_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

namespace tactus::engine {
namespace {

struct OptionEcho {
  std::string text;
  void Group(const char*) {}
  static std::string Show(bool v) { return v ? "on" : "off"; }
  static std::string Show(const std::string& v) { return v; }
  static std::string Show(const DurationText& v) { return v.ns == kAutoDuration ? "auto" : fmt::format("{}ns", v.ns); }
  static std::string Show(const BytesText& v) { return fmt::format("{}", v.bytes); }
  static std::string Show(double v) { return fmt::format("{}", v); }
  template <class T>
  static std::string Show(const std::optional<T>& v) {
    return v ? fmt::format("{}", *v) : "";
  }
  static std::string Show(int64_t v) { return fmt::format("{}", v); }
  static std::string Show(const std::vector<std::string>& v) { return fmt::format("{}", fmt::join(v, "; ")); }
  template <class T>
  void Field(const char* name, T& value, const FieldSpec&) {
    text += fmt::format("{} = {}\n", name, Show(value));
  }
};

}  // namespace

std::string OptionsText(EngineOptions options) {
  OptionEcho echo;
  options.VisitFields(echo);
  return echo.text;
}

}  // namespace tactus::engine
