// Charts as SVG: lines over numbers, bars over names. One chart gives the same bytes on every machine. Colours are
// some that the colour-blind can tell apart, and lines also differ in their dashes; a page, or a file of its own,
// brings the style, which follows the reader's light or dark scheme. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tactus::results {

// One colour per series; beyond that they repeat with other dashes.
inline constexpr size_t kNumColours = 7;

struct Line {
  std::string name;
  size_t colour = 0;
  bool dashed = false;
  bool dots = false;                // a dot at each point
  std::vector<double> x, y;         // NaN: the line is broken there
  std::vector<double> least, most;  // a band about it, as long as y; empty: none
};

struct LinePlot {
  std::string id, title, x_label, y_label;
  std::vector<Line> lines;
  bool stacked = false;  // areas, each upon the ones before; all have the same x
  bool log_y = false;
  std::optional<double> y_top;  // fixed; else from the values
  struct Limit {
    std::string name;
    double y = 0;
  };
  std::optional<Limit> limit;
  // Stretches above the limit, each from `from` to `to`, in the colour of warnings.
  struct Mark {
    double x = 0, from = 0, to = 0, width = 0;  // about x
  };
  std::vector<Mark> marks;
  std::string marks_name;
};

struct BarPlot {
  std::string id, title, y_label;
  std::vector<std::string> categories;
  std::vector<std::string> full_names;  // in CSV instead of them, where there are any
  struct Series {
    std::string name;
    size_t colour = 0;
    std::vector<double> values;  // one per category; NaN: none
  };
  std::vector<Series> series;
  bool stacked = false;
  std::optional<double> y_top;
};

// A <svg> element. `alone`: a document of its own, with the style.
std::string Svg(const LinePlot& plot, bool alone);
std::string Svg(const BarPlot& plot, bool alone);
// What is drawn, as CSV with a header line.
std::string Csv(const LinePlot& plot);
std::string Csv(const BarPlot& plot);
// The style of all charts.
std::string ChartCss();

// At most about `most` round numbers that cover [low, high].
std::vector<double> Ticks(double low, double high, int most);
// "0.25", "1500", "15k", "2.5M".
std::string Number(double value);
// With &, <, > and quotes escaped, and control characters and bytes that are not UTF-8 replaced.
std::string Escaped(std::string_view text);

}  // namespace tactus::results
