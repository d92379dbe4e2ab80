// Text as it stands in HTML, SVG and XML.
#pragma once

#include <string>
#include <string_view>

namespace tactus {

// With &, <, > and both quotes as references, those of quotes as numbers: right between tags and in attributes. The
// same bytes as Python's markupsafe, which chat templates are written for.
std::string EscapeMarkup(std::string_view text);

}  // namespace tactus
