// White space in JSON that a grammar writes: at most one space behind a comma and a colon, as models were trained to
// write it, and none elsewhere. One definition for response_format and calls. llguidance takes it as "x-guidance" at
// the top of a schema.
#pragma once

#include <string_view>

namespace tactus::api {

inline constexpr std::string_view kJsonSpacing =
    R"({"whitespace_flexible":false,"item_separator":",[ ]?","key_separator":":[ ]?"})";
// Of a schema whose keywords that no grammar can keep are left out.
inline constexpr std::string_view kJsonSpacingLenient =
    R"({"whitespace_flexible":false,"item_separator":",[ ]?","key_separator":":[ ]?","lenient":true})";

}  // namespace tactus::api
