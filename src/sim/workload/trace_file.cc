#include "sim/workload/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/csv.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"

namespace tactus::sim {
namespace {

enum Column : size_t {
  kArrival,
  kPrompt,
  kOutput,
  kHashIds,
  kPrefixId,
  kShared,
  kSloTtft,
  kSloTbt,
  kSloJct,
  kSloClass,
  kPriority,
  kPredicted,
  kClient,
  kNumColumns
};
constexpr const char* kColumnNames[kNumColumns] = {
    "arrival_s",   "prompt_tokens", "output_tokens", "prefix_hash_ids", "prefix_id", "shared_tokens",
    "slo_ttft_ms", "slo_tbt_ms",    "slo_jct_ms",    "slo_class",       "priority",  "predicted_output_tokens",
    "client"};
// Column names of public traces: Azure's (2023, 2024), BurstGPT's, Mooncake's and Vidur's, case-insensitive. Our names
// above have precedence.
constexpr std::pair<std::string_view, Column> kOtherNames[] = {
    {"arrived_at", kArrival},       {"timestamp", kArrival},    {"num_prefill_tokens", kPrompt},
    {"input_length", kPrompt},      {"contexttokens", kPrompt}, {"request tokens", kPrompt},
    {"num_decode_tokens", kOutput}, {"output_length", kOutput}, {"generatedtokens", kOutput},
    {"response tokens", kOutput},   {"hash_ids", kHashIds}};
constexpr std::string_view kMilliseconds = "input_length";  // marks files (Mooncake's) with times in milliseconds
constexpr int64_t kMostBytes = int64_t{4} << 30,
                  kMostLineBytes = int64_t{1} << 20;  // the input may be an endless stream
constexpr double kMaxArrivalSeconds = 4e9;            // int64 nanoseconds end at 9.2e9 s
// As in the API.
constexpr double kMaxSloMs = 1e9;
constexpr size_t kMostClassBytes = 64, kMostClientBytes = 1024;

template <class T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Also accepts real notation of whole numbers: 374.0.
std::optional<int64_t> WholeNumber(std::string_view text) {
  const size_t point = text.find('.');
  if (point != std::string_view::npos && text.find_first_not_of('0', point + 1) == std::string_view::npos)
    text = text.substr(0, point);
  return Number<int64_t>(text);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Removes a number of exactly `digits` digits from the front.
std::optional<int> TakeDigits(std::string_view* text, size_t digits) {
  if (text->size() < digits) return std::nullopt;
  const auto value = Number<unsigned>(text->substr(0, digits));
  text->remove_prefix(digits);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

bool TakeOne(std::string_view* text, std::string_view of) {
  if (text->empty() || of.find(text->front()) == std::string_view::npos) return false;
  text->remove_prefix(1);
  return true;
}

// Unix nanoseconds of "2023-11-16 18:17:03.9799600", with or without a zone (Z, +01:00).
std::optional<TimeNs> DateNs(std::string_view text) {
  const auto year = TakeDigits(&text, 4);
  if (!year || !TakeOne(&text, "-")) return std::nullopt;
  const auto month = TakeDigits(&text, 2);
  if (!month || !TakeOne(&text, "-")) return std::nullopt;
  const auto day = TakeDigits(&text, 2);
  if (!day || !TakeOne(&text, " T")) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{*year}, std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  const auto hour = TakeDigits(&text, 2);
  if (!hour || !TakeOne(&text, ":")) return std::nullopt;
  const auto minute = TakeDigits(&text, 2);
  if (!minute || !TakeOne(&text, ":")) return std::nullopt;
  const auto second = TakeDigits(&text, 2);
  if (!second || !date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  int64_t fraction_ns = 0;
  if (TakeOne(&text, ".")) {
    int64_t unit_ns = 100'000'000;
    for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), unit_ns /= 10)
      fraction_ns += unit_ns * (text[0] - '0');
  }
  int64_t zone_s = 0;
  const bool east = text.starts_with('+');
  if (TakeOne(&text, "+-")) {
    const auto hours = TakeDigits(&text, 2);
    TakeOne(&text, ":");
    const auto minutes = text.empty() ? std::optional(0) : TakeDigits(&text, 2);
    if (!hours || !minutes) return std::nullopt;
    zone_s = (east ? 1 : -1) * (*hours * 3600 + *minutes * 60);
  } else {
    TakeOne(&text, "Z");
  }
  if (!text.empty()) return std::nullopt;
  const int64_t day_s = std::chrono::sys_days{date}.time_since_epoch().count() * int64_t{86400};
  return (day_s + *hour * 3600 + *minute * 60 + *second - zone_s) * kSecond + fraction_ns;
}

}  // namespace

class TraceParser {
 public:
  explicit TraceParser(const std::string& path) : path_(path), file_(std::make_shared<TraceFile>()) {}

  // `next`, a Result<bool>(std::string_view* line), returns the next line; false: no more.
  template <class Next>
  Result<std::shared_ptr<const TraceFile>> Run(const Next& next) {
    std::string_view line;
    bool begun = false;
    for (number_ = 1;; ++number_) {
      TACTUS_ASSIGN_OR_RETURN(const bool more, next(&line));
      if (!more && number_ > 1) break;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (number_ == 1 && line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);  // a byte-order mark
      if (!begun) {
        if (more && Trimmed(line).empty()) continue;
        begun = true;
        objects_ = Trimmed(line).starts_with('{');
        if (!objects_) {
          TACTUS_RETURN_IF_ERROR(ReadHeader(line));
          continue;
        }
      }
      if (!Trimmed(line).empty()) TACTUS_RETURN_IF_ERROR(objects_ ? ReadObject(line) : ReadRow(line));
    }
    // Makes times relative to the first request: a file may have clock times.
    for (size_t i = file_->rows_.size(); i-- > 0 && arrivals_;)
      file_->rows_[i].arrival_ns -= file_->rows_[0].arrival_ns;
    if (file_->rows_.empty()) return DataLoss(fmt::format("{}: no row has a prompt and an output", path_));
    return std::shared_ptr<const TraceFile>(std::move(file_));
  }

 private:
  Status Bad(size_t column, const std::string& what) const {
    return DataLoss(
        fmt::format("{}:{}: column {} ({}): {}", path_, number_, at_[column] + 1, kColumnNames[column], what));
  }

  // Finds the columns by the names in cells_.
  Status FindColumns() {
    at_.fill(-1);
    const auto found = [this](size_t column, size_t i) {
      if (at_[column] < 0) return at_[column] = static_cast<int64_t>(i), Status();
      return DataLoss(objects_
                          ? fmt::format("{}:{}: '{}' and '{}' are the same column", path_, number_,
                                        Printable(cells_[static_cast<size_t>(at_[column])]), Printable(cells_[i]))
                          : fmt::format("{}:{}: column {}: '{}' is given twice", path_, number_, i + 1, cells_[i]));
    };
    for (size_t i = 0; i < cells_.size(); ++i) {
      for (size_t c = 0; c < kNumColumns; ++c) {
        if (cells_[i] == kColumnNames[c]) TACTUS_RETURN_IF_ERROR(found(c, i));
      }
    }
    const std::array<int64_t, kNumColumns> own = at_;
    arrivals_per_s_ = 1;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const std::string name = Lower(cells_[i]);
      for (const auto& [other, column] : kOtherNames) {
        if (name == other && own[column] < 0) TACTUS_RETURN_IF_ERROR(found(column, i));
      }
      if (name == kMilliseconds && own[kArrival] < 0) arrivals_per_s_ = 1e3;
    }
    return Status();
  }

  // Splits the line into cells_, without surrounding blanks.
  Status Split(std::string_view line) {
    if (line.find('"') == std::string_view::npos) {
      SplitCells(line, &cells_);
      for (std::string_view& cell : cells_) cell = Trimmed(cell);
      return Status();
    }
    if (!SplitQuotedCells(line, &owned_)) {
      return DataLoss(fmt::format("{}:{}: a quote is not closed, or text follows it before the next comma: '{}'", path_,
                                  number_, Printable(line)));
    }
    cells_.assign(owned_.begin(), owned_.end());
    return Status();
  }

  // A JSON line: its names as a header, its values as a row.
  Status ReadObject(std::string_view line) {
    json_text::JsonLimits limits;
    limits.first_line = number_;
    const auto object = json_text::ParseJson(line, limits);
    if (!object.ok()) return DataLoss(fmt::format("{}: {}", path_, object.status().message()));
    if (!object->is_object())
      return DataLoss(fmt::format("{}:{}: the line is not a JSON object, unlike the first", path_, number_));
    cells_.clear();
    owned_.clear();
    owned_.reserve(object->size());
    for (const auto& [name, value] : object->items()) cells_.push_back(name);
    TACTUS_RETURN_IF_ERROR(FindColumns());
    for (const size_t c : {kPrompt, kOutput}) {
      if (at_[c] < 0) {
        return DataLoss(
            fmt::format("{}:{}: no '{}' in the JSON object; give prompt_tokens and output_tokens (or "
                        "input_length and output_length)",
                        path_, number_, kColumnNames[c]));
      }
    }
    TACTUS_RETURN_IF_ERROR(CheckPrefixColumns());
    for (const auto& [name, value] : object->items()) owned_.push_back(CellOf(value));
    cells_.assign(owned_.begin(), owned_.end());
    return ReadCells();
  }

  static std::string CellOf(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_array()) return value.dump();
    std::string ids;
    for (const Json& id : value) ids += (ids.empty() ? "" : " ") + id.dump();
    return ids;
  }

  Status ReadHeader(std::string_view line) {
    TACTUS_RETURN_IF_ERROR(Split(line));
    width_ = cells_.size();
    TACTUS_RETURN_IF_ERROR(FindColumns());
    for (const size_t c : {kPrompt, kOutput}) {
      if (at_[c] < 0)
        return DataLoss(
            fmt::format("{}:{}: no column '{}' in the header line '{}'; the header must name the columns, separated by "
                        "commas; or each line must be a JSON object with these names",
                        path_, number_, kColumnNames[c], Printable(line)));
    }
    return CheckPrefixColumns();
  }

  Status CheckPrefixColumns() const {
    if ((at_[kPrefixId] < 0) == (at_[kShared] < 0)) return Status();
    return DataLoss(fmt::format("{}:{}: prefix_id and shared_tokens must be given together", path_, number_));
  }

  std::string_view Cell(size_t column) const {
    return at_[column] < 0 ? std::string_view() : cells_[static_cast<size_t>(at_[column])];
  }

  // Whole tokens in [min, kMaxTraceTokens].
  Status ReadTokens(size_t column, int32_t* out) const {
    const auto value = WholeNumber(Cell(column));
    if (!value) return Bad(column, fmt::format("'{}' is not a whole number", Printable(Cell(column))));
    if (*value < 0 || *value > kMaxTraceTokens) {
      return Bad(column, fmt::format("{} tokens are outside 0 to {}", *value, kMaxTraceTokens));
    }
    *out = static_cast<int32_t>(*value);
    return Status();
  }

  Status ReadArrival(TraceRow* row) {
    const std::string_view cell = Cell(kArrival);
    const bool present = !cell.empty();
    if (number_rows_++ == 0) arrivals_ = present;
    if (present != arrivals_)
      return Bad(kArrival,
                 present ? "has a time, but earlier rows have none" : "has no time, but earlier rows have one");
    if (!present) return Status();
    if (const auto date = DateNs(cell)) {
      row->arrival_ns = *date;
      if (*date < 0) return Bad(kArrival, fmt::format("{} is before 1970", Printable(cell)));
    } else {
      const auto value = Number<double>(cell);
      if (!value || !std::isfinite(*value)) {
        return Bad(kArrival, fmt::format("'{}' is not a number of {}seconds or a date such as 2026-11-27 18:17:03.25",
                                         Printable(cell), arrivals_per_s_ > 1 ? "milli" : ""));
      }
      const double s = *value / arrivals_per_s_;
      if (s < 0 || s > kMaxArrivalSeconds) {
        return Bad(kArrival, fmt::format("{} s is outside 0 to {:g}{}", Printable(cell), kMaxArrivalSeconds,
                                         s > 0 ? ": is it in milliseconds? Divide it by 1000" : ""));
      }
      row->arrival_ns = std::llround(*value * (1e9 / arrivals_per_s_));
    }
    if (row->arrival_ns < last_arrival_ns_) {
      return Bad(kArrival, fmt::format("{} s is before the row above ({} s): sort the trace by arrival",
                                       Printable(cell), static_cast<double>(last_arrival_ns_) * 1e-9));
    }
    last_arrival_ns_ = row->arrival_ns;
    return Status();
  }

  Status ReadHashIds(TraceRow* row) {
    row->first_hash_id = static_cast<int64_t>(file_->ids_.size());
    std::string_view cell = Cell(kHashIds);
    while (!cell.empty()) {
      const size_t space = std::min(cell.find(' '), cell.size());
      const auto id = Number<int64_t>(cell.substr(0, space));
      if (!id) return Bad(kHashIds, fmt::format("'{}' is not an id", Printable(cell.substr(0, space))));
      file_->ids_.push_back(*id);
      cell.remove_prefix(std::min(space + 1, cell.size()));
    }
    const auto count = static_cast<int64_t>(file_->ids_.size()) - row->first_hash_id;
    const int64_t blocks = (int64_t{row->prompt_tokens} + kHashBlockTokens - 1) / kHashBlockTokens;
    if (count > blocks) {
      return Bad(kHashIds, fmt::format("{} ids for a prompt of {} tokens, which has {} blocks of {}", count,
                                       row->prompt_tokens, blocks, kHashBlockTokens));
    }
    row->num_hash_ids = static_cast<int32_t>(count);
    return Status();
  }

  // Milliseconds above 0; an empty cell means none.
  Status ReadObjective(size_t column, int64_t* out_ns) const {
    if (Cell(column).empty()) return Status();
    const auto ms = Number<double>(Cell(column));
    if (!ms || !(*ms > 0 && *ms <= kMaxSloMs)) {
      return Bad(
          column,
          fmt::format(
              "'{}' is not a number of milliseconds above 0 and up to {:.0f}; leave the cell empty for no objective",
              Printable(Cell(column)), kMaxSloMs));
    }
    *out_ns = std::max<int64_t>(1, std::llround(*ms * 1e6));
    return Status();
  }

  Status ReadText(size_t column, size_t most_bytes, int32_t* out) {
    const std::string_view cell = Cell(column);
    if (cell.empty()) return Status();
    const bool control = std::any_of(cell.begin(), cell.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20; });
    if (cell.size() > most_bytes || control) {
      return Bad(column,
                 fmt::format("'{}' has {} bytes{}; a name has at most {}, none of them a control character",
                             Printable(cell), cell.size(), control ? " and a control character" : "", most_bytes));
    }
    const auto [place, added] = text_of_.try_emplace(std::string(cell), static_cast<int32_t>(file_->texts_.size()));
    if (added) file_->texts_.emplace_back(cell);
    *out = place->second;
    return Status();
  }

  // A row's terms besides lengths and text. Empty cells mean none.
  Status ReadTerms(TraceRow* row) {
    TACTUS_RETURN_IF_ERROR(ReadObjective(kSloTtft, &row->slo.ttft_ns));
    TACTUS_RETURN_IF_ERROR(ReadObjective(kSloTbt, &row->slo.tbt_ns));
    TACTUS_RETURN_IF_ERROR(ReadObjective(kSloJct, &row->slo.jct_ns));
    if (row->slo.jct_ns > 0 && row->slo.ttft_ns > row->slo.jct_ns) {
      return Bad(kSloTtft, fmt::format("the first token is due after {} ms, later than the whole answer after {} "
                                       "(slo_jct_ms): lower it, or leave one of the two empty",
                                       Printable(Cell(kSloTtft)), Printable(Cell(kSloJct))));
    }
    TACTUS_RETURN_IF_ERROR(ReadText(kSloClass, kMostClassBytes, &row->slo_class));
    TACTUS_RETURN_IF_ERROR(ReadText(kClient, kMostClientBytes, &row->client));
    if (const std::string_view cell = Cell(kPriority); !cell.empty()) {
      const auto value = Number<int32_t>(cell);
      if (!value) {
        return Bad(kPriority, fmt::format("'{}' is not a whole number from {} to {}", Printable(cell),
                                          std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
      }
      row->priority = *value;
    }
    if (!Cell(kPredicted).empty()) {
      TACTUS_RETURN_IF_ERROR(ReadTokens(kPredicted, &row->predicted_output_tokens));
      if (row->predicted_output_tokens == 0)
        return Bad(kPredicted, "an answer has at least 1 token: predict at least 1, or leave the cell empty");
    }
    return Status();
  }

  Status ReadRow(std::string_view line) {
    TACTUS_RETURN_IF_ERROR(Split(line));
    if (cells_.size() != width_) {
      return DataLoss(fmt::format("{}:{}: column {}: {} cells, but the header has {}", path_, number_,
                                  std::min(cells_.size(), width_) + 1, cells_.size(), width_));
    }
    return ReadCells();
  }

  Status ReadCells() {
    TraceRow row;
    TACTUS_RETURN_IF_ERROR(ReadTokens(kPrompt, &row.prompt_tokens));
    TACTUS_RETURN_IF_ERROR(ReadTokens(kOutput, &row.output_tokens));
    TACTUS_RETURN_IF_ERROR(ReadArrival(&row));
    if (row.prompt_tokens == 0 || row.output_tokens == 0) {
      ++file_->dropped_;
      return Status();
    }
    if (!Cell(kPrefixId).empty()) {
      const auto id = WholeNumber(Cell(kPrefixId));
      if (!id || *id < 0)
        return Bad(kPrefixId, fmt::format("'{}' is not an id of 0 or above", Printable(Cell(kPrefixId))));
      row.prefix_id = *id;
      TACTUS_RETURN_IF_ERROR(ReadTokens(kShared, &row.shared_tokens));
      if (row.shared_tokens > row.prompt_tokens) {
        return Bad(kShared, fmt::format("{} shared tokens in a prompt of {}", row.shared_tokens, row.prompt_tokens));
      }
    }
    TACTUS_RETURN_IF_ERROR(ReadHashIds(&row));
    TACTUS_RETURN_IF_ERROR(ReadTerms(&row));
    file_->rows_.push_back(row);
    file_->states_objectives_ = file_->states_objectives_ || row.slo.any() || row.slo_class > 0;
    file_->predicts_lengths_ = file_->predicts_lengths_ || row.predicted_output_tokens > 0;
    file_->has_high_priority_ = file_->has_high_priority_ || row.priority < 0;
    file_->shares_text_ = file_->shares_text_ || row.num_hash_ids > 0 || row.shared_tokens > 0;
    return Status();
  }

  const std::string& path_;
  std::shared_ptr<TraceFile> file_;
  std::array<int64_t, kNumColumns> at_ = [] {
    std::array<int64_t, kNumColumns> none;
    none.fill(-1);
    return none;
  }();
  std::unordered_map<std::string, int32_t> text_of_;  // index in the file's texts
  std::vector<std::string_view> cells_;
  std::vector<std::string> owned_;  // storage for cells_ that differ from the line's text
  bool objects_ = false;            // lines are JSON objects
  double arrivals_per_s_ = 1;       // in the file's time unit
  size_t width_ = 0;
  int64_t number_ = 1, number_rows_ = 0;
  bool arrivals_ = false;
  TimeNs last_arrival_ns_ = 0;
};

Result<std::shared_ptr<const TraceFile>> TraceFile::Parse(const std::string& path, std::string_view text) {
  return TraceParser(path).Run([&text](std::string_view* line) -> Result<bool> {
    const bool more = !text.empty();
    *line = TakeLine(&text);
    return more;
  });
}

Result<std::shared_ptr<const TraceFile>> TraceFile::Read(const std::string& path) {
  auto file = InputFile::Open(path, kMostBytes);
  if (file.status().code() == StatusCode::kNotFound) {
    return NotFound(
        fmt::format("{}; looked here and in the data folder (--data DIR or TACTUS_DATA)", file.status().message()),
        "workload");
  }
  if (!file.ok()) return DataLoss(file.status().message());
  TACTUS_RETURN_IF_ERROR(file->Unpack());
  std::string text;
  return TraceParser(path).Run([&](std::string_view* line) -> Result<bool> {
    TACTUS_ASSIGN_OR_RETURN(const bool more, file->ReadLine(&text, kMostLineBytes));
    *line = text;
    return more;
  });
}

}  // namespace tactus::sim
