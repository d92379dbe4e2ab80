// A client's rule as it is handed to llguidance, and the checks that come before it: what would make the library say
// something in words of its own, or work for very long. Internal to grammar/. Any thread.
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
  std::optional<Json> schema;  // of the kinds that are one
  std::vector<Json> inner;     // schemas within a grammar, as the client wrote them
  bool as_lark = false;        // a schema is handed over as a grammar
  bool changed = false;        // a regex is not as the client wrote it

  // Reads the rule. kInvalidArgument: what is wrong with it. kCancelled: `stop`. This and Check recurse as deep as the
  // rule's references go: on a thread with a stack of kCompileStackBytes.
  static Result<std::shared_ptr<const RuleSource>> Of(const OutputRule& rule, StopToken stop = {});
  // What is known to be wrong with it, or too much, before it is compiled.
  Status Check(StopToken stop = {}) const;
  // As llguidance calls the kind of `text`.
  const char* handed_over_as() const;
};

// How many expressions one definition of a Lark grammar intersects with '&', at most, those that it names included.
int MostIntersected(std::string_view lark);

}  // namespace tactus::language
