// What bench/papers reproduces, as `tactus sim --print-papers` lists it: data/paper_claims.txt, in the program.
#pragma once

#include <string_view>

namespace tactus::cli {

std::string_view PapersText();

}  // namespace tactus::cli
