// Numbers of a schema that the grammar library would change, because it holds them as doubles: integers beyond 2^53,
// bounds beyond 64 bits. A schema with such a number is written as a grammar in Lark's notation: the path to the number
// is spelled out digit by digit, all else stays JSON schema. Any thread; both functions recurse as deep as references
// go, up to a limit, and end soon after `stop` with kCancelled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

// Nothing: the schema can be passed unchanged. kInvalidArgument: a number is in a place where it cannot be kept
// exactly; the message names both. `schema`: with "x-guidance" as passed to the library; with "lenient" there is no
// error: such a number is left out.
Result<std::optional<std::string>> ExactGrammar(const Json& schema, StopToken stop = {});

// The same for every "%json" of a grammar in Lark's notation; `schemas` receives each of them as written.
Result<std::string> WithExactNumbers(std::string grammar, std::vector<Json>* schemas = nullptr, StopToken stop = {});

// A number that the library reads as exactly this multipleOf: it counts digits by multiplying a double by ten. Nothing:
// no such number exists.
std::optional<double> ReadableMultiple(double multiple);

}  // namespace tactus::language
