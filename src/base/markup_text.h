// Escapes text for HTML, SVG and XML.
#pragma once

#include <string>
#include <string_view>

namespace tactus {

// Replaces &, <, > and both quotes by references, quotes by numeric ones: correct between tags and in attributes. The
// same output as Python's markupsafe, which chat templates are written for.
std::string EscapeMarkup(std::string_view text);

}  // namespace tactus
