// What an answer must match so that its calls are well-formed: a grammar in llguidance's Lark notation for each form of
// the table. tool_choice "required" and a named tool: calls and nothing else, behind the reasoning. "auto": free text
// and calls, where one of the tools is strict.
#pragma once

#include "api/answer_text.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// kNone: any text will do. Precondition: reading.tools and reading.calls. kInvalidArgument: the tools make a grammar
// that is too long.
Result<OutputRule> ToolRule(const Engine& engine, const AnswerReading& reading);

}  // namespace tactus::api
