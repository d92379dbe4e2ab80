#include "offline/job/job_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tactus::offline {
namespace {

constexpr int64_t kApplicationId = 0x54616374;  // "Tact": identifies the file type
constexpr int64_t kVersion = 1;                 // of the tables

// state: LineState::State. A large job has many lines: no text, and no index except by number.
constexpr const char* kTables = R"(
  CREATE TABLE job (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE line (
    number INTEGER PRIMARY KEY,
    offset INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    duplicate_of INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    result_offset INTEGER NOT NULL DEFAULT 0,
    result_bytes INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0
  ) STRICT;
)";

// Replaces a custom_id while the index is built: all ids of a large job need not fit into memory.
std::string KeyOf(const std::string& custom_id) {
  const Hash128 hash = SipHash128({1, 2}, custom_id.data(), custom_id.size());
  std::string key(sizeof hash, '\0');
  std::memcpy(key.data(), &hash, sizeof hash);
  return key;
}

}  // namespace

Result<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  TACTUS_ASSIGN_OR_RETURN(auto database, Database::Open(path));
  std::unique_ptr<JobStore> store(new JobStore(std::move(database)));
  TACTUS_ASSIGN_OR_RETURN(const int64_t tables, store->database_->Number("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) TACTUS_RETURN_IF_ERROR(store->CreateTables());
  TACTUS_ASSIGN_OR_RETURN(const int64_t id, store->database_->Number("PRAGMA application_id"));
  TACTUS_ASSIGN_OR_RETURN(const int64_t version, store->database_->Number("PRAGMA user_version"));
  if (id != kApplicationId) return DataLoss(fmt::format("'{}' is not the state of a job (another program's)", path));
  if (version != kVersion) {
    return DataLoss(fmt::format("'{}' is the state of a job in version {}, but this program needs version {}", path,
                                version, kVersion));
  }
  TACTUS_RETURN_IF_ERROR(store->Prepare());
  TACTUS_RETURN_IF_ERROR(store->Count());
  return store;
}

Status JobStore::CreateTables() {
  const Status status = database_->Run(fmt::format(
      "BEGIN; {} PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT", kTables, kApplicationId, kVersion));
  if (!status.ok()) database_->RollBack();
  return status;
}

Status JobStore::Prepare() {
  TACTUS_ASSIGN_OR_RETURN(get_, database_->Prepare("SELECT value FROM job WHERE name = ?1"));
  TACTUS_ASSIGN_OR_RETURN(set_, database_->Prepare("INSERT OR REPLACE INTO job VALUES (?1, ?2)"));
  TACTUS_ASSIGN_OR_RETURN(
      add_line_, database_->Prepare("INSERT INTO line (number, offset, bytes, duplicate_of) VALUES (?1, ?2, ?3, ?4)"));
  TACTUS_ASSIGN_OR_RETURN(waiting_, database_->Prepare("SELECT number, offset, bytes, duplicate_of FROM line "
                                                       "WHERE number > ?1 AND state = 0 ORDER BY number LIMIT ?2"));
  TACTUS_ASSIGN_OR_RETURN(
      lines_, database_->Prepare("SELECT number, offset, bytes, duplicate_of, state, output_tokens FROM line "
                                 "WHERE number > ?1 ORDER BY number LIMIT ?2"));
  TACTUS_ASSIGN_OR_RETURN(leave_, database_->Prepare("UPDATE line SET state = 3 WHERE number = ?1 AND state = 0"));
  // RETURNING: a row is returned only if the line was waiting.
  TACTUS_ASSIGN_OR_RETURN(finish_,
                          database_->Prepare("UPDATE line SET state = ?2, result_offset = ?3, result_bytes = ?4, "
                                             "prompt_tokens = ?5, output_tokens = ?6 "
                                             "WHERE number = ?1 AND state = 0 RETURNING number"));
  return Status();
}

Status JobStore::Count() {
  counts_ = {};
  TACTUS_ASSIGN_OR_RETURN(Statement by_state, database_->Prepare("SELECT state, count(*) FROM line GROUP BY state"));
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, by_state.Step());
    if (!row) return Status();
    const int64_t state = by_state.Int(0), count = by_state.Int(1);
    (state == LineState::kOtherShard ? counts_.elsewhere : counts_.lines) += count;
    if (state == LineState::kInOutput) counts_.out = count;
    if (state == LineState::kInErrors) counts_.errors = count;
  }
}

Result<std::optional<std::string>> JobStore::Get(std::string_view name) {
  get_.Bind(1, name);
  TACTUS_ASSIGN_OR_RETURN(const bool row, get_.Step());
  if (!row) return std::optional<std::string>();
  std::optional<std::string> value = get_.Text(0);
  get_.Reset();
  return value;
}

Status JobStore::Set(std::string_view name, std::string_view value) {
  return set_.Bind(1, name).Bind(2, value).Run();
}

Result<int64_t> JobStore::GetNumber(std::string_view name) {
  TACTUS_ASSIGN_OR_RETURN(const std::optional<std::string> text, Get(name));
  int64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

Result<bool> JobStore::Indexed() {
  TACTUS_ASSIGN_OR_RETURN(const auto lines, Get("lines"));
  return lines.has_value();
}

Status JobStore::BeginIndex() {
  // The ids are needed only while indexing: in a temporary file, which is never synced.
  TACTUS_RETURN_IF_ERROR(
      database_->Run("BEGIN; DELETE FROM job; DELETE FROM line; DROP TABLE IF EXISTS temp.custom_id; "
                     "CREATE TEMP TABLE custom_id (key BLOB PRIMARY KEY, line INTEGER NOT NULL) "
                     "WITHOUT ROWID"));
  counts_ = {};
  TACTUS_ASSIGN_OR_RETURN(find_id_, database_->Prepare("SELECT line FROM temp.custom_id WHERE key = ?1"));
  TACTUS_ASSIGN_OR_RETURN(add_id_, database_->Prepare("INSERT INTO temp.custom_id VALUES (?1, ?2)"));
  return Status();
}

Status JobStore::AddLine(LinePlace* place, const std::optional<std::string>& custom_id) {
  if (custom_id) {
    const std::string key = KeyOf(*custom_id);
    TACTUS_ASSIGN_OR_RETURN(const bool known, find_id_.BindBytes(1, key).Step());
    place->duplicate_of = known ? find_id_.Int(0) : 0;
    if (known) {
      find_id_.Reset();
    } else {
      TACTUS_RETURN_IF_ERROR(add_id_.BindBytes(1, key).Bind(2, place->number).Run());
    }
  }
  ++counts_.lines;
  return add_line_.Bind(1, place->number)
      .Bind(2, place->offset)
      .Bind(3, place->bytes)
      .Bind(4, place->duplicate_of)
      .Run();
}

Status JobStore::EndIndex() {
  find_id_ = {};
  add_id_ = {};
  TACTUS_RETURN_IF_ERROR(Set("lines", std::to_string(counts_.lines)));
  TACTUS_RETURN_IF_ERROR(database_->Run("DROP TABLE temp.custom_id"));
  return database_->Run("COMMIT");
}

Result<std::vector<LinePlace>> JobStore::Waiting(int64_t after, int64_t most) {
  std::vector<LinePlace> places;
  waiting_.Bind(1, after).Bind(2, most);
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, waiting_.Step());
    if (!row) return places;
    places.push_back({waiting_.Int(0), waiting_.Int(1), waiting_.Int(2), waiting_.Int(3)});
  }
}

Result<std::vector<LineState>> JobStore::Lines(int64_t after, int64_t most) {
  std::vector<LineState> lines;
  lines_.Bind(1, after).Bind(2, most);
  while (true) {
    TACTUS_ASSIGN_OR_RETURN(const bool row, lines_.Step());
    if (!row) return lines;
    lines.push_back({{lines_.Int(0), lines_.Int(1), lines_.Int(2), lines_.Int(3)},
                     static_cast<LineState::State>(lines_.Int(4)),
                     lines_.Int(5)});
  }
}

Status JobStore::SetCut(const ShardCut& cut) {
  const Status status = WriteCut(cut);
  if (!status.ok()) {
    database_->RollBack();
    return status;
  }
  return Count();
}

Status JobStore::WriteCut(const ShardCut& cut) {
  TACTUS_RETURN_IF_ERROR(database_->Run("BEGIN"));
  for (const int64_t line : cut.others) TACTUS_RETURN_IF_ERROR(leave_.Bind(1, line).Run());
  TACTUS_RETURN_IF_ERROR(Set("cut", fmt::format("{:016x}", cut.hash)));
  return database_->Run("COMMIT");
}

Result<JobTokens> JobStore::Tokens() {
  TACTUS_ASSIGN_OR_RETURN(
      Statement sums, database_->Prepare("SELECT sum(prompt_tokens), sum(output_tokens) FROM line WHERE state = 1"));
  TACTUS_ASSIGN_OR_RETURN(const bool row, sums.Step());
  return row ? JobTokens{sums.Int(0), sums.Int(1)} : JobTokens();
}

Status JobStore::Commit(std::span<const StoredResult> results, int64_t output_bytes, int64_t errors_bytes) {
  const Status status = WriteGroup(results, output_bytes, errors_bytes);
  if (!status.ok()) {
    database_->RollBack();
    return status;
  }
  for (const StoredResult& r : results) ++(r.ok ? counts_.out : counts_.errors);
  return Status();
}

Status JobStore::WriteGroup(std::span<const StoredResult> results, int64_t output_bytes, int64_t errors_bytes) {
  TACTUS_RETURN_IF_ERROR(database_->Run("BEGIN"));
  for (const StoredResult& r : results) {
    finish_.Bind(1, r.line).Bind(2, r.ok ? 1 : 2).Bind(3, r.offset).Bind(4, r.bytes);
    finish_.Bind(5, r.prompt_tokens).Bind(6, r.output_tokens);
    TACTUS_ASSIGN_OR_RETURN(const bool waited, finish_.Step());
    if (!waited) return Internal(fmt::format("line {} is unknown or has a result already", r.line));
    TACTUS_RETURN_IF_ERROR(finish_.Run());  // completes the statement
  }
  TACTUS_RETURN_IF_ERROR(Set("output-bytes", std::to_string(output_bytes)));
  TACTUS_RETURN_IF_ERROR(Set("errors-bytes", std::to_string(errors_bytes)));
  return database_->Run("COMMIT");
}

}  // namespace tactus::offline
