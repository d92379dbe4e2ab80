// Substring search whose work is charged. Both are linear but for a small factor, whatever the texts.
#pragma once

#include <cstddef>
#include <string_view>

#include "language/text/jinja/meter.h"

namespace tactus::language::jinja {

// As string_view's; npos: none.
size_t FindText(Meter& meter, std::string_view text, std::string_view part, size_t from = 0);
size_t RightFindText(Meter& meter, std::string_view text, std::string_view part);

}  // namespace tactus::language::jinja
