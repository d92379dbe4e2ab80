#include "offline/server/store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <set>

#include "base/printable.h"
#include "base/system_random.h"
#include "offline/server/record.h"

namespace tactus::offline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kApplicationId = 0x54616366;  // "Tacf": identifies the file type
constexpr int64_t kVersion = 1;                 // of the tables

constexpr const char* kTables = R"(
  CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE file (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_s INTEGER NOT NULL,
    expires_s INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX file_owner ON file (owner, number);
  CREATE TABLE batch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    state INTEGER NOT NULL,
    input_file_id TEXT NOT NULL,
    record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX batch_owner ON batch (owner, number);
  CREATE INDEX batch_state ON batch (state);
)";
constexpr const char* kFileColumns = "id, owner, name, purpose, bytes, created_s, expires_s";
constexpr int kFirstEnd = static_cast<int>(BatchState::kCompleted);

FileRow FileOf(const Statement& row) {
  return {row.Text(0), row.Text(1), row.Text(2), row.Text(3), row.Int(4), row.Int(5), row.Int(6)};
}

Result<std::optional<FileRow>> OneFile(Database& database, std::string_view owner, std::string_view id) {
  TACTUS_ASSIGN_OR_RETURN(
      Statement find, database.Prepare(fmt::format("SELECT {} FROM file WHERE owner = ?1 AND id = ?2", kFileColumns)));
  TACTUS_ASSIGN_OR_RETURN(const bool found, find.Bind(1, owner).Bind(2, id).Step());
  return found ? std::optional<FileRow>(FileOf(find)) : std::nullopt;
}

}  // namespace

Result<std::string> NewId(const char* prefix) {
  TACTUS_ASSIGN_OR_RETURN(const Hash128 bits, SystemRandom());
  return fmt::format("{}{:016x}{:016x}", prefix, bits.high, bits.low);
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& folder) {
  std::unique_ptr<Store> store(new Store(folder));
  TACTUS_RETURN_IF_ERROR(store->MakeFolders());
  const std::string path = folder + "/batches.db";
  auto database = Database::Open(path);
  if (database.status().code() == StatusCode::kUnavailable) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("--files-dir: '{}' is in use by another server; use a separate folder for each", folder),
                  "files-dir");
  }
  if (!database.ok()) return DataLoss("--files-dir: " + database.status().message());
  store->database_ = std::move(*database);
  std::error_code error;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, error);  // the folder may be readable by others
  TACTUS_RETURN_IF_ERROR(store->Prepare());
  TACTUS_RETURN_IF_ERROR(store->RemoveStrays());
  return store;
}

// The folders hold prompts and answers, which no other user may read.
Status Store::MakeFolders() const {
  for (const char* part : {"", "/files", "/uploads", "/jobs"}) {
    std::error_code error;
    const std::string path = folder_ + part;
    if (fs::create_directories(path, error)) fs::permissions(path, fs::perms::owner_all, error);
    if (error)
      return InvalidArgument(fmt::format("--files-dir: cannot create '{}': {}", path, error.message()), "files-dir");
  }
  return Status();
}

// A new database has no rows: existing files belong to another program or to a lost database.
Status Store::CheckNothingIsThere() const {
  for (const char* part : {"files", "uploads", "jobs"}) {
    std::error_code error;
    const fs::path path = fs::path(folder_) / part;
    if (fs::is_empty(path, error) && !error) continue;
    return InvalidArgument(
        fmt::format("--files-dir: '{}' has no batches.db, and '{}' is not empty: it is another program's, or the "
                    "database is lost; choose another folder, or move that one away",
                    folder_, path.string()),
        "files-dir");
  }
  return Status();
}

Status Store::Prepare() {
  const std::string foreign =
      fmt::format("--files-dir: '{}/batches.db' is another program's; choose another folder", folder_);
  TACTUS_ASSIGN_OR_RETURN(const int64_t tables, database_->Number("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) {
    TACTUS_RETURN_IF_ERROR(CheckNothingIsThere());
    TACTUS_ASSIGN_OR_RETURN(const std::string secret, NewId(""));
    TACTUS_RETURN_IF_ERROR(
        database_->Run(fmt::format("BEGIN; {} INSERT INTO meta VALUES ('secret', '{}'); PRAGMA application_id = {}; "
                                   "PRAGMA user_version = {}; COMMIT",
                                   kTables, secret, kApplicationId, kVersion)));
  }
  TACTUS_ASSIGN_OR_RETURN(const int64_t id, database_->Number("PRAGMA application_id"));
  if (id != kApplicationId) return DataLoss(foreign);
  TACTUS_ASSIGN_OR_RETURN(const int64_t version, database_->Number("PRAGMA user_version"));
  if (version != kVersion) {
    return DataLoss(
        fmt::format("--files-dir: '{}' has version {}, but this program needs version {}", folder_, version, kVersion));
  }
  TACTUS_ASSIGN_OR_RETURN(Statement find, database_->Prepare("SELECT value FROM meta WHERE name = 'secret'"));
  TACTUS_ASSIGN_OR_RETURN(const bool found, find.Step());
  const std::string secret = found ? find.Text(0) : "";
  if (secret.size() != 32) return DataLoss(foreign);
  std::from_chars(secret.data(), secret.data() + 16, secret_.high, 16);
  std::from_chars(secret.data() + 16, secret.data() + 32, secret_.low, 16);
  return Status();
}

namespace {

// "file-" or "batch_" and 32 hexadecimal digits, as from NewId; a job's state may have a journal beside it.
bool IsOurs(std::string_view name) {
  if (name.ends_with("-journal")) name.remove_suffix(std::string_view("-journal").size());
  for (const std::string_view prefix : {"file-", "batch_"}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = name.substr(prefix.size());
    return digits.size() == 32 && digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  }
  return false;
}

}  // namespace

// Removes what a killed process has left. Files with other names belong to another program and stay.
Status Store::RemoveStrays() {
  std::set<std::string> files, jobs;
  TACTUS_ASSIGN_OR_RETURN(Statement ids, database_->Prepare("SELECT id FROM file"));
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, ids.Step());
    if (!row) break;
    files.insert(ids.Text(0));
  }
  TACTUS_ASSIGN_OR_RETURN(const std::vector<BatchRow> open, OpenBatches());
  for (const BatchRow& b : open) {
    files.insert(b.output_file_id);
    files.insert(b.error_file_id);
    jobs.insert(b.id);
  }
  const auto sweep = [this](const char* part, const std::set<std::string>& kept) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_ + part, error)) {
      const std::string name = entry.path().filename().string();
      std::error_code unread;
      if (!IsOurs(name) || !entry.is_regular_file(unread)) continue;
      if (kept.count(name.substr(0, name.find("-journal"))) == 0) fs::remove(entry.path(), error);
    }
  };
  sweep("/files", files);
  sweep("/uploads", {});
  sweep("/jobs", jobs);
  return Status();
}

// --- Files ---

Status Store::WriteFile(const FileRow& f) {
  TACTUS_ASSIGN_OR_RETURN(
      Statement add,
      database_->Prepare(fmt::format("INSERT INTO file ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", kFileColumns)));
  return add.Bind(1, f.id)
      .Bind(2, f.owner)
      .Bind(3, f.name)
      .Bind(4, f.purpose)
      .Bind(5, f.bytes)
      .Bind(6, f.created_s)
      .Bind(7, f.expires_s)
      .Run();
}

Status Store::AddFile(const FileRow& file) {
  std::lock_guard lock(mutex_);
  return WriteFile(file);
}

Result<std::optional<FileRow>> Store::FindFile(std::string_view owner, std::string_view id) {
  std::lock_guard lock(mutex_);
  return OneFile(*database_, owner, id);
}

// The row number after which a list continues; 0: at its beginning.
Result<int64_t> Store::NumberOf(const char* table, std::string_view owner, const std::string& after) {
  if (after.empty()) return 0;
  TACTUS_ASSIGN_OR_RETURN(Statement find,
                          database_->Prepare(fmt::format("SELECT number FROM {} WHERE owner = ?1 AND id = ?2", table)));
  TACTUS_ASSIGN_OR_RETURN(const bool found, find.Bind(1, owner).Bind(2, after).Step());
  if (found) return find.Int(0);
  return InvalidArgument(
      fmt::format("after: there is no object '{}'; pass the id of the last object of the previous page",
                  Printable(after)),
      "after");
}

namespace {

// "number > ?2 ORDER BY number" and similar clauses.
std::string From(int64_t after, bool ascending) {
  return fmt::format("{} ORDER BY number {} LIMIT ?3",
                     after == 0  ? "?2 = 0"
                     : ascending ? "number > ?2"
                                 : "number < ?2",
                     ascending ? "ASC" : "DESC");
}

}  // namespace

Result<Listed<FileRow>> Store::ListFiles(std::string_view owner, std::string_view purpose, const Page& page) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(const int64_t after, NumberOf("file", owner, page.after));
  TACTUS_ASSIGN_OR_RETURN(
      Statement list,
      database_->Prepare(fmt::format("SELECT {} FROM file WHERE owner = ?1 AND (?4 = '' OR purpose = ?4) AND {}",
                                     kFileColumns, From(after, page.ascending))));
  list.Bind(1, owner).Bind(2, after).Bind(3, page.limit + 1).Bind(4, purpose);
  Listed<FileRow> listed;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, list.Step());
    if (!row) return listed;
    if (static_cast<int64_t>(listed.rows.size()) < page.limit)
      listed.rows.push_back(FileOf(list));
    else
      listed.more = true;
  }
}

Result<std::vector<FileRow>> Store::ExpiredFiles(int64_t now_s) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(
      Statement list,
      database_->Prepare(fmt::format("SELECT {} FROM file WHERE expires_s > 0 AND expires_s <= ?1 AND NOT EXISTS "
                                     "(SELECT 1 FROM batch WHERE input_file_id = file.id AND state < {})",
                                     kFileColumns, kFirstEnd)));
  list.Bind(1, now_s);
  std::vector<FileRow> files;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, list.Step());
    if (!row) return files;
    files.push_back(FileOf(list));
  }
}

Result<std::optional<FileRow>> Store::DeleteFile(std::string_view owner, std::string_view id) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(std::optional<FileRow> file, OneFile(*database_, owner, id));
  if (!file) return file;
  TACTUS_ASSIGN_OR_RETURN(
      Statement readers,
      database_->Prepare(fmt::format("SELECT id FROM batch WHERE input_file_id = ?1 AND state < {}", kFirstEnd)));
  TACTUS_ASSIGN_OR_RETURN(const bool read, readers.Bind(1, id).Step());
  if (read) {
    return InvalidArgument(
        fmt::format("file '{}' is the input of batch '{}', which has not ended; cancel the batch, or "
                    "wait for its end",
                    file->id, readers.Text(0)),
        "file_id");
  }
  TACTUS_ASSIGN_OR_RETURN(Statement remove, database_->Prepare("DELETE FROM file WHERE id = ?1"));
  TACTUS_RETURN_IF_ERROR(remove.Bind(1, id).Run());
  // An open reader can continue. A file left by a kill is removed at the next start.
  std::error_code error;
  fs::remove(FilePath(id), error);
  return file;
}

Result<std::vector<Store::Usage>> Store::Usages() {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(Statement sums,
                          database_->Prepare("SELECT owner, count(*), sum(bytes) FROM file GROUP BY owner"));
  std::vector<Usage> usages;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, sums.Step());
    if (!row) return usages;
    usages.push_back({sums.Text(0), sums.Int(1), sums.Int(2)});
  }
}

// --- Batches ---

Status Store::WriteBatch(const BatchRow& b) {
  TACTUS_ASSIGN_OR_RETURN(Statement set, database_->Prepare("UPDATE batch SET state = ?2, record = ?3 WHERE id = ?1"));
  return set.Bind(1, b.id).Bind(2, static_cast<int64_t>(b.state)).Bind(3, RecordOf(b)).Run();
}

Status Store::AddBatch(const BatchRow& b) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(const std::optional<FileRow> input, OneFile(*database_, b.owner, b.input_file_id));
  if (!input) {
    return NotFound(
        fmt::format("input_file_id: there is no file '{}'; upload it with purpose 'batch'", Printable(b.input_file_id)),
        "input_file_id");
  }
  if (input->purpose != kInputPurpose) {
    return InvalidArgument(fmt::format("input_file_id: the purpose of '{}' is '{}'; use a file of purpose 'batch'",
                                       b.input_file_id, input->purpose),
                           "input_file_id");
  }
  TACTUS_ASSIGN_OR_RETURN(
      Statement add,
      database_->Prepare("INSERT INTO batch (id, owner, state, input_file_id, record) VALUES (?1, ?2, ?3, ?4, ?5)"));
  return add.Bind(1, b.id)
      .Bind(2, b.owner)
      .Bind(3, static_cast<int64_t>(b.state))
      .Bind(4, b.input_file_id)
      .Bind(5, RecordOf(b))
      .Run();
}

Status Store::UpdateBatch(const BatchRow& batch) {
  std::lock_guard lock(mutex_);
  return WriteBatch(batch);
}

Status Store::EndBatch(const BatchRow& batch, const std::vector<FileRow>& files) {
  std::lock_guard lock(mutex_);
  TACTUS_RETURN_IF_ERROR(database_->Run("BEGIN"));
  Status status;
  for (const FileRow& file : files) {
    if (status.ok()) status = WriteFile(file);
  }
  if (status.ok()) status = WriteBatch(batch);
  if (status.ok()) status = database_->Run("COMMIT");
  if (!status.ok()) database_->RollBack();
  return status;
}

Result<std::optional<BatchRow>> Store::FindBatch(std::string_view owner, std::string_view id) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(Statement find, database_->Prepare("SELECT record FROM batch WHERE owner = ?1 AND id = ?2"));
  TACTUS_ASSIGN_OR_RETURN(const bool found, find.Bind(1, owner).Bind(2, id).Step());
  if (!found) return std::optional<BatchRow>();
  TACTUS_ASSIGN_OR_RETURN(BatchRow row, BatchOf(find.Text(0)));
  return std::optional<BatchRow>(std::move(row));
}

Result<Listed<BatchRow>> Store::ListBatches(std::string_view owner, const Page& page) {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(const int64_t after, NumberOf("batch", owner, page.after));
  TACTUS_ASSIGN_OR_RETURN(Statement list, database_->Prepare("SELECT record FROM batch WHERE owner = ?1 AND " +
                                                             From(after, page.ascending)));
  list.Bind(1, owner).Bind(2, after).Bind(3, page.limit + 1);
  Listed<BatchRow> listed;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, list.Step());
    if (!row) return listed;
    if (static_cast<int64_t>(listed.rows.size()) == page.limit) {
      listed.more = true;
      continue;
    }
    TACTUS_ASSIGN_OR_RETURN(BatchRow batch, BatchOf(list.Text(0)));
    listed.rows.push_back(std::move(batch));
  }
}

Result<std::vector<BatchRow>> Store::OpenBatches() {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(Statement list, database_->Prepare(fmt::format(
                                              "SELECT record FROM batch WHERE state < {} ORDER BY number", kFirstEnd)));
  std::vector<BatchRow> batches;
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, list.Step());
    if (!row) return batches;
    TACTUS_ASSIGN_OR_RETURN(BatchRow batch, BatchOf(list.Text(0)));
    batches.push_back(std::move(batch));
  }
}

Result<std::vector<int64_t>> Store::CountByState() {
  std::lock_guard lock(mutex_);
  TACTUS_ASSIGN_OR_RETURN(Statement count, database_->Prepare("SELECT state, count(*) FROM batch GROUP BY state"));
  std::vector<int64_t> counts(kBatchStates);
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, count.Step());
    if (!row) return counts;
    counts.at(static_cast<size_t>(count.Int(0))) = count.Int(1);
  }
}

}  // namespace tactus::offline
