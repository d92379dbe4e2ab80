#include "api/tool_rule.h"

namespace tactus::api {

Result<OutputRule> ToolRule(const Engine& /*engine*/, const AnswerReading& reading) {
  if (reading.tools->choice == ToolSet::Choice::kAuto && !reading.tools->strict()) return OutputRule();
  return Unimplemented("tool_choice: not supported yet, only \"auto\" and \"none\"", "tool_choice");
}

}  // namespace tactus::api
