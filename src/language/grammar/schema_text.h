// A client's JSON schema as passed to llguidance. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

// Whether a list of names contains this one.
template <class Names>
bool Holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Parses with limits on nesting and keys. kInvalidArgument: invalid JSON, neither an object nor a boolean, false, or a
// $ref into this document that is not a plain JSON pointer.
Result<Json> ParseSchema(std::string_view text, StopToken stop = {});

// The schema with our settings instead of the client's settings for the library: answers have ", " and ": " as
// separators and no other white space, so that a model cannot write line breaks endlessly and all text between two
// values is forced.
std::string SchemaText(Json schema);

// Changes counts in every schema: 2.0 to 2, an integer in JSON schema but not for the library, and removes maximums
// beyond kMostCount (language/grammar/regex_text.h), which equal none.
void MakeCountsReadable(Json* schema);

// Calls `tell` for each schema of a document with its JSON pointer ("#/properties/size"), in text order; names of
// properties and plain values are not schemas. Booleans are skipped.
void ForEachSchema(const Json& schema, const std::function<void(const Json&, const std::string& path)>& tell);

// JSON pointer ("#/properties/size") to the first schema in text order that uses `keyword`, with `value` if given.
// Names of properties and the values of enum, const, default and examples are not keywords. Empty: none.
std::string FindKeyword(const Json& schema, std::string_view keyword, const Json* value = nullptr);

// The first `pattern` of the schema that SchemaText writes as `handed_over`; `handed_over` itself if none.
std::string PatternHandedOverAs(const Json& schema, const std::string& handed_over);

// Most patterns and formats that one string may have to match at once: those of a schema, of its allOf, of its
// references, and of one alternative; likewise for one property or items under all of these. Saturates at 1000. -1:
// references are so dense that counting takes more than kMostCountingSteps, or `stop` is set.
inline constexpr int64_t kMostCountingSteps = 3'000'000;
int MostPatterns(const Json& schema, StopToken stop = {});

}  // namespace tactus::language
