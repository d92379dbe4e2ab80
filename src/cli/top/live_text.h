// The view of `tactus top` as lines of text, for a terminal of any size or for a pipe. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top/live_view.h"

namespace tactus::cli {

enum class Style : uint8_t { kPlain, kBold, kDim, kBad };
struct Piece {
  std::string text;
  Style style = Style::kPlain;
};
using Line = std::vector<Piece>;

// What the user has chosen to see.
struct ViewChoices {
  size_t sort = 0;  // index in SortNames
  bool reverse = false;
  std::string filter;     // of names, classes, states; empty: everything
  int64_t first_row = 0;  // of the table; Draw keeps it within the table
};

// The orders of the table's rows.
const std::vector<std::string_view>& SortNames(bool fleet);

struct DrawOptions {
  int width = 80;
  int height = 0;       // lines at most; 0: as many as there are
  bool blocks = false;  // the chart of step times has block characters, which need UTF-8
};
std::vector<Line> Draw(const LiveView& view, ViewChoices* choices, const DrawOptions& options);

// The main figures in one line.
std::string FiguresText(const LiveView& view);

// The columns of a terminal that the text takes. Wide characters take two, and marks none.
int ColumnsOf(std::string_view text);
// The line cut to the width, with control sequences for its styles if `colours`.
std::string LineText(const Line& line, int width, bool colours);

}  // namespace tactus::cli
