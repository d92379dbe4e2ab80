// A client's rule as passed to llguidance, and the checks before it: for input that the library would report
// incomprehensibly, or process for very long. Internal to grammar/. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

struct RuleSource {
  OutputRule::Kind kind = OutputRule::Kind::kNone;
  std::string text;
  std::optional<Json> schema;  // for kinds that are a schema
  std::vector<Json> inner;     // schemas within a grammar, as the client wrote them
  bool as_lark = false;        // a schema is passed as a grammar
  bool changed = false;        // a regex differs from the client's text

  // Reads the rule. kInvalidArgument: the error in it. kCancelled: `stop`. This and Check recurse as deep as the rule's
  // references go: call them on a thread with a stack of kCompileStackBytes.
  static Result<std::shared_ptr<const RuleSource>> Of(const OutputRule& rule, StopToken stop = {});
  // Checks for known errors and excesses before compilation.
  Status Check(StopToken stop = {}) const;
  // llguidance's name for the kind of `text`.
  const char* handed_over_as() const;
};

// The most expressions that one definition of a Lark grammar intersects with '&', with those of the names in it.
int MostIntersected(std::string_view lark);

}  // namespace tactus::language
