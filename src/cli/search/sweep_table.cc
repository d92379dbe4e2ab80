#include "cli/search/sweep_table.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "base/csv.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace tactus::cli {
namespace {

constexpr int64_t kMostFileBytes = int64_t{1} << 30;

std::string Line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + cells[i];
  return line + "\n";
}

}  // namespace

std::string SweepTable::Cell(std::string text) {
  for (char& c : text) {
    if (c == ',')
      c = ';';
    else if (c == '"')
      c = '\'';
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '_';
  }
  return text;
}

SweepTable::Row SweepTable::Cells(Row row) {
  for (std::string& cell : row) cell = Cell(std::move(cell));
  return row;
}

Result<SweepTable> SweepTable::Open(const std::string& path, std::vector<std::string> columns, size_t key_columns,
                                    const std::string& base) {
  SweepTable table;
  table.path_ = path;
  table.columns_ = Cells(std::move(columns));
  table.key_columns_ = key_columns;
  if (path.empty()) return table;
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return InvalidArgument(fmt::format("--csv '{}' is not a regular file, and a sweep must read its rows again; "
                                       "without --csv the rows go to standard output",
                                       Printable(path)),
                           "csv");
  }
  TACTUS_RETURN_IF_ERROR(CheckWritable(path, "csv"));
  decltype(table.file_) before{std::fopen(path.c_str(), "re"), std::fclose};
  if (before != nullptr) {
    if (!Lock(before.get())) return table.Locked();
    TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostFileBytes));
    TACTUS_RETURN_IF_ERROR(table.Read(text, base));
  }
  std::string kept = Line(table.columns_);
  for (const auto& [key, row] : table.rows_) kept += Line(row);
  TACTUS_RETURN_IF_ERROR(ReplaceFile(path, kept, "csv"));
  table.file_.reset(std::fopen(path.c_str(), "ae"));
  if (table.file_ == nullptr) return DataLoss(fmt::format("cannot write --csv '{}': {}", path, std::strerror(errno)));
  if (!Lock(table.file_.get())) return table.Locked();
  return table;
}

bool SweepTable::IsText(const std::string& column) {
  return column == "breaks" || column == "no_capacity" || column == "error" || column == "base";
}

bool SweepTable::Lock(std::FILE* file) {
  return flock(fileno(file), LOCK_EX | LOCK_NB) == 0;
}

Status SweepTable::Locked() const {
  return InvalidArgument(
      fmt::format("--csv '{}': another sweep is writing to it; wait for its end, or name another file",
                  Printable(path_)),
      "csv");
}

Status SweepTable::Read(std::string text, const std::string& base) {
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // spreadsheets add a byte order mark and CRLF line ends
  if (const size_t end = text.find('\n'); end != std::string::npos && end > 0 && text[end - 1] == '\r')
    std::erase(text, '\r');
  std::string_view rest = text;
  if (rest.empty()) return Status();
  const auto wrong = [this](int64_t line, const std::string& why) {
    return InvalidArgument(
        fmt::format("--csv {}: line {}: {}; name another file, or remove this one", Printable(path_), line, why),
        "csv");
  };
  std::vector<std::string_view> cells;
  SplitCells(TakeLine(&rest), &cells);
  for (size_t i = 0; i < std::max(cells.size(), columns_.size()); ++i) {
    const std::string there = i < cells.size() ? std::string(cells[i]) : "none";
    const std::string wanted = i < columns_.size() ? columns_[i] : "none";
    if (i >= cells.size() || i >= columns_.size() || there != wanted) {
      return wrong(1, fmt::format("it belongs to a sweep with other columns: column {} is '{}', here '{}'", i + 1,
                                  Printable(there), wanted));
    }
  }
  for (int64_t number = 2; !rest.empty(); ++number) {
    if (rest.find('\n') == std::string_view::npos) break;  // an incomplete last row
    SplitCells(TakeLine(&rest), &cells);
    if (cells.size() != columns_.size())
      return wrong(number, fmt::format("{} cells instead of {}", cells.size(), columns_.size()));
    if (cells.back() != base) {
      return wrong(number,
                   "it belongs to a sweep with other options, changed input files, or another version of the program");
    }
    for (size_t i = key_columns_; i < cells.size(); ++i) {
      double value = 0;
      const char *first = cells[i].data(), *last = first + cells[i].size();
      const auto [end, error] = std::from_chars(first, last, value);
      if (IsText(columns_[i]) || cells[i].empty() || (error == std::errc() && end == last)) continue;
      return wrong(number, fmt::format("column {} is '{}', which is not a number", columns_[i],
                                       Printable(std::string(cells[i]))));
    }
    Row row(cells.begin(), cells.end());
    Row key(row.begin(), row.begin() + static_cast<int64_t>(key_columns_));
    rows_.insert_or_assign(std::move(key), std::move(row));
  }
  return Status();
}

const SweepTable::Row* SweepTable::Find(const Row& key) const {
  const auto found = rows_.find(Cells(key));
  return found == rows_.end() ? nullptr : &found->second;
}

Status SweepTable::Add(Row row) {
  row = Cells(std::move(row));
  if (file_ != nullptr) {
    const std::string line = Line(row);
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0)
      return DataLoss(fmt::format("cannot write --csv '{}': {}", path_, std::strerror(errno)));
  }
  Row key(row.begin(), row.begin() + static_cast<int64_t>(key_columns_));
  rows_.insert_or_assign(std::move(key), std::move(row));
  return Status();
}

std::string SweepTable::Text(const std::vector<Row>& keys) const {
  std::string text = Line(columns_);
  for (const Row& key : keys) {
    if (const Row* row = Find(key); row != nullptr) text += Line(*row);
  }
  return text;
}

Status SweepTable::Finish(const std::vector<Row>& keys) {
  if (file_ == nullptr) return Status();
  std::string text = Text(keys);
  std::set<Row> of_sweep;
  for (const Row& key : keys) of_sweep.insert(Cells(key));
  for (const auto& [key, row] : rows_) {
    if (of_sweep.count(key) == 0) text += Line(row);
  }
  const Status replaced = ReplaceFile(path_, text, "csv");
  file_.reset();  // also releases the lock
  return replaced;
}

}  // namespace tactus::cli
