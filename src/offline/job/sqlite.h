// SQLite behind Status: a database file that one process holds, and its statements. One thread at a time for a database
// and all its statements; the database outlives them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tactus/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tactus::offline {

class Database;

class Statement {
 public:
  Statement() = default;

  // Parameters, from 1.
  Statement& Bind(int parameter, int64_t value);
  Statement& Bind(int parameter, std::string_view text);
  Statement& BindBytes(int parameter, std::string_view bytes);
  // True: there is a row. False: it is done, and may be bound and run again.
  Result<bool> Step();
  // For a statement without rows.
  Status Run();
  void Reset();  // before its last row

  // Of the row that it stands on; columns from 0.
  int64_t Int(int column) const;
  std::string Text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* s) const;
  };
  Database* database_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  // Makes the file where it is absent, and holds it alone until it is closed: kUnavailable where another process does.
  // kDataLoss: it is no database, or damaged. What a process that was killed had begun and not committed is undone.
  static Result<std::unique_ptr<Database>> Open(const std::string& path);

  Status Run(const std::string& sql);  // without rows
  Result<Statement> Prepare(std::string_view sql);
  Result<int64_t> Number(const std::string& sql);  // of the one row and column that it gives
  // Undoes the transaction that is open, if any.
  void RollBack();

 private:
  friend class Statement;
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit Database(std::string path) : path_(std::move(path)) {}
  Status Error(int code) const;

  const std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace tactus::offline
