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

bool SplitQuotedCells(std::string_view line, std::vector<std::string>* cells) {
  cells->clear();
  while (true) {
    const size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
    std::string cell;
    if (begin < line.size() && line[begin] == '"') {
      line.remove_prefix(begin + 1);
      while (true) {
        const size_t quote = line.find('"');
        if (quote == std::string_view::npos) return false;
        cell += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (!line.starts_with('"')) break;
        cell += '"';
        line.remove_prefix(1);
      }
      const std::string_view behind = line.substr(0, line.find(','));
      if (!Trimmed(behind).empty()) return false;
    } else {
      cell = Trimmed(line.substr(0, line.find(',')));
    }
    cells->push_back(std::move(cell));
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos) return true;
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
