// SQLite behind Status: a database file that one process locks, and its statements. One thread at a time for a database
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

  // Binds a parameter, from 1.
  Statement& Bind(int parameter, int64_t value);
  Statement& Bind(int parameter, std::string_view text);
  Statement& BindBytes(int parameter, std::string_view bytes);
  // True: there is a row. False: the statement is done, and may be bound and run again.
  Result<bool> Step();
  // For a statement without rows.
  Status Run();
  void Reset();  // ends a statement before its last row

  // Values of the current row; columns from 0.
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
  // Creates the file if missing, and locks it until it is closed; kUnavailable if another process has the lock.
  // kDataLoss: it is not a database, or damaged. Transactions that a killed process did not commit are rolled back.
  static Result<std::unique_ptr<Database>> Open(const std::string& path);

  Status Run(const std::string& sql);  // without rows
  Result<Statement> Prepare(std::string_view sql);
  Result<int64_t> Number(const std::string& sql);  // the value of the one row and column
  // Rolls back the open transaction, if any.
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
