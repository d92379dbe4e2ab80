// The lines and cells of CSV as this project's own files have it: no cell holds a comma, a quote or a line's end. Views
// into the caller's text. And the cells of others' files, which may be quoted. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tactus {

// The text's first line without its end, which leaves the text; that of an empty text is empty.
std::string_view TakeLine(std::string_view* text);
// An empty line has one cell, an empty one.
void SplitCells(std::string_view line, std::vector<std::string_view>* cells);
// A line of a file that others wrote, without the blanks about its cells: a cell may stand in quotes ("a, ""b"""), and
// then holds commas and, doubled, quotes; not a line's end. False: a quote is not closed, or something stands behind
// it.
bool SplitQuotedCells(std::string_view line, std::vector<std::string>* cells);
// Without the blanks and carriage returns at both ends.
std::string_view Trimmed(std::string_view cell);

}  // namespace tactus
