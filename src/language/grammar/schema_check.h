// What is wrong with a client's JSON schema before the grammar library sees it: what the library would say in words of
// its own, take forever over, or never find. Any thread.
#pragma once

#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus::language {

// The lexer has a state for each remainder: 0.6 KB and more.
inline constexpr int64_t kMostMultiple = 10'000;

// kInvalidArgument names the keyword, the value, the limit and the place: an `enum` or `type` that lists nothing, a
// `multipleOf` that is not above 0 or, with those that `allOf` and `$ref` bring together, beyond kMostMultiple, a
// schema that requires itself without end. `schema`: as ParseSchema has parsed it.
Status CheckSchema(const Json& schema);

}  // namespace tactus::language
