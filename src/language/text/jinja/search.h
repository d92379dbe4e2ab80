// Substring search with charged work. Both are linear up to a small factor, for any texts.
#pragma once

#include <cstddef>
#include <string_view>

#include "language/text/jinja/meter.h"

namespace tactus::language::jinja {

// As in string_view; npos: none.
size_t FindText(Meter& meter, std::string_view text, std::string_view part, size_t from = 0);
size_t RightFindText(Meter& meter, std::string_view text, std::string_view part);

}  // namespace tactus::language::jinja
