// Splits CSV: lines and cells of this project's own files, whose cells have no comma, quote or line break, as views
// into the caller's text; and cells of foreign files, which may be quoted. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tactus {

// Removes the first line from the text and returns it without its line break; empty for an empty text.
std::string_view TakeLine(std::string_view* text);
// An empty line has one empty cell.
void SplitCells(std::string_view line, std::vector<std::string_view>* cells);
// Splits a line of a foreign file and trims its cells: a quoted cell ("a, ""b""") may contain commas and doubled
// quotes, but no line break. False: a quote is not closed, or text follows the closing quote.
bool SplitQuotedCells(std::string_view line, std::vector<std::string>* cells);
// The cell without blanks and carriage returns at both ends.
std::string_view Trimmed(std::string_view cell);

}  // namespace tactus
