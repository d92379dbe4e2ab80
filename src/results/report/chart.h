// Charts as SVG: lines over numbers, bars over names. A chart gives the same bytes on every machine. The colours can be
// distinguished by colour-blind readers, and lines also differ in their dashes. The style sheet, part of a page or of a
// separate file, follows the reader's light or dark scheme. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tactus::results {

// One colour per series; further series repeat them with other dashes.
inline constexpr size_t kNumColours = 7;

struct Line {
  std::string name;
  size_t colour = 0;
  bool dashed = false;
  bool dots = false;                // a dot at each point
  std::vector<double> x, y;         // NaN: a gap in the line
  std::vector<double> least, most;  // a band around the line, same size as y; empty: none
};

struct LinePlot {
  std::string id, title, x_label, y_label;
  std::vector<Line> lines;
  bool stacked = false;  // each area is on top of the ones before; all have the same x
  bool log_y = false;
  std::optional<double> y_top;  // fixed axis end; absent: from the values
  struct Limit {
    std::string name;
    double y = 0;
  };
  std::optional<Limit> limit;
  // Ranges above the limit, each from `from` to `to`, in the warning colour.
  struct Mark {
    double x = 0, from = 0, to = 0, width = 0;  // centred at x
  };
  std::vector<Mark> marks;
  std::string marks_name;
};

struct BarPlot {
  std::string id, title, y_label;
  std::vector<std::string> categories;
  std::vector<std::string> full_names;  // replace the names in CSV, if given
  struct Series {
    std::string name;
    size_t colour = 0;
    std::vector<double> values;  // one per category; NaN: none
  };
  std::vector<Series> series;
  bool stacked = false;
  std::optional<double> y_top;
};

// An <svg> element. `alone`: a separate document, with the style.
std::string Svg(const LinePlot& plot, bool alone);
std::string Svg(const BarPlot& plot, bool alone);
// The drawn values as CSV with a header line.
std::string Csv(const LinePlot& plot);
std::string Csv(const BarPlot& plot);
// The style of all charts.
std::string ChartCss();

// About `most` round numbers at most that cover [low, high].
std::vector<double> Ticks(double low, double high, int most);
// "0.25", "1500", "15k", "2.5M".
std::string Number(double value);
// Escapes &, <, > and quotes, and replaces control characters and bytes that are not UTF-8.
std::string Escaped(std::string_view text);

}  // namespace tactus::results
