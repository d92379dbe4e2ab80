#include "cli/top/live_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/utf8.h"

namespace tactus::cli {
namespace {

constexpr int kGap = 2;              // columns between two figures or cells
constexpr int kMostName = 40;        // columns of the first cell of a row
constexpr size_t kMostLines = 4096;  // of a view without a height

// ---- Figures, as on the page (web/dom.js) ----

std::string Count(double value) {
  if (value < 0) return "-";
  if (value < 10'000) return fmt::format("{:.0f}", value);
  if (value < 1e6) return fmt::format("{:.1f} k", value / 1e3);
  return value < 1e12 ? fmt::format("{:.2f} M", value / 1e6) : fmt::format("{:.1e}", value);
}

std::string Ms(double value) {
  if (value < 0) return "-";
  if (value < 9.95) return fmt::format("{:.1f} ms", value);
  if (value < 999.5) return fmt::format("{:.0f} ms", value);
  if (value < 99'500) return fmt::format("{:.2f} s", value / 1e3);
  return value < 1e12 ? fmt::format("{:.0f} s", value / 1e3) : fmt::format("{:.1e} s", value / 1e3);
}

std::string Percent(double share) {
  return fmt::format("{:.{}f} %", 100 * share, share > 0.9995 || share < 0.0005 ? 0 : 1);
}

std::string RateText(const LiveView& view, const char* name) {
  const std::optional<double> rate = view.Rate(name);
  return rate ? Count(*rate) : "-";
}

struct Figure {
  std::string name, value, note;
  bool bad = false;
};

std::vector<Figure> ServerFigures(const LiveView& view) {
  const double total = std::max(view.Figure("kv_total"), 1.0), queries = view.Figure("prefix_query_tokens");
  const double drafted = view.Figure("draft_tokens"), waiting_tokens = view.Figure("waiting_tokens");
  const std::optional<double> step_ms = view.MedianStepMs();
  const double predicted_ms = view.steps().empty() ? -1 : view.steps().back().predicted_ms;
  std::vector<Figure> all = {
      {"running", Count(view.Figure("running")), ""},
      {"waiting", Count(view.Figure("waiting")), waiting_tokens > 0 ? Count(waiting_tokens) + " tokens" : ""},
      {"output", RateText(view, "generation_tokens"), "tokens/s"},
      {"prompts", RateText(view, "prompt_tokens"), "tokens/s"},
      {"step", step_ms ? Ms(*step_ms) : "-", predicted_ms >= 0 ? "predicted " + Ms(predicted_ms) : ""},
      {"KV cache", Percent(view.Figure("kv_in_use") / total), Percent(view.Figure("kv_cached") / total) + " cached"},
      {"prefix hits", queries > 0 ? Percent(view.Figure("prefix_hit_tokens") / queries) : "-", ""},
  };
  if (drafted > 0) all.push_back({"speculation", Percent(view.Figure("accepted_tokens") / drafted), "right"});
  all.push_back({"preemptions", Count(view.Figure("preemptions")), "of " + Count(view.Figure("steps")) + " steps"});
  return all;
}

std::vector<Figure> FleetFigures(const LiveView& view) {
  const double ready = view.Figure("ready"), failed = view.Figure("failed");
  const auto replicas = static_cast<double>(view.replicas().size());
  return {
      {"ready", Count(ready), "of " + Count(replicas), ready < replicas},
      {"in flight", Count(view.Figure("in_flight")), ""},
      {"running", Count(view.Figure("running")), ""},
      {"waiting", Count(view.Figure("waiting")), ""},
      {"answers", RateText(view, "answers"), "per second"},
      {"failed", Count(failed), "of " + Count(view.Figure("answers")), failed > 0},
      {"retries", Count(view.Figure("retries")), ""},
      {"hedges", Count(view.Figure("hedges")), ""},
      {"moved", Count(view.Figure("moved")), ""},
  };
}

std::vector<Figure> FiguresOf(const LiveView& view) {
  return view.fleet() ? FleetFigures(view) : ServerFigures(view);
}

// ---- Lines ----

void Append(std::vector<Line> from, std::vector<Line>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

int LineColumns(const Line& line) {
  return std::accumulate(line.begin(), line.end(), 0, [](int sum, const Piece& p) { return sum + ColumnsOf(p.text); });
}

// Puts the items one after another into lines of this width.
std::vector<Line> Flow(const std::vector<Line>& items, int width) {
  std::vector<Line> lines;
  int used = 0;
  for (const Line& item : items) {
    const int columns = LineColumns(item);
    if (lines.empty() || used + kGap + columns > width) {
      lines.emplace_back();
      used = 0;
    } else {
      lines.back().push_back({std::string(kGap, ' ')});
      used += kGap;
    }
    lines.back().insert(lines.back().end(), item.begin(), item.end());
    used += columns;
  }
  return lines;
}

Line FigureLine(const Figure& f) {
  Line line = {{f.name + " ", Style::kDim}, {f.value, f.bad ? Style::kBad : Style::kBold}};
  if (!f.note.empty()) line.push_back({" " + f.note, Style::kDim});
  return line;
}

const char* ObjectiveTitle(std::string_view name) {
  if (name == "all") return "all objectives";
  if (name == "ttft") return "first token";
  if (name == "tbt") return "longest gap";
  return name == "jct" ? "whole answer" : "single gaps";
}

// For each class that has stated objectives the shares that were kept, in `most` lines.
std::vector<Line> ClassLines(const LiveView& view, int width, size_t most) {
  std::vector<Line> lines;
  for (const ClassRow& c : view.classes()) {
    if (c.kept.empty()) continue;
    std::vector<Line> items = {{{"kept, ", Style::kDim},
                                {c.name.empty() ? "no class" : "class " + c.name},
                                {fmt::format(", {} requests:", Count(c.requests)), Style::kDim}}};
    for (const auto& [objective, kept] : c.kept) {
      const double share = kept.first > 0 ? kept.second / kept.first : 1;
      items.push_back({{fmt::format("{} ", ObjectiveTitle(objective)), Style::kDim},
                       {Percent(share), share < 0.9 ? Style::kBad : Style::kPlain}});
    }
    std::vector<Line> flow = Flow(items, width);
    if (lines.size() + flow.size() > most) break;
    Append(std::move(flow), &lines);
  }
  return lines;
}

// The times of the newest steps, a character each, as high as the longest of them.
Line StepChart(const LiveView& view, int width, bool blocks) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kPlain[] = {".", ":", "-", "=", "+", "*", "#", "@"};
  const auto& steps = view.steps();
  if (steps.empty()) return {{"no step yet", Style::kDim}};
  double most = 0;
  for (const StepTime& s : steps) most = std::max(most, s.ms);
  const std::string before = "step times ", after = fmt::format(" longest {}", Ms(most));
  const int room = std::max(width - ColumnsOf(before) - ColumnsOf(after), 0);
  const size_t shown = std::min(steps.size(), static_cast<size_t>(room));
  std::string chart;
  for (size_t i = steps.size() - shown; i < steps.size(); ++i) {
    const int level = most > 0 ? std::clamp(static_cast<int>(8 * steps[i].ms / most), 0, 7) : 0;
    chart += (blocks ? kBlocks : kPlain)[level];
  }
  return {{before, Style::kDim}, {chart}, {after, Style::kDim}};
}

// ---- Tables ----

struct Table {
  std::vector<const char*> titles;  // of columns; a column of text is to the left, one of figures to the right
  std::vector<bool> text;
  std::vector<std::vector<Piece>> rows;
};

// Rows [first, first + count) below the titles.
std::vector<Line> TableLines(const Table& table, size_t first, size_t count) {
  const size_t end = std::min(table.rows.size(), first + count);
  std::vector<int> widths;
  for (size_t c = 0; c < table.titles.size(); ++c) {
    int width = ColumnsOf(table.titles[c]);
    for (size_t r = first; r < end; ++r) width = std::max(width, ColumnsOf(table.rows[r][c].text));
    widths.push_back(table.text[c] ? std::min(width, kMostName) : width);
  }
  const auto pad = [&](size_t c, Piece piece, Line* line) {
    std::string cut = LineText({{piece.text}}, widths[c], false);
    const auto space = std::string(static_cast<size_t>(widths[c] - ColumnsOf(cut)), ' ');
    piece.text = table.text[c] ? cut + space : space + cut;
    if (c > 0) line->push_back({std::string(kGap, ' ')});
    line->push_back(std::move(piece));
  };
  std::vector<Line> lines(1);
  for (size_t c = 0; c < table.titles.size(); ++c) pad(c, {table.titles[c], Style::kDim}, &lines[0]);
  for (size_t r = first; r < end; ++r) {
    lines.emplace_back();
    for (size_t c = 0; c < table.titles.size(); ++c) pad(c, table.rows[r][c], &lines.back());
  }
  return lines;
}

bool Has(std::string_view text, std::string_view filter) {
  const auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), filter.begin(), filter.end(), equal) != text.end();
}

// Sorts by `key`, the largest first, or by text; equal rows stay in their order.
template <class Row, class Key>
void SortBy(std::vector<Row>* rows, bool reverse, Key key) {
  std::stable_sort(rows->begin(), rows->end(),
                   [&](const Row& a, const Row& b) { return reverse ? key(b) < key(a) : key(a) < key(b); });
}

Style Missed(double value, double objective) {
  return objective > 0 && value > objective ? Style::kBad : Style::kPlain;
}

Table StreamTable(const LiveView& view, const ViewChoices& choices) {
  std::vector<LiveRow> rows = view.rows();
  std::erase_if(rows,
                [&](const LiveRow& r) { return !Has(r.name, choices.filter) && !Has(r.slo_class, choices.filter); });
  const auto by = [&](auto member) {
    SortBy(&rows, choices.reverse, [member](const LiveRow& r) { return -(r.*member); });
  };
  switch (choices.sort) {
    case 1:
      by(&LiveRow::tokens);
      break;
    case 2:
      by(&LiveRow::prompt);
      break;
    case 3:
      by(&LiveRow::ttft_ms);
      break;
    case 4:
      by(&LiveRow::last_gap_ms);
      break;
    case 5:
      by(&LiveRow::longest_gap_ms);
      break;
    case 6:
      SortBy(&rows, choices.reverse, [](const LiveRow& r) { return r.slo_class; });
      break;
    default:
      SortBy(&rows, choices.reverse, [](const LiveRow& r) { return -r.request; });
  }
  Table table{{"request", "class", "prompt", "read", "tokens", "first", "last gap", "longest", "objective"},
              {true, true, false, false, false, false, false, false, false},
              {}};
  for (const LiveRow& r : rows) {
    const double read = r.prompt > 0 ? std::clamp(r.computed / r.prompt, 0.0, 1.0) : 1;
    table.rows.push_back({{r.name},
                          {r.slo_class.empty() ? "-" : r.slo_class},
                          {Count(r.prompt)},
                          {fmt::format("{:.0f} %", 100 * read)},
                          {Count(r.tokens), Style::kBold},
                          {Ms(r.ttft_ms), Missed(r.ttft_ms, r.ttft_objective_ms)},
                          {Ms(r.last_gap_ms), Missed(r.last_gap_ms, r.tbt_objective_ms)},
                          {Ms(r.longest_gap_ms), Missed(r.longest_gap_ms, r.tbt_objective_ms)},
                          {Ms(r.tbt_objective_ms), Style::kDim}});
  }
  return table;
}

Table EndedTable(const LiveView& view, const ViewChoices& choices) {
  Table table{{"ended", "class", "reason", "prompt", "tokens", "first", "whole", "longest", "missed"},
              {true, true, true, false, false, false, false, false, true},
              {}};
  for (const EndedRow& e : view.ended_rows()) {
    if (!Has(e.name, choices.filter) && !Has(e.slo_class, choices.filter)) continue;
    table.rows.push_back({{e.name},
                          {e.slo_class.empty() ? "-" : e.slo_class},
                          {e.finish},
                          {Count(e.prompt)},
                          {Count(e.tokens)},
                          {Ms(e.ttft_ms)},
                          {Ms(e.e2e_ms)},
                          {Ms(e.longest_gap_ms)},
                          {e.misses, Style::kBad}});
  }
  return table;
}

Table ReplicaTable(const LiveView& view, const ViewChoices& choices) {
  std::vector<ReplicaRow> rows = view.replicas();
  std::erase_if(rows,
                [&](const ReplicaRow& r) { return !Has(r.url, choices.filter) && !Has(r.state, choices.filter); });
  const auto by = [&](auto member) {
    SortBy(&rows, choices.reverse, [member](const ReplicaRow& r) { return -(r.*member); });
  };
  switch (choices.sort) {
    case 1:
      SortBy(&rows, choices.reverse, [](const ReplicaRow& r) { return r.state; });
      break;
    case 2:
      by(&ReplicaRow::in_flight);
      break;
    case 3:
      by(&ReplicaRow::waiting);
      break;
    case 4:
      by(&ReplicaRow::kv_share);
      break;
    case 5:
      by(&ReplicaRow::failures);
      break;
    default:
      SortBy(&rows, choices.reverse, [](const ReplicaRow& r) { return r.url; });
  }
  Table table{
      {"replica", "state", "version", "in flight", "running", "waiting", "KV", "requests", "failures", "ejections"},
      {true, true, true, false, false, false, false, false, false, false},
      {}};
  for (const ReplicaRow& r : rows) {
    table.rows.push_back({{r.url},
                          {r.state, r.state == "ready" ? Style::kPlain : Style::kBad},
                          {r.version, Style::kDim},
                          {Count(r.in_flight), Style::kBold},
                          {Count(r.running)},
                          {Count(r.waiting)},
                          {r.kv_share < 0 ? "-" : Percent(r.kv_share)},
                          {Count(r.requests)},
                          {Count(r.failures), r.failures > 0 ? Style::kBad : Style::kPlain},
                          {Count(r.ejections)}});
  }
  return table;
}

// The columns of a character. Half-width forms of most writing systems take one.
int ColumnsOfPoint(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (in(0x300, 0x36f) || in(0x200b, 0x200f) || in(0xfe00, 0xfe0f) || in(0x20d0, 0x20ff)) return 0;
  return in(0x1100, 0x115f) || in(0x2e80, 0xa4cf) || in(0xac00, 0xd7a3) || in(0xf900, 0xfaff) || in(0xfe30, 0xfe6f) ||
                 in(0xff00, 0xff60) || in(0xffe0, 0xffe6) || in(0x1f300, 0x1faff) || in(0x20000, 0x3fffd)
             ? 2
             : 1;
}

// The longest beginning of the text that takes at most this many columns, which `columns` gets.
std::string_view Beginning(std::string_view text, int most, int* columns) {
  size_t at = 0;
  *columns = 0;
  while (at < text.size()) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    const int wide = ColumnsOfPoint(step.code_point);
    if (*columns + wide > most) break;
    *columns += wide;
    at += step.size;
  }
  return text.substr(0, at);
}

}  // namespace

int ColumnsOf(std::string_view text) {
  int columns = 0;
  Beginning(text, static_cast<int>(std::min<size_t>(2 * text.size(), 1 << 20)), &columns);
  return columns;
}

std::string LineText(const Line& line, int width, bool colours) {
  static constexpr const char* kStyles[] = {"", "\033[1m", "\033[2m", "\033[31m"};
  std::string out;
  int left = width;
  for (const Piece& piece : line) {
    int columns = 0;
    const std::string_view text = Beginning(piece.text, left, &columns);
    const bool styled = colours && piece.style != Style::kPlain && !text.empty();
    if (styled) out += kStyles[static_cast<size_t>(piece.style)];
    out += text;
    if (styled) out += "\033[0m";
    left -= columns;
    if (text.size() < piece.text.size()) break;
  }
  return out;
}

const std::vector<std::string_view>& SortNames(bool fleet) {
  static const std::vector<std::string_view> streams = {"newest",   "tokens",      "prompt", "first token",
                                                        "last gap", "longest gap", "class"};
  static const std::vector<std::string_view> replicas = {"address", "state", "in flight", "waiting", "KV", "failures"};
  return fleet ? replicas : streams;
}

std::string FiguresText(const LiveView& view) {
  std::string text;
  for (const Figure& f : FiguresOf(view)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", f.name, f.value);
    if (!f.note.empty()) text += " " + f.note;
  }
  return text;
}

std::vector<Line> Draw(const LiveView& view, ViewChoices* choices, const DrawOptions& options) {
  std::vector<Line> lines = {{{view.title(), Style::kBold}}};
  std::vector<Line> figures;
  for (const Figure& f : FiguresOf(view)) figures.push_back(FigureLine(f));
  Append(Flow(figures, options.width), &lines);
  if (!view.fleet()) {
    lines.push_back(StepChart(view, options.width, options.blocks));
    // The table gets two thirds of a screen.
    const size_t most = options.height > 0 ? static_cast<size_t>(options.height) / 3 : kMostLines;
    Append(ClassLines(view, options.width, most - std::min(most, lines.size())), &lines);
  }
  if (view.missed_frames() + view.missed_records() > 0) {
    lines.push_back(
        {{fmt::format("this view missed {} frames and {} records", view.missed_frames(), view.missed_records()),
          Style::kDim}});
  }
  lines.emplace_back();
  const Table table = view.fleet() ? ReplicaTable(view, *choices) : StreamTable(view, *choices);
  const Table ended = view.fleet() ? Table{} : EndedTable(view, *choices);
  const size_t room = options.height > 0
                          ? static_cast<size_t>(std::max(options.height - static_cast<int>(lines.size()), 2))
                          : kMostLines;
  // Requests that ended get up to a third of the lines, and what the others leave.
  const size_t for_ended = ended.rows.empty() ? 0 : std::min(ended.rows.size() + 2, room / 3);
  const size_t rows = std::max<size_t>(room - 1 - for_ended, 1);
  const auto last_first = static_cast<int64_t>(table.rows.size()) - static_cast<int64_t>(rows);
  choices->first_row = std::clamp<int64_t>(choices->first_row, 0, std::max<int64_t>(last_first, 0));
  Append(TableLines(table, static_cast<size_t>(choices->first_row), rows), &lines);
  if (table.rows.empty()) {
    lines.push_back(
        {{choices->filter.empty() ? (view.fleet() ? "no replica" : "no request runs") : "nothing fits the filter",
          Style::kDim}});
  }
  const auto used = static_cast<int>(lines.size());
  const int left = options.height > 0 ? options.height - used : static_cast<int>(kMostLines);
  if (!ended.rows.empty() && left > 2) {
    lines.emplace_back();
    Append(TableLines(ended, 0, static_cast<size_t>(left - 2)), &lines);
  }
  if (options.height > 0 && lines.size() > static_cast<size_t>(options.height))
    lines.resize(static_cast<size_t>(options.height));
  return lines;
}

}  // namespace tactus::cli
