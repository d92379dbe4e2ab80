#include "grammar/rule_error.h"

#include <fmt/format.h>

#include "grammar/grammar_engine.h"

namespace tactus::grammar {

Status RuleError(OutputRule::Kind kind, std::string_view said, const json_text::Json* schema) {
  (void)schema;
  return InvalidArgument(fmt::format("{}: {}", RuleName(kind), said));
}

}  // namespace tactus::grammar
