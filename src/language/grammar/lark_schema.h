// Writes a schema with numbers that the grammar library's doubles cannot hold as a grammar in Lark's notation: the path
// to such a number is spelled out, and all else is JSON schema. Internal to grammar/. Any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

inline constexpr std::array<const char*, 4> kBounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

bool HoldsValues(std::string_view keyword);                        // holds plain JSON
bool HoldsSchemas(std::string_view keyword);                       // holds schemas by name
const Json* Member(const Json& schema, std::string_view keyword);  // null: absent
// Whether the library's double represents the number exactly and unambiguously.
bool IsKept(const Json& number);
// The first number in a constant that is not kept; null: none. The recursion is bounded by the JSON's depth.
const Json* FindLost(const Json& value);
// The first one in the schema's own keywords.
const Json* OwnLost(const Json& schema);

struct LarkSchema {
  std::string rules, start;  // rules, and the expression for the whole schema
};
// Nothing: no number that affects an answer is lost. Names of rules begin with `prefix`. kUnimplemented, with the
// keyword alone as its message: a number that is not kept cannot be written beside it. kInvalidArgument: a limit, with
// the whole message. kCancelled: `stop`. Recurses as deep as references go, up to a limit: call it on a thread with a
// stack of kCompileStackBytes. The work is linear in the schema and the output.
Result<std::optional<LarkSchema>> LarkOf(const Json& root, const std::string& prefix, StopToken stop);

}  // namespace tactus::language
