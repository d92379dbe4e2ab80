// The paper claims that bench/papers reproduces (data/paper_claims.txt), compiled in; `tactus sim --print-papers`
// prints them.
#pragma once

#include <string_view>

namespace tactus::cli {

std::string_view PapersText();

}  // namespace tactus::cli
