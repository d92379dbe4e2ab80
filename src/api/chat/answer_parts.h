// The parts of an answer's text, in order: plain text, reasoning, tool calls. One definition for chat chunks, complete
// answers, responses and messages.
#pragma once

#include <cstdint>
#include <string>

namespace tactus::api {

struct AnswerPart {
  enum class Kind : uint8_t {
    kText,           // `text` is more of the content
    kReasoning,      // `text` is more of the reasoning
    kCallBegin,      // a call begins: `name` is the function's, `id` the call's, `call` its index from 0
    kCallArguments,  // `text` is more of the arguments' JSON of call `call`
  };

  Kind kind = Kind::kText;
  std::string text, name, id;
  int32_t call = -1;
};

}  // namespace tactus::api
