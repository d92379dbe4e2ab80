// A schema with numbers that the grammar library's doubles do not hold, as a grammar in Lark's notation: the way to
// such a number is spelled out, and all else is JSON schema. Internal to grammar/. Any thread.
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

bool HoldsValues(std::string_view keyword);                        // plain JSON
bool HoldsSchemas(std::string_view keyword);                       // by names
const Json* Member(const Json& schema, std::string_view keyword);  // null: it has none
// The library's doubles have its digits, and those beside it.
bool IsKept(const Json& number);
// The first number in a constant that is not kept; null: there is none. The recursion is bounded as the JSON's depth.
const Json* FindLost(const Json& value);
// The same in a schema's own keywords.
const Json* OwnLost(const Json& schema);

struct LarkSchema {
  std::string rules, start;  // and the expression that means the whole schema
};
// Nothing: no number of the schema that bears on an answer is lost. Names of rules begin with `prefix`. kUnimplemented,
// with the keyword alone as its message: beside it a number that is not kept cannot be written. kInvalidArgument: a
// limit, with the whole message. kCancelled: `stop`. Recurses as deep as references go, up to a limit: on a thread with
// a stack of kCompileStackBytes. The work is linear in the schema and what is written.
Result<std::optional<LarkSchema>> LarkOf(const Json& root, const std::string& prefix, StopToken stop);

}  // namespace tactus::language
