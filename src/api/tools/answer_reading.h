// How the text of an answer is parsed: the formats of calls and reasoning, and the tools that may be called.
#pragma once

#include <memory>

#include "api/tools/tool_formats.h"
#include "api/tools/tools.h"

namespace tactus::api {

struct AnswerReading {
  const ReasoningFormat* reasoning = nullptr;  // null: none
  const ToolFormat* calls = nullptr;           // null: none
  std::shared_ptr<const ToolSet> tools;        // null: calls are not parsed (kHarmony messages still are)
  bool begins_in_reasoning = false;            // the prompt has opened the reasoning
  bool reasoning_is_over = false;              // the prompt has closed the reasoning: a grammar allows none
};

}  // namespace tactus::api
