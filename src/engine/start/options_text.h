// The options in the form in which a recording states them. Pure.
#pragma once

#include <string>

#include "tactus/options.h"

namespace tactus::engine {

// "name = value" for every option, one per line, for the head of a recording.
std::string OptionsText(EngineOptions options);

}  // namespace tactus::engine
