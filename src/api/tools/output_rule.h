// What a body says its answer must be: response_format, vLLM's structured_outputs and its older guided_* fields, as the
// rule that Engine::CompileRule takes. Internal to api/.
#pragma once

#include <string>
#include <vector>

#include "api/fields/fields.h"
#include "tactus/request.h"

namespace tactus::api {

inline constexpr size_t kMaxRuleBytes = size_t{256} << 10;  // of a schema, an expression, a grammar
inline constexpr size_t kMaxAnswerChoices = 4096;           // strings of structured_outputs.choice
inline constexpr size_t kMaxFormatNameBytes = 64;           // response_format.json_schema.name

struct ReadRule {
  OutputRule rule;
  std::string param;  // the field that states it
};

// At most one of the fields may say something: the first fault is kept in `fields`.
ReadRule ReadOutputRule(Fields* fields);

// The answer is one of these strings, none of them empty.
OutputRule ChoiceRule(const std::vector<std::string>& choices);

}  // namespace tactus::api
