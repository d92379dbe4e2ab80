// The numbers of a schema that the grammar library, which holds them as doubles, would make into others: integers
// beyond 2^53, bounds beyond 64 bits. Where a schema has one it is written as a grammar in Lark's notation, in which
// the way to such a number is spelled out digit by digit and all else is JSON schema as before. Any thread; both
// recurse as deep as references go, up to a limit, and end soon after `stop` with kCancelled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

// Nothing: the schema can be handed over as it stands. kInvalidArgument: a number stands where it cannot be kept
// exactly; the message names it and the place. `schema`: with "x-guidance" as it is handed over; with "lenient" there
// no error: such a number is left out.
Result<std::optional<std::string>> ExactGrammar(const Json& schema, StopToken stop = {});

// The same for every "%json" of a grammar in Lark's notation; `schemas` gets each of them as it stands there.
Result<std::string> WithExactNumbers(std::string grammar, std::vector<Json>* schemas = nullptr, StopToken stop = {});

// A number that the library reads as just this multipleOf, where there is one: it counts its digits by multiplying a
// double by ten. Nothing: there is none.
std::optional<double> ReadableMultiple(double multiple);

}  // namespace tactus::language
