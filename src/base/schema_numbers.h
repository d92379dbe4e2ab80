// Detects numbers of a JSON schema with more digits than a double has: rounding them would change the schema. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "base/json_text.h"
#include "tactus/status.h"

namespace tactus {

// kInvalidArgument names the first number of `rounded` (JsonLimits) that bounds, lists or divides a value. `value`: a
// schema, or JSON that contains schemas. Annotations ("default", "examples") may have any numbers.
Status CheckSchemaNumbers(const Json& value, const std::vector<json_text::RoundedNumber>& rounded);

}  // namespace tactus
