// The rows of a sweep, in memory and in a CSV file from which a later sweep resumes. A row is written as soon as its
// run ends; Finish puts all rows into the sweep's order.
// A sweep resumes from a file with the same columns and the same base (hash of every option that is not varied, and the
// program's version). An incomplete last row is run again.
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
  using Row = std::vector<std::string>;  // one cell per column; Cell replaces characters that CSV cannot hold

  // `path` empty: in memory only. The first `key_columns` columns identify a run; the last column is `base`. Other
  // columns are numbers or empty, except those of IsText. kInvalidArgument: a file with other columns, another base or
  // a malformed row, not a regular file, or locked by another sweep.
  static Result<SweepTable> Open(const std::string& path, std::vector<std::string> columns, size_t key_columns,
                                 const std::string& base);

  // `key`: the cells of the key columns. Null if there is no such row.
  const Row* Find(const Row& key) const;
  // kDataLoss: the file could not be written.
  Status Add(Row row);
  // Puts the file's rows into the order of `keys`; rows of other runs follow. kDataLoss as in Add.
  Status Finish(const std::vector<Row>& keys);

  const std::vector<std::string>& columns() const { return columns_; }
  std::string Text(const std::vector<Row>& keys) const;  // header and the existing rows

  // Replaces comma, quote and control characters by ; ' and _.
  static std::string Cell(std::string text);

 private:
  SweepTable() = default;
  static Row Cells(Row row);
  Status Read(std::string text, const std::string& base);
  static bool IsText(const std::string& column);
  // Locks the current file until it is closed. Sweeps that replace the file lock the new one too.
  static bool Lock(std::FILE* file);
  Status Locked() const;
  std::string path_;
  std::vector<std::string> columns_;
  size_t key_columns_ = 0;
  std::map<Row, Row> rows_;  // by key
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace tactus::cli
