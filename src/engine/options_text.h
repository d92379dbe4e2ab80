// The options as a recording states them. Pure.
#pragma once

#include <string>

#include "tactus/options.h"

namespace tactus::engine {

// "name = value" for every option, a line each, for the head of a recording.
std::string OptionsText(EngineOptions options);

}  // namespace tactus::engine
