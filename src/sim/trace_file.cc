#include "sim/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/csv.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace tactus {
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
constexpr int64_t kMostBytes = int64_t{4} << 30,
                  kMostLineBytes = int64_t{1} << 20;  // of a file: it need not have an end
constexpr double kMaxArrivalSeconds = 4e9;            // int64 nanoseconds end at 9.2e9 s
// As the API has them.
constexpr double kMaxSloMs = 1e9;
constexpr size_t kMostClassBytes = 64, kMostClientBytes = 1024;

template <class T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

class TraceParser {
 public:
  explicit TraceParser(const std::string& path) : path_(path), file_(std::make_shared<TraceFile>()) {}

  // `next`, a Result<bool>(std::string_view* line), gives one line after the other; false: there is none.
  template <class Next>
  Result<std::shared_ptr<const TraceFile>> Run(const Next& next) {
    std::string_view line;
    for (number_ = 1;; ++number_) {
      TACTUS_ASSIGN_OR_RETURN(const bool more, next(&line));
      if (!more && number_ > 1) break;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (number_ == 1) {
        TACTUS_RETURN_IF_ERROR(ReadHeader(line));
      } else if (!line.empty()) {
        TACTUS_RETURN_IF_ERROR(ReadRow(line));
      }
    }
    if (file_->rows_.empty()) return DataLoss(fmt::format("{}: no row with a prompt and an output", path_));
    return std::shared_ptr<const TraceFile>(std::move(file_));
  }

 private:
  Status Bad(size_t column, const std::string& what) const {
    return DataLoss(
        fmt::format("{}:{}: column {} ({}): {}", path_, number_, at_[column] + 1, kColumnNames[column], what));
  }

  Status ReadHeader(std::string_view line) {
    if (line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);  // a byte-order mark
    SplitCells(line, &cells_);
    width_ = cells_.size();
    for (size_t i = 0; i < width_; ++i) {
      for (size_t c = 0; c < kNumColumns; ++c) {
        if (cells_[i] != kColumnNames[c]) continue;
        if (at_[c] >= 0) return DataLoss(fmt::format("{}:1: column {}: '{}' twice", path_, i + 1, cells_[i]));
        at_[c] = static_cast<int64_t>(i);
      }
    }
    for (const size_t c : {kPrompt, kOutput}) {
      if (at_[c] < 0)
        return DataLoss(
            fmt::format("{}:1: no column '{}' in the header line '{}'; it names the columns, separated by commas, and "
                        "so do the rows",
                        path_, kColumnNames[c], Printable(line)));
    }
    if ((at_[kPrefixId] < 0) != (at_[kShared] < 0)) {
      return DataLoss(fmt::format("{}:1: prefix_id and shared_tokens come together", path_));
    }
    return Status();
  }

  std::string_view Cell(size_t column) const {
    return at_[column] < 0 ? std::string_view() : cells_[static_cast<size_t>(at_[column])];
  }

  // Whole tokens in [min, kMaxTraceTokens].
  Status ReadTokens(size_t column, int32_t* out) const {
    const auto value = Number<int64_t>(Cell(column));
    if (!value) return Bad(column, fmt::format("'{}' is no whole number", Printable(Cell(column))));
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
      return Bad(kArrival, present ? "a time, but rows before have none" : "no time, but rows before have one");
    if (!present) return Status();
    const auto value = Number<double>(cell);
    if (!value || !std::isfinite(*value))
      return Bad(kArrival, fmt::format("'{}' is no number of seconds", Printable(cell)));
    if (*value < 0 || *value > kMaxArrivalSeconds)
      return Bad(kArrival, fmt::format("{} s is outside 0 to {:g}", Printable(cell), kMaxArrivalSeconds));
    row->arrival_ns = std::llround(*value * 1e9);
    if (row->arrival_ns < last_arrival_ns_) {
      return Bad(kArrival, fmt::format("{} s comes before the row above ({} s): sort the trace by arrival",
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
      if (!id) return Bad(kHashIds, fmt::format("'{}' is no id", Printable(cell.substr(0, space))));
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

  // Milliseconds above 0; an empty cell states none.
  Status ReadObjective(size_t column, int64_t* out_ns) const {
    if (Cell(column).empty()) return Status();
    const auto ms = Number<double>(Cell(column));
    if (!ms || !(*ms > 0 && *ms <= kMaxSloMs)) {
      return Bad(column, fmt::format("'{}' is no number of milliseconds above 0 and up to {:.0f}; leave the cell empty "
                                     "where there is no objective",
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

  // What a row says of its request beside lengths and text. Empty cells say nothing.
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
        return Bad(kPriority, fmt::format("'{}' is no whole number from {} to {}", Printable(cell),
                                          std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
      }
      row->priority = *value;
    }
    if (!Cell(kPredicted).empty()) {
      TACTUS_RETURN_IF_ERROR(ReadTokens(kPredicted, &row->predicted_output_tokens));
      if (row->predicted_output_tokens == 0)
        return Bad(kPredicted, "an answer of 0 tokens is none: predict at least 1, or leave the cell empty");
    }
    return Status();
  }

  Status ReadRow(std::string_view line) {
    SplitCells(line, &cells_);
    if (cells_.size() != width_) {
      return DataLoss(fmt::format("{}:{}: column {}: {} cells, but the header has {}", path_, number_,
                                  std::min(cells_.size(), width_) + 1, cells_.size(), width_));
    }
    TraceRow row;
    TACTUS_RETURN_IF_ERROR(ReadTokens(kPrompt, &row.prompt_tokens));
    TACTUS_RETURN_IF_ERROR(ReadTokens(kOutput, &row.output_tokens));
    TACTUS_RETURN_IF_ERROR(ReadArrival(&row));
    if (row.prompt_tokens == 0 || row.output_tokens == 0) {
      ++file_->dropped_;
      return Status();
    }
    if (!Cell(kPrefixId).empty()) {
      const auto id = Number<int64_t>(Cell(kPrefixId));
      if (!id || *id < 0) return Bad(kPrefixId, fmt::format("'{}' is no id of 0 or above", Printable(Cell(kPrefixId))));
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
        fmt::format("{}; it is not here, nor in the data folder (--data DIR or TACTUS_DATA)", file.status().message()),
        "workload");
  }
  if (!file.ok()) return DataLoss(file.status().message());
  std::string text;
  return TraceParser(path).Run([&](std::string_view* line) -> Result<bool> {
    TACTUS_ASSIGN_OR_RETURN(const bool more, file->ReadLine(&text, kMostLineBytes));
    *line = text;
    return more;
  });
}

}  // namespace tactus
