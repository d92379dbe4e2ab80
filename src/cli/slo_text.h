// Objectives as people type them: ttft=500ms,tbt=100ms,jct=10s.
#pragma once

#include <string>

#include "base/units.h"
#include "tactus/status.h"

namespace tactus::cli {

// Empty: none. kInvalidArgument (param "slo") for anything else that is not of the form.
Result<Slo> ParseSlo(const std::string& text);

}  // namespace tactus::cli
