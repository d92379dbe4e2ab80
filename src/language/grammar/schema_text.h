// A client's JSON schema as it is handed to llguidance. Any thread.
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

// Whether a list of names has this one.
template <class Names>
bool Holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Parsed with limits on nesting and keys. kInvalidArgument: no JSON, neither an object nor a boolean, false, or a $ref
// into this document that is not written as a plain JSON pointer.
Result<Json> ParseSchema(std::string_view text, StopToken stop = {});

// The schema with our settings in place of any that the client wrote for the library: answers have ", " and ": " as
// separators and no other white space, so that a model cannot write line breaks for ever and everything between two
// values is forced.
std::string SchemaText(Json schema);

// In every schema of it 2.0 as 2, which is an integer to JSON schema and none to the library, and without maximums
// beyond kMostCount (language/grammar/regex_text.h), which mean the same as none.
void MakeCountsReadable(Json* schema);

// Each schema of a document with the JSON pointer that leads to it ("#/properties/size"), in order of the text; names
// of properties and plain values are none. Booleans are not told.
void ForEachSchema(const Json& schema, const std::function<void(const Json&, const std::string& path)>& tell);

// Where a schema uses `keyword`, with that value where one is given, as a JSON pointer ("#/properties/size"); the first
// in order of the text. Names of properties and the values of enum, const, default and examples are no keywords. Empty:
// nowhere.
std::string FindKeyword(const Json& schema, std::string_view keyword, const Json* value = nullptr);

// The first `pattern` of the schema that SchemaText writes as `handed_over`; that itself where there is none.
std::string PatternHandedOverAs(const Json& schema, const std::string& handed_over);

// How many patterns and formats one string may have to match at once, at most: those of a schema, of its allOf, of what
// it refers to, and of one alternative; and so of what all of these say of one property or of items. Saturates at 1000.
// -1: the schemas refer to each other so often that counting takes more than kMostCountingSteps, or `stop` is set.
inline constexpr int64_t kMostCountingSteps = 3'000'000;
int MostPatterns(const Json& schema, StopToken stop = {});

}  // namespace tactus::language
