// What llguidance says of a rule that it refuses, made into what a client can act on. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json_text.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::language {

// kInvalidArgument with the rule's kind, and of a schema (else null) the keyword and where it stands. `changed`: a
// regex was handed over in another form than the client's, so that places in it are not named. A failed assertion of
// the library is a fault of the rule as well: no other rule meets it.
Status RuleError(OutputRule::Kind kind, std::string_view said, const Json* schema, bool changed = false);

}  // namespace tactus::language
