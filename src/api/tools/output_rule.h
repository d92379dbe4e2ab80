// Reads the output rule of a body, for Engine::CompileRule: response_format, vLLM's structured_outputs and its older
// guided_* fields. Internal to api/.
#pragma once

#include <string>
#include <vector>

#include "api/fields/fields.h"
#include "tactus/request.h"

namespace tactus::api {

inline constexpr size_t kMaxRuleBytes = size_t{256} << 10;  // of a schema, expression or grammar
inline constexpr size_t kMaxAnswerChoices = 4096;           // strings of structured_outputs.choice
inline constexpr size_t kMaxFormatNameBytes = 64;           // response_format.json_schema.name

struct ReadRule {
  OutputRule rule;
  std::string param;  // the field that states it
};

// At most one of the fields may state a rule. The first error is kept in `fields`.
ReadRule ReadOutputRule(Fields* fields);

// A rule for an answer that is one of these strings, none of them empty.
OutputRule ChoiceRule(const std::vector<std::string>& choices);

}  // namespace tactus::api
