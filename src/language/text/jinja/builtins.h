// Filters, tests and global functions by name. One table row per builtin that chat templates use; the parser resolves
// names with it, so that an unknown or unsupported one is an error at compile time.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "language/text/jinja/value.h"

namespace tactus::language::jinja {

class Interpreter;

struct Arguments {
  std::span<const Value> positional;
  std::span<const std::pair<std::string_view, Value>> keywords;
};

inline bool Among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct FilterEntry {
  std::string_view name;
  Value (*apply)(Interpreter& run, const Value& input, const Arguments& args);
};
struct TestEntry {
  std::string_view name;
  bool (*apply)(Interpreter& run, const Value& input, const Arguments& args);
};

const FilterEntry* FindFilter(std::string_view name);
const TestEntry* FindTest(std::string_view name);
// True: jinja2 has a filter, test or global function of this name, but this interpreter does not.
bool IsUnsupportedFilter(std::string_view name);
bool IsUnsupportedTest(std::string_view name);
bool IsUnsupportedFunction(std::string_view name);

// Filters by topic, joined by FindFilter.
std::span<const FilterEntry> TextFilters();      // filters_text.cc
std::span<const FilterEntry> SequenceFilters();  // filters_sequence.cc

enum class Function : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };
Value CallFunction(Interpreter& run, Function function, const Arguments& args);
std::span<const std::pair<std::string_view, Function>> GlobalFunctions();

// Positional and keyword arguments matched to names, as in Python for `def f(a, b=...)`; throws its TypeErrors.
class BoundArguments {
 public:
  static constexpr size_t kMaxNames = 4;
  BoundArguments(std::string_view callee, const Arguments& args, std::initializer_list<std::string_view> names,
                 size_t required = 0);
  bool has(size_t k) const { return present_[k]; }
  const Value& operator[](size_t k) const { return values_[k]; }
  bool Flag(size_t k, bool otherwise) const { return has(k) ? Truthy(values_[k]) : otherwise; }
  int64_t Int(size_t k, int64_t otherwise) const;                     // throws if it is not an integer
  std::string_view Text(size_t k, std::string_view otherwise) const;  // throws if it is not a string

 private:
  std::string_view callee_;
  std::string_view names_[kMaxNames];
  Value values_[kMaxNames];
  bool present_[kMaxNames] = {};
};

// json.dumps as called by transformers' tojson filter.
Value ToJson(Interpreter& run, const Value& input, const Arguments& args);
double ParsePythonFloat(std::string_view text, bool* ok);

}  // namespace tactus::language::jinja
