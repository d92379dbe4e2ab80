// Converts llguidance's error for a refused rule into a message that helps a client. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json_text.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::language {

// kInvalidArgument with the rule's kind, and for a schema (else null) the keyword and its place. `changed`: the library
// received a regex in another form than the client's, so places in it are not named. A failed assertion in the library
// also counts as an error in the rule: other rules are not affected.
Status RuleError(OutputRule::Kind kind, std::string_view said, const Json* schema, bool changed = false);

}  // namespace tactus::language
