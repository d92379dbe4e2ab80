#include "offline/job/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

namespace tactus::offline {

void Statement::Finalize::operator()(sqlite3_stmt* s) const {
  sqlite3_finalize(s);
}
void Database::Close::operator()(sqlite3* db) const {
  sqlite3_close_v2(db);
}

// Binding fails only if the statement's text is wrong, which its first test detects.
Statement& Statement::Bind(int parameter, int64_t value) {
  sqlite3_bind_int64(statement_.get(), parameter, value);
  return *this;
}
Statement& Statement::Bind(int parameter, std::string_view text) {
  sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}
Statement& Statement::BindBytes(int parameter, std::string_view bytes) {
  sqlite3_bind_blob64(statement_.get(), parameter, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

Result<bool> Statement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  const Status status = code == SQLITE_DONE ? Status() : database_->Error(code);
  Reset();
  if (!status.ok()) return status;
  return false;
}

Status Statement::Run() {
  return Step().status();
}
void Statement::Reset() {
  sqlite3_reset(statement_.get());
}

int64_t Statement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text == nullptr ? std::string()
                         : std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  std::unique_ptr<Database> database(new Database(path));
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  database->db_.reset(db);
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_extended_result_codes(db, 1);
  // The lock is acquired now and kept. FULL: a commit has reached the disk before it returns.
  TACTUS_RETURN_IF_ERROR(
      database->Run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL; PRAGMA temp_store = FILE; "
                    "PRAGMA trusted_schema = OFF; BEGIN EXCLUSIVE; COMMIT"));
  return database;
}

Status Database::Run(const std::string& sql) {
  const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Error(code);
}

Result<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  Statement out;
  out.database_ = this;
  out.statement_.reset(statement);
  return out;
}

Result<int64_t> Database::Number(const std::string& sql) {
  TACTUS_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  TACTUS_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

void Database::RollBack() {
  if (sqlite3_get_autocommit(db_.get()) == 0) (void)Run("ROLLBACK");
}

Status Database::Error(int code) const {
  const std::string reason = db_ != nullptr ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
      return Status(StatusCode::kUnavailable,
                    fmt::format("'{}' is in use: another run works on this job; wait until it has ended", path_));
    case SQLITE_NOTADB:
      return DataLoss(fmt::format("'{}' is not the state of a job (it is not an SQLite database)", path_));
    case SQLITE_CANTOPEN:
      return DataLoss(fmt::format("cannot open '{}': {}; does its folder exist, and is it writable?", path_, reason));
    case SQLITE_CORRUPT:
      return DataLoss(fmt::format("'{}' is damaged: {}", path_, reason));
    case SQLITE_FULL:
    case SQLITE_IOERR:
      return DataLoss(fmt::format("cannot write '{}': {}", path_, reason));
    default:
      return DataLoss(fmt::format("'{}': {}", path_, reason));
  }
}

}  // namespace tactus::offline
