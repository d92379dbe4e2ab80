#include "base/csv.h"

#include <algorithm>

namespace tactus {

std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

void SplitCells(std::string_view line, std::vector<std::string_view>* cells) {
  cells->clear();
  while (true) {
    const size_t comma = std::min(line.find(','), line.size());
    cells->push_back(line.substr(0, comma));
    if (comma == line.size()) return;
    line.remove_prefix(comma + 1);
  }
}

std::string_view Trimmed(std::string_view cell) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = cell.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return cell.substr(begin, cell.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace tactus
