// Methods of str, by name.
#pragma once

#include <string_view>

#include "language/text/jinja/builtins.h"

namespace tactus::language::jinja {

struct StringMethod {
  std::string_view name;
  Value (*apply)(Interpreter& run, const Value& self, const Arguments& args);
};
const StringMethod* FindStringMethod(std::string_view name);

// str.replace; count < 0: all. Bounded by the output limit.
std::string ReplaceText(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                        int64_t count);

}  // namespace tactus::language::jinja
