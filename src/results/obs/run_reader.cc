#include "results/obs/run_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/csv.h"
#include "base/input_file.h"
#include "base/json_text.h"
#include "base/printable.h"

namespace tactus::results {
namespace {

constexpr int64_t kMostFileBytes = int64_t{16} << 30;  // file size
constexpr int64_t kMostUnpacked = int64_t{256} << 30;  // sum of its unpacked parts
constexpr size_t kMostJson = size_t{16} << 20;
constexpr size_t kMostLine = size_t{64} << 10;
constexpr size_t kPiece = size_t{256} << 10;
constexpr TimeNs kMostSeconds = kNever / kSecond - 1;

// Parses a cell written by the writer; absent: another form.
std::optional<int64_t> Count(std::string_view cell) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || value < 0) return std::nullopt;
  return value;
}
std::optional<double> Real(std::string_view cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}
// A decimal number of `unit` nanoseconds, exact; digits below a nanosecond are dropped.
std::optional<int64_t> Time(std::string_view cell, int64_t unit) {
  const size_t point = cell.find('.');
  const auto whole = Count(cell.substr(0, point));
  if (!whole || *whole > kMostSeconds) return std::nullopt;
  int64_t ns = *whole * unit;
  if (point == std::string_view::npos) return ns;
  int64_t scale = unit;
  for (const char c : cell.substr(point + 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    scale /= 10;
    ns += (c - '0') * scale;
  }
  return ns;
}

struct Bad {
  std::string column, cell;
};

// The cells of a row by the columns of the header. A column missing in the header is empty in every row, so that files
// of older program versions can be read.
class TableRow {
 public:
  void Header(std::string_view line) {
    std::vector<std::string_view> names;
    SplitCells(line, &names);
    names_.assign(names.begin(), names.end());
  }
  bool has_header() const { return !names_.empty(); }
  size_t columns() const { return names_.size(); }
  // False: the number of cells differs from the number of columns.
  bool Split(std::string_view line) {
    SplitCells(line, &cells_);
    bad_.reset();
    return cells_.size() == names_.size();
  }
  std::string_view Text(std::string_view column) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == column) return cells_[i];
    }
    return {};
  }
  template <class T, class Parse>
  void Get(const char* column, T* value, Parse parse) {
    const std::string_view cell = Text(column);
    if (cell.empty() || bad_) return;
    if (const auto parsed = parse(cell)) {
      *value = *parsed;
    } else {
      bad_ = {column, std::string(cell)};
    }
  }
  void Count(const char* column, int64_t* value) { Get(column, value, results::Count); }
  void Seconds(const char* column, int64_t* ns) {
    Get(column, ns, [](std::string_view c) { return Time(c, kSecond); });
  }
  void Milliseconds(const char* column, int64_t* ns) {
    Get(column, ns, [](std::string_view c) { return Time(c, kMillisecond); });
  }
  void Real(const char* column, double* value) { Get(column, value, results::Real); }
  const std::optional<Bad>& bad() const { return bad_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::string_view> cells_;
  std::optional<Bad> bad_;
};

RunRequest RequestOf(TableRow* row) {
  RunRequest r;
  int64_t replica = -1;
  row->Count("request", &r.number);
  r.id = row->Text("id");
  row->Count("replica", &replica);
  r.replica = static_cast<int32_t>(std::min<int64_t>(replica, INT32_MAX));
  row->Seconds("arrival_s", &r.arrival_ns);
  row->Seconds("scheduled_s", &r.scheduled_ns);
  row->Seconds("first_token_s", &r.first_token_ns);
  row->Seconds("done_s", &r.done_ns);
  row->Count("prompt_tokens", &r.prompt_tokens);
  row->Count("cached_tokens", &r.cached_tokens);
  row->Count("output_tokens", &r.output_tokens);
  row->Seconds("longest_gap_s", &r.longest_gap_ns);
  row->Count("preemptions", &r.preemptions);
  row->Count("recomputed_tokens", &r.recomputed_tokens);
  r.finish = row->Text("finish");
  r.slo_class = row->Text("slo_class");
  row->Milliseconds("slo_ttft_ms", &r.slo.ttft_ns);
  row->Milliseconds("slo_tbt_ms", &r.slo.tbt_ns);
  row->Milliseconds("slo_jct_ms", &r.slo.jct_ns);
  r.missed_by = {row->Text("ttft_missed_by"), row->Text("tbt_missed_by"), row->Text("jct_missed_by")};
  return r;
}

RunStep StepOf(TableRow* row) {
  RunStep s;
  int64_t replica = 0;
  row->Count("replica", &replica);
  s.replica = static_cast<int32_t>(std::min<int64_t>(replica, INT32_MAX));
  row->Count("step", &s.step);
  row->Seconds("start_s", &s.start_ns);
  row->Seconds("end_s", &s.end_ns);
  row->Count("prompt_tokens", &s.prompt_tokens);
  row->Count("prompts", &s.prompts);
  row->Count("decodes", &s.decodes);
  row->Count("running", &s.running);
  row->Count("waiting", &s.waiting);
  row->Real("kv_used", &s.kv_used);
  row->Count("preemptions", &s.preemptions);
  row->Seconds("longest_gap_s", &s.longest_gap_ns);
  return s;
}

RunInterval IntervalOf(TableRow* row) {
  RunInterval i;
  row->Seconds("from_s", &i.from_ns);
  row->Count("arrived", &i.arrived);
  row->Count("completed", &i.completed);
  row->Count("failed", &i.failed);
  row->Count("rejected", &i.rejected);
  row->Count("in_flight", &i.in_flight);
  row->Count("output_tokens", &i.output_tokens);
  const auto summary = [row](const char* p50, const char* p99, const char* max, Summary* s) {
    s->known = !row->Text(p50).empty();
    row->Real(p50, &s->p50);
    row->Real(p99, &s->p99);
    row->Real(max, &s->max);
  };
  summary("ttft_p50_ms", "ttft_p99_ms", "ttft_max_ms", &i.ttft_ms);
  summary("gap_p50_ms", "gap_p99_ms", "gap_max_ms", &i.gap_ms);
  return i;
}

std::optional<RunFileTable> TableOf(std::string_view member) {
  for (size_t t = 0; t < kNumRunFileTables; ++t) {
    const std::string_view name = RunFileTableName(static_cast<RunFileTable>(t));
    if (member.starts_with(name) && member.substr(name.size()).starts_with("/")) return static_cast<RunFileTable>(t);
  }
  return std::nullopt;
}

Status NotRunFile(const std::string& path, const std::string& why) {
  return InvalidArgument(
      fmt::format("'{}' is not a run file: {}; record one with --run-out FILE of serve, sim, bench, batch or route",
                  Printable(path), why));
}

class Reader {
 public:
  Reader(const std::string& path, InputFile* file, RunVisitor* visitor, RunFile* run)
      : path_(path), file_(file), visitor_(visitor), run_(*run), zip_(archive_read_new()) {}
  ~Reader() { archive_read_free(zip_); }
  Reader(const Reader&) = delete;

  Status Read() {
    archive_read_support_format_zip_streamable(zip_);
    if (archive_read_open(zip_, this, nullptr, &Reader::More, nullptr) != ARCHIVE_OK) {
      if (!input_.ok()) return input_;
      return NotRunFile(path_, "it is not a zip archive");
    }
    bool first = true;
    archive_entry* entry = nullptr;
    while (!run_.complete() && NextMember(&entry)) {
      const char* name = archive_entry_pathname(entry);
      member_ = name != nullptr ? name : "";
      if (first && member_ != "run.json") return NotRunFile(path_, "it does not begin with run.json");
      TACTUS_RETURN_IF_ERROR(first ? ReadAbout() : ReadMember());
      if (first && ended_early_) return NothingInIt();
      first = false;
      if (ended_early_) break;
    }
    if (!input_.ok()) return input_;
    if (first) return NotRunFile(path_, "it is not a zip archive, or an empty one");
    if (run_.rows[0] + run_.rows[1] + run_.rows[2] == 0) return NothingInIt();
    return Status();
  }

 private:
  static la_ssize_t More(archive* zip, void* reader, const void** bytes) {
    return static_cast<Reader*>(reader)->More(zip, bytes);
  }
  la_ssize_t More(archive* zip, const void** bytes) {
    auto piece = file_->ReadSome(kPiece);
    if (!piece.ok()) {
      input_ = piece.status();
      archive_set_error(zip, EIO, "not readable");
      return -1;
    }
    piece_ = std::move(*piece);
    at_end_ = at_end_ || piece_.empty();
    *bytes = piece_.data();
    return static_cast<la_ssize_t>(piece_.size());
  }

  // False: no further member, or the file ends early.
  bool NextMember(archive_entry** entry) { return archive_read_next_header(zip_, entry) == ARCHIVE_OK; }

  Status NothingInIt() const {
    const char* why = run_.complete() ? "it recorded no requests" : "its recording stopped early";
    return InvalidArgument(fmt::format("the run file '{}' is empty: {}", Printable(path_), why));
  }
  Status Damaged(const std::string& why) const {
    return DataLoss(fmt::format("the run file '{}' is damaged in {}: {}", Printable(path_), Printable(member_), why));
  }

  // The next bytes of the member; empty at its end. A file that ends early is not damaged.
  Result<std::string_view> Piece() {
    const void* bytes = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int code = archive_read_data_block(zip_, &bytes, &size, &offset);
    if (code == ARCHIVE_EOF) return std::string_view();
    if (code != ARCHIVE_OK) {
      if (!input_.ok()) return input_;
      if (at_end_) {
        ended_early_ = true;
        return std::string_view();
      }
      const char* why = archive_error_string(zip_);
      return Damaged(why != nullptr ? why : "unreadable");
    }
    unpacked_ += static_cast<int64_t>(size);
    if (unpacked_ > kMostUnpacked) return Damaged(fmt::format("more than {} bytes in total", kMostUnpacked));
    return std::string_view(static_cast<const char*>(bytes), size);
  }

  Result<Json> ReadJson() {
    std::string text;
    while (true) {
      TACTUS_ASSIGN_OR_RETURN(const std::string_view piece, Piece());
      if (piece.empty()) break;
      if (text.size() + piece.size() > kMostJson) return Damaged(fmt::format("more than {} bytes", kMostJson));
      text += piece;
    }
    if (ended_early_) return Json(nullptr);
    auto json = json_text::ParseJson(text);
    if (!json.ok()) return Damaged(json.status().message());
    if (!json->is_object()) return Damaged("not a JSON object");
    return json;
  }

  Status ReadAbout() {
    TACTUS_ASSIGN_OR_RETURN(const Json json, ReadJson());
    if (ended_early_) return Status();
    if (json_text::TextOf(json, "format") != kRunFileFormat)
      return NotRunFile(path_, fmt::format("run.json has no \"format\": \"{}\"", kRunFileFormat));
    const auto version = json.find("version");
    if (version == json.end() || !version->is_number_integer()) return Damaged("\"version\" is not a whole number");
    run_.about.program = json_text::TextOf(json, "program");
    if (*version != kRunFileVersion) {
      return InvalidArgument(
          fmt::format("the run file '{}' is of version {}, written by tactus {}; this program reads version {}: record "
                      "the run again, or read it with that program",
                      Printable(path_), version->dump(), Printable(run_.about.program), kRunFileVersion));
    }
    run_.about.command = json_text::TextOf(json, "command");
    if (const auto interval = json.find("interval_s"); interval != json.end() && interval->is_number()) {
      const double seconds = interval->get<double>();
      if (seconds > 0 && seconds < 1e9) run_.about.interval_ns = std::llround(seconds * 1e9);
    }
    if (const auto options = json.find("options"); options != json.end() && options->is_object()) {
      for (const auto& [name, text] : options->items()) {
        if (text.is_string()) run_.about.options.emplace_back(name, text.get<std::string>());
      }
    }
    if (const auto stated = json.find("stated"); stated != json.end() && stated->is_array()) {
      for (const Json& name : *stated) {
        if (name.is_string()) run_.about.stated.push_back(name.get<std::string>());
      }
    }
    return Status();
  }

  Status ReadMember() {
    if (member_ == "result.json") {
      TACTUS_ASSIGN_OR_RETURN(Json json, ReadJson());
      if (!ended_early_) run_.result = std::move(json);
      return Status();
    }
    const auto table = TableOf(member_);
    if (!table) return Status();  // a table of a later version; skipped
    TableRow row;
    std::string rest;
    while (true) {
      TACTUS_ASSIGN_OR_RETURN(const std::string_view piece, Piece());
      if (piece.empty()) return Status();  // an incomplete last row is ignored
      rest += piece;
      std::string_view text = rest;
      while (text.find('\n') != std::string_view::npos) TACTUS_RETURN_IF_ERROR(ReadRow(*table, TakeLine(&text), &row));
      rest.erase(0, rest.size() - text.size());
      if (rest.size() > kMostLine) return Damaged(fmt::format("a row of more than {} bytes", kMostLine));
    }
  }

  Status ReadRow(RunFileTable table, std::string_view line, TableRow* row) {
    if (!row->has_header()) {
      row->Header(line);
      return Status();
    }
    int64_t& rows = run_.rows[static_cast<size_t>(table)];
    ++rows;
    if (!row->Split(line)) return Damaged(fmt::format("row {} does not have {} cells", rows, row->columns()));
    RunRequest request;
    RunStep step;
    RunInterval interval;
    switch (table) {
      case RunFileTable::kRequests:
        request = RequestOf(row);
        break;
      case RunFileTable::kSteps:
        step = StepOf(row);
        break;
      case RunFileTable::kTimeseries:
        interval = IntervalOf(row);
        break;
    }
    if (const auto& bad = row->bad()) {
      return Damaged(fmt::format("row {} of {} has '{}' in column {}, which is not a number from 0", rows,
                                 RunFileTableName(table), Printable(bad->cell), bad->column));
    }
    if (visitor_ == nullptr) return Status();
    switch (table) {
      case RunFileTable::kRequests:
        visitor_->Request(request);
        break;
      case RunFileTable::kSteps:
        visitor_->Step(step);
        break;
      case RunFileTable::kTimeseries:
        visitor_->Interval(interval);
        break;
    }
    return Status();
  }

  const std::string& path_;
  InputFile* const file_;
  RunVisitor* const visitor_;
  RunFile& run_;
  archive* const zip_;
  std::string piece_;    // owned by libarchive until the next read
  bool at_end_ = false;  // of the file
  Status input_;         // the read error
  std::string member_;
  bool ended_early_ = false;
  int64_t unpacked_ = 0;
};

}  // namespace

Status ReadRunFile(const std::string& path, RunVisitor* visitor, RunFile* run) {
  TACTUS_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path, kMostFileBytes));
  return Reader(path, &file, visitor, run).Read();
}

}  // namespace tactus::results
