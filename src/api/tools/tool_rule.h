// The grammar, in llguidance's Lark notation, that makes an answer's calls well-formed, for each format of the table.
// With tool_choice "required" or a named tool: reasoning, then only calls. With "auto": free text and calls if one of
// the tools is strict, or calls or an answer of the request's output format.
#pragma once

#include "api/tools/answer_reading.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// `format`: the rule for an answer that is not a call; kNone: any text. Not kRegex, which cannot be part of a grammar.
// A reading without tools gives the format after the reasoning that the prompt has opened.
// Returns kNone if any text is allowed. kInvalidArgument: the grammar of the tools is too long.
Result<OutputRule> ToolRule(const Engine& engine, const AnswerReading& reading, const OutputRule& format = {});

// The parameters of one non-strict tool alone, to test whether a grammar accepts them.
OutputRule LooseRule(std::string_view parameters);

}  // namespace tactus::api
