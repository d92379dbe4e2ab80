// What an answer must match so that its calls are well-formed: a grammar in llguidance's Lark notation for each form of
// the table. tool_choice "required" and a named tool: calls and nothing else, behind the reasoning. "auto": free text
// and calls, where one of the tools is strict; calls or an answer of the format that the request names.
#pragma once

#include "api/chat/answer_text.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// `format`: what the answer has to be where it is no call; kNone: any text will do. No kRegex, which is no part of a
// grammar. Where the reading has no tools: the format, behind the reasoning that the prompt has opened.
// kNone: any text will do. kInvalidArgument: the tools make a grammar that is too long.
Result<OutputRule> ToolRule(const Engine& engine, const AnswerReading& reading, const OutputRule& format = {});

// The parameters of one tool that is not strict, alone: whether a grammar takes them.
OutputRule LooseRule(std::string_view parameters);

}  // namespace tactus::api
