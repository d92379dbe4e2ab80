#include "results/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/json_text.h"
#include "base/markup_text.h"

namespace tactus::results {
namespace {

// A picture on a page is about as wide as a phone's screen, so that its text has the size of the page's text; a
// separate file is wider.
struct Size {
  double width, height;
};
constexpr Size kOnPage{400, 290}, kAlone{720, 300};
constexpr double kLeft = 64, kRight = 16, kBottom = 46;
constexpr double kTitleY = 20, kLegendY = 40, kLegendRow = 18;
constexpr double kTextWidth = 7.0;  // of an average character
constexpr double kTickRoom = 52;    // between two ticks of the horizontal axis

// Near Okabe and Ito's colours, ordered so that neighbours differ most. Readers with any colour-blindness can
// distinguish any two, and each contrasts with the paper (tests/results/report/palette_test.cc).
constexpr const char* kLight[kNumColours] = {"#0065ad", "#c98500", "#00905a", "#bc78b4",
                                             "#2f90e8", "#9c4000", "#6b6b6b"};
constexpr const char* kDark[kNumColours] = {"#4a8ee8", "#f3bf23", "#2adf9b", "#d9a8c8",
                                            "#a5d4ff", "#f67e4b", "#7c7c7c"};
constexpr const char* kDashes[] = {"", "6 3", "2 3", "8 3 2 3"};

std::string Coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

class Canvas {
 public:
  Canvas(const std::string& id, const std::string& title, Size size, bool alone) : width_(size.width) {
    const double height = size.height;
    Write(R"(<svg class="chart" role="img" aria-labelledby="{0}-title" viewBox="0 0 {1} {2}"{3}>)", Escaped(id),
          Coordinate(width_), Coordinate(height),
          alone ? fmt::format(R"( xmlns="http://www.w3.org/2000/svg" width="{}" height="{}")", Coordinate(width_),
                              Coordinate(height))
                : "");
    Write("\n<title id=\"{}-title\">{}</title>\n", Escaped(id), Escaped(title));
    if (alone) {
      Write("<style>\n{}</style>\n", ChartCss());
      Write("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", Coordinate(width_), Coordinate(height));
    }
    Text("title", kLeft, kTitleY, title);
  }
  template <class... Args>
  void Write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void Text(const char* style, double x, double y, std::string_view text) {
    Write("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", style, Coordinate(x), Coordinate(y), Escaped(text));
  }
  void Rule(const char* style, double x1, double y1, double x2, double y2) {
    Write("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", style, Coordinate(x1), Coordinate(y1),
          Coordinate(x2), Coordinate(y2));
  }
  double right() const { return width_ - kRight; }  // right end of the plot
  std::string Take() { return std::move(out_) + "</svg>\n"; }

 private:
  const double width_;
  std::string out_;
};

// Names with a swatch each, in rows.
struct LegendEntry {
  std::string name, swatch;  // the swatch drawn at 0, 0 in 18 by 10
};

double LegendRows(const std::vector<LegendEntry>& entries, double right) {
  double x = kLeft, rows = entries.empty() ? 0 : 1;
  for (const LegendEntry& e : entries) {
    const double width = 26 + kTextWidth * static_cast<double>(e.name.size()) + 14;
    if (x > kLeft && x + width > right) {
      x = kLeft;
      ++rows;
    }
    x += width;
  }
  return rows;
}

void DrawLegend(const std::vector<LegendEntry>& entries, Canvas* canvas) {
  double x = kLeft, y = kLegendY;
  for (const LegendEntry& e : entries) {
    const double width = 26 + kTextWidth * static_cast<double>(e.name.size()) + 14;
    if (x > kLeft && x + width > canvas->right()) {
      x = kLeft;
      y += kLegendRow;
    }
    canvas->Write("<g transform=\"translate({} {})\">{}</g>\n", Coordinate(x), Coordinate(y - 9), e.swatch);
    canvas->Text("legend", x + 23, y, e.name);
    x += width;
  }
}

struct Scale {
  double from = 0, to = 1;    // values
  double begin = 0, end = 1;  // coordinates
  bool log = false;
  double operator()(double value) const {
    const double part = log ? (std::log(std::max(value, from)) - std::log(from)) / (std::log(to) - std::log(from))
                            : (value - from) / (to - from);
    return begin + std::clamp(part, 0.0, 1.0) * (end - begin);
  }
};

// Powers of ten; with few of them also 2 and 5 times each.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  const bool few = high / low < 1e4;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high * 1.0001; decade *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = decade * factor;
      if ((factor == 1 || few) && tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push_back(tick);
    }
  }
  return ticks;
}

// The frame with its axes, shared by lines and bars.
struct Frame {
  double top = 0, bottom = 0;
  Scale y;
};

Frame DrawFrame(double legend_rows, double height, const std::string& y_label, double low, double high, bool log,
                Canvas* canvas) {
  Frame f;
  f.top = kLegendY + 3 + kLegendRow * legend_rows;
  f.bottom = height - kBottom;
  std::vector<double> ticks;
  if (log) {
    // Extends the axis to round numbers.
    for (const double factor : {5.0, 2.0, 1.0}) {
      const double tick = std::pow(10, std::floor(std::log10(low))) * factor;
      if (tick <= low) {
        low = tick;
        break;
      }
    }
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      const double tick = std::pow(10, std::floor(std::log10(high))) * factor;
      if (tick >= high) {
        high = tick;
        break;
      }
    }
    if (high <= low) high = 10 * low;
    ticks = LogTicks(low, high);
  } else {
    ticks = Ticks(low, high, 6);
    low = std::min(low, ticks.front());
    high = std::max(high, ticks.back());
  }
  f.y = {low, high, f.bottom, f.top, log};
  for (const double tick : ticks) {
    const double y = f.y(tick);
    canvas->Rule("grid", kLeft, y, canvas->right(), y);
    canvas->Text("tick end", kLeft - 6, y + 4, Number(tick));
  }
  canvas->Write("<text class=\"label middle\" transform=\"translate(14 {}) rotate(-90)\">{}</text>\n",
                Coordinate((f.top + f.bottom) / 2), Escaped(y_label));
  return f;
}

struct Range {
  static constexpr double kMost = 1e100;  // larger values are not drawn to scale
  double low = 0, high = 0;
  bool any = false;
  void Hold(double value) {
    if (!(std::abs(value) < kMost)) return;
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
};

bool Shown(double y, bool log) {
  return std::isfinite(y) && (!log || y > 0);
}

// An SVG path "M x y L x y ..." through the points with a y; a new "M" after a gap.
std::string Path(const std::vector<double>& xs, const std::vector<double>& ys, const Scale& x, const Scale& y) {
  std::string path;
  bool on = false;
  for (size_t i = 0; i < ys.size(); ++i) {
    if (!Shown(ys[i], y.log)) {
      on = false;
      continue;
    }
    path += fmt::format("{}{} {}", on ? "L" : "M", Coordinate(x(xs[i])), Coordinate(y(ys[i])));
    on = true;
  }
  return path;
}

// The area between two lines, one closed path per section without a gap.
std::string Area(const std::vector<double>& xs, const std::vector<double>& below, const std::vector<double>& above,
                 const Scale& x, const Scale& y) {
  std::string path;
  for (size_t begin = 0; begin < xs.size();) {
    size_t end = begin;
    while (end < xs.size() && Shown(above[end], y.log)) ++end;
    if (end > begin) {
      for (size_t i = begin; i < end; ++i)
        path += fmt::format("{}{} {}", i == begin ? "M" : "L", Coordinate(x(xs[i])), Coordinate(y(above[i])));
      for (size_t i = end; i-- > begin;) path += fmt::format("L{} {}", Coordinate(x(xs[i])), Coordinate(y(below[i])));
      path += "Z";
    }
    begin = end + 1;
  }
  return path;
}

// Three significant digits.
std::string ShortNumber(double value) {
  const double size = std::abs(value);
  if (size >= 100 && size < 1e4) return fmt::format("{:.0f}", value);
  if (size >= 1e6) return fmt::format("{:.3g}M", value * 1e-6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value * 1e-3);
  return size < 1e-9 ? "0" : fmt::format("{:.3g}", value);
}

std::string StrokeStyle(size_t colour, bool dashed) {
  const size_t dash = (dashed ? 1 : 0) + 2 * (colour / kNumColours % 2);
  return dash == 0 ? fmt::format("class=\"line s{}\"", colour % kNumColours)
                   : fmt::format("class=\"line s{}\" stroke-dasharray=\"{}\"", colour % kNumColours, kDashes[dash]);
}

std::vector<LegendEntry> LegendOf(const LinePlot& plot) {
  std::vector<LegendEntry> legend;
  for (const Line& line : plot.lines) {
    if (line.name.empty()) continue;
    legend.push_back(
        {line.name, plot.stacked
                        ? fmt::format("<rect class=\"f{}\" width=\"18\" height=\"10\"/>", line.colour % kNumColours)
                        : fmt::format("<path {} d=\"M0 5L18 5\"/>", StrokeStyle(line.colour, line.dashed))});
  }
  if (plot.limit) legend.push_back({plot.limit->name, "<path class=\"limit\" d=\"M0 5L18 5\"/>"});
  if (!plot.marks.empty())
    legend.push_back({plot.marks_name, "<rect class=\"mark\" x=\"6\" width=\"6\" height=\"10\"/>"});
  return legend;
}

void DrawX(const LinePlot& plot, const Scale& x, const Frame& frame, Canvas* canvas) {
  canvas->Rule("axis", kLeft, frame.bottom, canvas->right(), frame.bottom);
  for (const double tick : Ticks(x.from, x.to, static_cast<int>((canvas->right() - kLeft) / kTickRoom))) {
    if (tick < x.from - 1e-12 || tick > x.to * (1 + 1e-12)) continue;
    canvas->Rule("axis", x(tick), frame.bottom, x(tick), frame.bottom + 4);
    canvas->Text("tick middle", x(tick), frame.bottom + 17, Number(tick));
  }
  canvas->Text("label middle", (kLeft + canvas->right()) / 2, frame.bottom + 36, plot.x_label);
}

void DrawStacked(const LinePlot& plot, const Scale& x, const Scale& y, Canvas* canvas) {
  std::vector<double> below;
  for (const Line& line : plot.lines) {
    if (below.empty()) below.assign(line.x.size(), 0);
    std::vector<double> above = below;
    for (size_t i = 0; i < above.size(); ++i) above[i] += line.y[i];
    canvas->Write("<path class=\"f{}\" d=\"{}\"/>\n", line.colour % kNumColours, Area(line.x, below, above, x, y));
    below = std::move(above);
  }
}

void DrawLines(const LinePlot& plot, const Scale& x, const Scale& y, Canvas* canvas) {
  for (const Line& line : plot.lines) {
    if (!line.least.empty())
      canvas->Write("<path class=\"band f{}\" d=\"{}\"/>\n", line.colour % kNumColours,
                    Area(line.x, line.least, line.most, x, y));
  }
  for (const Line& line : plot.lines) {
    canvas->Write("<path {} d=\"{}\"/>\n", StrokeStyle(line.colour, line.dashed), Path(line.x, line.y, x, y));
    for (size_t i = 0; line.dots && i < line.x.size(); ++i) {
      if (Shown(line.y[i], y.log))
        canvas->Write("<circle class=\"f{}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>\n", line.colour % kNumColours,
                      Coordinate(x(line.x[i])), Coordinate(y(line.y[i])));
    }
  }
}

// Each mark is as wide as its interval, so that adjacent ones form one area.
void DrawMarks(const LinePlot& plot, const Scale& x, const Scale& y, Canvas* canvas) {
  constexpr double kThinnest = 2;
  std::string path;
  for (const LinePlot::Mark& m : plot.marks) {
    const double middle = x(m.x), half = std::max(kThinnest, x(m.x + m.width) - middle) / 2;
    path +=
        fmt::format("M{0} {2}H{1}V{3}H{0}Z", Coordinate(std::max(kLeft, middle - half)),
                    Coordinate(std::min(canvas->right(), middle + half)), Coordinate(y(m.from)), Coordinate(y(m.to)));
  }
  canvas->Write("<path class=\"mark\" d=\"{}\"/>\n", path);
}

// A CSV cell: no comma, quote or line break.
std::string Cell(std::string_view text) {
  std::string cell = json_text::ReplaceInvalidUtf8(text);
  for (char& c : cell) {
    if (c == ',' || c == '"' || static_cast<uint8_t>(c) < 0x20) c = '_';
  }
  return cell;
}
std::string Cell(double value) {
  return std::isfinite(value) ? fmt::format("{:.10g}", value) : "";
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string shown = json_text::ReplaceInvalidUtf8(text);
  for (char& c : shown) {
    if (static_cast<uint8_t>(c) < 0x20) c = ' ';
  }
  return EscapeMarkup(shown);
}

std::string Number(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.4g}M", value * 1e-6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value * 1e-3);
  if (size < 1e-9) return "0";
  return fmt::format("{:.4g}", value);
}

std::vector<double> Ticks(double low, double high, int most) {
  const double span = high > low ? high - low : 1;
  double step = std::pow(10, std::floor(std::log10(span / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (step * factor) <= most) {
      step *= factor;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil((low + span) / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string ChartCss() {
  std::string css =
      ".chart{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px}\n"
      ".chart text{fill:#222}.chart .title{font-size:15px;font-weight:600}.chart .legend,.chart .tick{font-size:12px}\n"
      ".chart .middle{text-anchor:middle}.chart .end{text-anchor:end}\n"
      ".chart .paper{fill:#ffffff}.chart .grid{stroke:#ddd}.chart .axis{stroke:#555}\n"
      ".chart .line{fill:none;stroke-width:1.6;stroke-linejoin:round}.chart .band{opacity:.25}\n"
      ".chart .limit{fill:none;stroke:#222;stroke-width:1.2;stroke-dasharray:5 4}\n"
      ".chart .mark{fill:#b3001e}\n";
  for (size_t i = 0; i < kNumColours; ++i)
    css += fmt::format(".chart .s{0}{{stroke:{1}}}.chart .f{0}{{fill:{1}}}\n", i, kLight[i]);
  css +=
      "@media screen and (prefers-color-scheme:dark){\n"
      ".chart text{fill:#ddd}.chart .paper{fill:#15181c}.chart .grid{stroke:#343a40}.chart .axis{stroke:#999}\n"
      ".chart .limit{stroke:#ddd}.chart .mark{fill:#ff5c6c}\n";
  for (size_t i = 0; i < kNumColours; ++i)
    css += fmt::format(".chart .s{0}{{stroke:{1}}}.chart .f{0}{{fill:{1}}}\n", i, kDark[i]);
  return css + "}\n";
}

std::string Svg(const LinePlot& plot, bool alone) {
  Range xs, ys;
  std::vector<double> sums;
  for (const Line& line : plot.lines) {
    sums.resize(std::max(sums.size(), line.y.size()));
    for (size_t i = 0; i < line.y.size(); ++i) {
      if (!Shown(line.y[i], plot.log_y)) continue;
      xs.Hold(line.x[i]);
      sums[i] += line.y[i];
      ys.Hold(plot.stacked ? sums[i] : line.y[i]);
      if (line.most.empty()) continue;
      ys.Hold(line.most[i]);
      if (Shown(line.least[i], plot.log_y)) ys.Hold(line.least[i]);
    }
  }
  if (plot.limit && Shown(plot.limit->y, plot.log_y)) ys.Hold(plot.limit->y);
  if (!plot.log_y) ys.Hold(0);
  if (xs.low > 0 && xs.low < 0.2 * xs.high) xs.low = 0;
  if (plot.y_top) ys = {0, *plot.y_top, true};
  const auto legend = LegendOf(plot);
  const Size least = alone ? kAlone : kOnPage;
  const double rows = LegendRows(legend, least.width - kRight),
               height = least.height + kLegendRow * std::max(0.0, rows - 1);
  Canvas canvas(plot.id, plot.title, {least.width, height}, alone);
  if (!xs.any || !ys.any || !(ys.high > 0)) {
    canvas.Text("label", kLeft, kLegendY + 20, "Nothing to show.");
    return canvas.Take();
  }
  const Frame frame = DrawFrame(rows, height, plot.y_label, ys.low, ys.high, plot.log_y, &canvas);
  const Scale x{xs.low, xs.high > xs.low ? xs.high : xs.low + 1, kLeft, canvas.right(), false};
  DrawX(plot, x, frame, &canvas);
  plot.stacked ? DrawStacked(plot, x, frame.y, &canvas) : DrawLines(plot, x, frame.y, &canvas);
  if (plot.limit) canvas.Rule("limit", kLeft, frame.y(plot.limit->y), canvas.right(), frame.y(plot.limit->y));
  if (!plot.marks.empty()) DrawMarks(plot, x, frame.y, &canvas);
  DrawLegend(legend, &canvas);
  return canvas.Take();
}

std::string Svg(const BarPlot& plot, bool alone) {
  Range ys;
  for (size_t c = 0; c < plot.categories.size(); ++c) {
    double sum = 0;
    for (const auto& s : plot.series) {
      if (!std::isfinite(s.values[c])) continue;
      sum += s.values[c];
      ys.Hold(plot.stacked ? sum : s.values[c]);
    }
  }
  ys.Hold(0);
  if (plot.y_top) ys = {0, *plot.y_top, true};
  std::vector<LegendEntry> legend;
  for (const auto& s : plot.series) {
    if (plot.series.size() > 1)
      legend.push_back(
          {s.name, fmt::format("<rect class=\"f{}\" width=\"18\" height=\"10\"/>", s.colour % kNumColours)});
  }
  const Size least = alone ? kAlone : kOnPage;
  const double rows = LegendRows(legend, least.width - kRight),
               height = least.height + kLegendRow * std::max(0.0, rows - 1);
  Canvas canvas(plot.id, plot.title, {least.width, height}, alone);
  if (!(ys.high > 0) || plot.categories.empty()) {
    canvas.Text("label", kLeft, kLegendY + 20, "Nothing to show.");
    return canvas.Take();
  }
  const Frame frame = DrawFrame(rows, height, plot.y_label, 0, ys.high, false, &canvas);
  const double room = (canvas.right() - kLeft) / static_cast<double>(plot.categories.size());
  const double group = std::min(room * 0.8, 160.0);
  const double bar = plot.stacked ? group : group / static_cast<double>(plot.series.size());
  // Values are printed above their bars if all fit, with fewer digits if needed.
  std::string (*value_text)(double) = nullptr;
  for (const auto text : {Number, ShortNumber}) {
    size_t longest = 0;
    for (const auto& s : plot.series) {
      for (const double value : s.values) longest = std::max(longest, std::isfinite(value) ? text(value).size() : 0);
    }
    if (value_text == nullptr && !plot.stacked && bar >= kTextWidth * static_cast<double>(longest)) value_text = text;
  }
  for (size_t c = 0; c < plot.categories.size(); ++c) {
    const double middle = kLeft + room * (static_cast<double>(c) + 0.5);
    double x = middle - group / 2, below = 0;
    for (const auto& s : plot.series) {
      const double value = s.values[c];
      if (std::isfinite(value)) {
        const double top = frame.y(below + value);
        canvas.Write("<rect class=\"f{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}: {}</title></rect>\n",
                     s.colour % kNumColours, Coordinate(x), Coordinate(top), Coordinate(std::max(bar - 1, 1.0)),
                     Coordinate(frame.y(below) - top), Escaped(s.name), Number(value));
        if (value_text != nullptr) canvas.Text("tick middle", x + bar / 2, top - 3, value_text(value));
      }
      plot.stacked ? below += std::isfinite(value) ? value : 0 : x += bar;
    }
    // A name that has no room is cut: it stands whole in the tables.
    const auto letters = static_cast<size_t>(std::max(3.0, room / kTextWidth));
    std::string name = plot.categories[c];
    if (name.size() > letters) {
      size_t kept = letters - 1;
      while (kept > 0 && (static_cast<uint8_t>(name[kept]) & 0xc0) == 0x80) --kept;  // whole UTF-8 characters
      name.resize(kept);
      name += "…";
    }
    canvas.Text("tick middle", middle, frame.bottom + 17, name);
  }
  canvas.Rule("axis", kLeft, frame.bottom, canvas.right(), frame.bottom);
  DrawLegend(legend, &canvas);
  return canvas.Take();
}

std::string Csv(const LinePlot& plot) {
  std::string out = "series,x,y,least,most\n";
  for (const Line& line : plot.lines) {
    for (size_t i = 0; i < line.x.size(); ++i) {
      out += fmt::format("{},{},{},{},{}\n", Cell(line.name), Cell(line.x[i]), Cell(line.y[i]),
                         line.least.empty() ? "" : Cell(line.least[i]), line.most.empty() ? "" : Cell(line.most[i]));
    }
  }
  return out;
}

std::string Csv(const BarPlot& plot) {
  std::string out = "category,series,value\n";
  const auto& names = plot.full_names.empty() ? plot.categories : plot.full_names;
  for (size_t c = 0; c < plot.categories.size(); ++c) {
    for (const auto& s : plot.series) out += fmt::format("{},{},{}\n", Cell(names[c]), Cell(s.name), Cell(s.values[c]));
  }
  return out;
}

}  // namespace tactus::results
