// The known word that a misspelt one most likely means.
#pragma once

#include <string>
#include <vector>

namespace tactus::cli {

// The word of `known` with the fewest edits to `word` (insert, delete, replace, swap neighbours: Damerau's distance),
// or one that begins with it; empty if all need more than a third of its letters. The first of equal ones.
std::string Nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace tactus::cli
