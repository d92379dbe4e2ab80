// Numbers of a JSON schema of which more digits were written than a double holds: read as another number they would
// make another schema. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus {

// kInvalidArgument names the first of `rounded` (JsonLimits) that bounds, lists or divides a value. `value`: a schema,
// or what holds some; what explains or proposes values ("default", "examples") may have any numbers.
Status CheckSchemaNumbers(const Json& value, const std::vector<json_text::RoundedNumber>& rounded);

}  // namespace tactus
