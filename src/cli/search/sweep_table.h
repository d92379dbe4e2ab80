// The rows of a sweep, in memory and in a CSV file that a later sweep goes on with. A row is written as soon as it is
// there; at the end the file has all rows in the sweep's order, whatever order they came in.
//
// A file is gone on with where its columns are the sweep's and its runs are of the same base (every option that is not
// varied, and the program's version). A last line that was cut off is run again.
//
// Thread rule: the caller locks.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tactus/status.h"

namespace tactus::cli {

class SweepTable {
 public:
  using Row = std::vector<std::string>;  // one cell per column; what CSV cannot hold is replaced (Cell)

  // `path` empty: in memory only. The first `key_columns` columns name a run; the last column is `base`.
  // Columns beside the keys are numbers or empty, but for those that IsText names.
  // kInvalidArgument: a file of other columns, of another base, with a row that is none, no regular file, or one that
  // another sweep writes to.
  static Result<SweepTable> Open(const std::string& path, std::vector<std::string> columns, size_t key_columns,
                                 const std::string& base);

  // `key`: the key columns' cells. Null: not there.
  const Row* Find(const Row& key) const;
  // kDataLoss: the file could not be written.
  Status Add(Row row);
  // Puts the file's rows into the order of `keys`; those of other runs that it had follow. kDataLoss as Add.
  Status Finish(const std::vector<Row>& keys);

  const std::vector<std::string>& columns() const { return columns_; }
  std::string Text(const std::vector<Row>& keys) const;  // header and rows, of those that are there

  // Without comma, quote and control characters, which become ; ' and _.
  static std::string Cell(std::string text);

 private:
  SweepTable() = default;
  static Row Cells(Row row);
  Status Read(std::string text, const std::string& base);
  static bool IsText(const std::string& column);
  // Of the file that is there now, until it is closed. Sweeps that replace it lock the new one too.
  static bool Lock(std::FILE* file);
  Status Locked() const;
  std::string path_;
  std::vector<std::string> columns_;
  size_t key_columns_ = 0;
  std::map<Row, Row> rows_;  // by key
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace tactus::cli
