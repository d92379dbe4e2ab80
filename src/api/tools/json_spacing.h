// White space in JSON that a grammar allows: at most one space after a comma and a colon, as models were trained, and
// none elsewhere. One definition for response_format and calls. llguidance reads it as "x-guidance" at the top of a
// schema.
#pragma once

#include <string_view>

namespace tactus::api {

inline constexpr std::string_view kJsonSpacing =
    R"({"whitespace_flexible":false,"item_separator":",[ ]?","key_separator":":[ ]?"})";
// The same for a schema whose keywords that a grammar cannot enforce are ignored.
inline constexpr std::string_view kJsonSpacingLenient =
    R"({"whitespace_flexible":false,"item_separator":",[ ]?","key_separator":":[ ]?","lenient":true})";

}  // namespace tactus::api
