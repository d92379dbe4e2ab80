// Checks a client's JSON schema before it is passed to the grammar library: for errors that the library reports
// incomprehensibly, for input that takes it very long, and for errors that it never finds. Any thread.
#pragma once

#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus::language {

// The lexer has a state for each remainder: 0.6 KB and more.
inline constexpr int64_t kMostMultiple = 10'000;

// kInvalidArgument names the keyword, the value, the limit and the place: an empty `enum` or `type`, a `multipleOf`
// that is not above 0 or, with those that `allOf` and `$ref` add, beyond kMostMultiple, or a schema that requires
// itself without end. `schema`: as parsed by ParseSchema.
Status CheckSchema(const Json& schema);

}  // namespace tactus::language
