#include "results/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "base/json.h"

namespace tactus::results {
namespace {

constexpr const char* kPageCss =
    ":root{color-scheme:light dark}\n"
    "body{margin:0;font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu "
    "Sans',sans-serif;color:#222;background:#fff}\n"
    "main{max-width:1500px;margin:0 auto;padding:1.5rem}\n"
    "h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.2rem 0 .5rem;border-top:1px solid #ccc;"
    "padding-top:1.2rem}\n"
    "@media (max-width:600px){main{padding:1rem}}\n"
    "p{margin:.3rem 0}.note{border-left:4px solid #d55e00;padding-left:.7rem}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:.85rem;margin:.7rem 0}\n"
    "th,td{padding:.2rem .55rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\n"
    "th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #888;white-space:normal;"
    "vertical-align:bottom}\n"
    // The row's name stays visible while its figures are scrolled.
    "th:first-child,td:first-child{position:sticky;left:0;background:#fff}\n"
    "@media (max-width:600px){th:first-child,td:first-child{white-space:normal;min-width:6rem;max-width:10rem;"
    "overflow-wrap:anywhere}}\n"
    ".tables{display:flex;flex-wrap:wrap;gap:0 2.5rem}\n"
    ".options{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:.82rem;overflow-wrap:anywhere}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:1.2rem;margin:1rem "
    "0}\n"
    "figure{margin:0}figcaption{font-size:.82rem;color:#555}svg{width:100%;height:auto;display:block}\n"
    "@media screen and (prefers-color-scheme:dark){\n"
    "body{color:#ddd;background:#15181c}h2{border-color:#444}th,td{border-color:#343a40}figcaption{color:#aaa}"
    "th:first-child,td:first-child{background:#15181c}\n"
    "}\n"
    // Printed pages do not scroll; landscape keeps two pictures side by side readable.
    "@media print{@page{size:landscape;margin:12mm}:root{font-size:11px}body{font-size:1rem}"
    "main{padding:0;max-width:none}figure,tr,table{break-inside:avoid}h2{break-after:avoid}"
    ".scroll{overflow:visible}"
    ".figures{grid-template-columns:1fr 1fr}}\n";

// Full digits above 1,000, without the k and M of axes, because columns are compared digit by digit.
std::string Known(const std::optional<double>& value, double factor = 1) {
  if (!value) return "-";
  const double v = *value * factor;
  return std::abs(v) >= 1000 && std::abs(v) < 1e15 ? fmt::format("{:.0f}", v) : Number(v);
}

class Writer {
 public:
  template <class... Args>
  void Write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void Row(const char* cell, const std::vector<std::string>& texts) {
    Write("<tr>");
    for (const std::string& text : texts) Write("<{0}>{1}</{0}>", cell, Escaped(text));
    Write("</tr>\n");
  }
  void Figures(const std::vector<Figure>& figures) {
    if (figures.empty()) return;
    Write("<div class=\"figures\">\n");
    for (const Figure& figure : figures) {
      Write("<figure>\n{}", std::visit([](const auto& plot) { return Svg(plot, false); }, figure.plot));
      if (!figure.caption.empty()) Write("<figcaption>{}</figcaption>\n", Escaped(figure.caption));
      Write("</figure>\n");
    }
    Write("</div>\n");
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

void RunsTable(const std::vector<RunView>& runs, Writer* page) {
  page->Write("<div class=\"scroll\"><table>\n<thead>");
  page->Row("th",
            {"run", "done", "failed", "rejected", "requests/s", "tokens/s", "goodput/s", "kept, %", "TTFT median, ms",
             "TTFT P99, ms", "gap median, ms", "gap P99, ms", "total median, ms", "total P99, ms"});
  page->Write("</thead>\n<tbody>\n");
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunView& r = runs[i];
    const std::string name = runs.size() > 1 ? fmt::format("{}. {}", i + 1, r.label) : r.label;
    page->Row("td",
              {name, Known(r.Value({"requests", "completed"})), Known(r.Value({"requests", "failed"})),
               Known(r.Value({"requests", "rejected"})), Known(r.Value({"request_throughput"})),
               Known(r.Value({"output_token_throughput"})), Known(r.Value({"goodput"})),
               Known(r.Value({"slo_attainment"}), 100), Known(r.Value({"ttft_ms", "p50"})),
               Known(r.Value({"ttft_ms", "p99"})), Known(r.Value({"tbt_ms", "p50"})), Known(r.Value({"tbt_ms", "p99"})),
               Known(r.Value({"e2e_ms", "p50"})), Known(r.Value({"e2e_ms", "p99"}))});
  }
  page->Write("</tbody></table></div>\n");
}

void LatencyTable(const RunView& run, Writer* page) {
  constexpr std::pair<const char*, const char*> kRows[] = {{"ttft_ms", "TTFT"},
                                                           {"tbt_ms", "gap"},
                                                           {"tpot_ms", "gap, request's mean"},
                                                           {"e2e_ms", "total"},
                                                           {"scheduling_delay_ms", "until scheduled"},
                                                           {"step_ms", "step"}};
  page->Write("<div class=\"scroll\"><table>\n<thead>");
  page->Row("th", {"milliseconds", "mean", "median", "P90", "P95", "P99", "largest"});
  page->Write("</thead>\n<tbody>\n");
  for (const auto& [name, title] : kRows) {
    if (!run.Value({name, "mean"})) continue;
    std::vector<std::string> cells = {title};
    for (const char* figure : {"mean", "p50", "p90", "p95", "p99", "max"})
      cells.push_back(Known(run.Value({name, figure})));
    page->Row("td", cells);
  }
  page->Write("</tbody></table></div>\n");
}

// The slowest requests, with the `tactus explain` command for each.
void SlowTable(const RunView& run, Writer* page) {
  std::vector<SlowRequest> slow = run.last_first_tokens;
  for (const SlowRequest& gap : run.longest_gaps) {
    if (std::none_of(slow.begin(), slow.end(), [&gap](const SlowRequest& s) { return s.number == gap.number; }))
      slow.push_back(gap);
  }
  if (slow.empty()) return;
  const auto ms = [](DurationNs ns) {
    return Known(ns < 0 ? std::nullopt : std::optional(static_cast<double>(ns) * 1e-6));
  };
  const bool classes = std::any_of(slow.begin(), slow.end(), [](const SlowRequest& s) { return !s.slo_class.empty(); });
  std::vector<std::string> head = {"slowest requests", "TTFT, ms", "longest gap, ms", "total, ms"};
  if (classes) head.insert(head.begin() + 1, "class");
  page->Write("<div class=\"scroll\"><table>\n<thead>");
  page->Row("th", head);
  page->Write("</thead>\n<tbody>\n");
  for (const SlowRequest& s : slow) {
    std::vector<std::string> row = {s.id.empty() ? fmt::format("{}", s.number) : fmt::format("{} {}", s.number, s.id),
                                    ms(s.ttft_ns), ms(s.longest_gap_ns), ms(s.e2e_ns)};
    if (classes) row.insert(row.begin() + 1, s.slo_class);
    page->Row("td", row);
  }
  page->Write("</tbody></table>\n<p class=\"options\">tactus explain {} {}</p></div>\n",
              Escaped(std::filesystem::path(run.path).filename().string()), slow.front().number);
}

std::string OptionsText(const RunAbout& about) {
  std::string text = "tactus " + about.command;
  for (const std::string& name : about.stated) {
    for (const auto& [option, value] : about.options) {
      if (option == name && name != "run-out" && name != "output") text += fmt::format(" --{} {}", name, value);
    }
  }
  return text;
}

void Detail(const RunView& run, const std::vector<Figure>& figures, Writer* page) {
  page->Write("<section>\n<h2>{}</h2>\n", Escaped(run.label));
  page->Write("<p class=\"options\">{}</p>\n", Escaped(OptionsText(run.file.about)));
  page->Write("<p>{} requests, {} steps, {} intervals of {} s in the file; written by tactus {}.</p>\n",
              run.file.rows[0], run.file.rows[1], run.file.rows[2],
              Number(static_cast<double>(run.file.about.interval_ns) * 1e-9), Escaped(run.file.about.program));
  if (!run.file.complete()) {
    page->Write(
        "<p class=\"note\">The recording was not closed: there is no result, and the last rows are "
        "missing.</p>\n");
  }
  page->Write("<div class=\"tables\">\n");
  if (run.file.complete()) LatencyTable(run, page);
  SlowTable(run, page);
  page->Write("</div>\n");
  page->Figures(figures);
  page->Write("</section>\n");
}

}  // namespace

Report MakeReport(std::vector<RunView> runs) {
  Report report;
  report.comparison = ComparisonFigures(runs);
  if (runs.size() <= kMostRunsInDetail) {
    for (size_t i = 0; i < runs.size(); ++i)
      report.details.push_back(RunFigures(runs[i], runs.size() == 1 ? "" : fmt::format("run{}-", i + 1)));
  }
  report.runs = std::move(runs);
  return report;
}

std::string Page(const Report& report) {
  Writer page;
  const std::string title = report.runs.size() == 1 ? report.runs[0].label : fmt::format("{} runs", report.runs.size());
  page.Write(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} - Tactus</title>\n"
      "<style>\n{}{}</style>\n</head>\n<body>\n<main>\n<h1>Tactus: {}</h1>\n",
      Escaped(title), kPageCss, ChartCss(), Escaped(title));
  RunsTable(report.runs, &page);
  if (!report.comparison.empty()) {
    page.Write("<section>\n<h2>Side by side</h2>\n");
    page.Figures(report.comparison);
    page.Write("</section>\n");
  }
  for (size_t i = 0; i < report.details.size(); ++i) Detail(report.runs[i], report.details[i], &page);
  if (report.details.empty()) {
    page.Write(
        "<p class=\"note\">With more than {} runs the page only compares them: use fewer runs to see the pictures of "
        "each.</p>\n",
        kMostRunsInDetail);
  }
  page.Write("</main>\n</body>\n</html>\n");
  return page.Take();
}

Json ReportJson(const Report& report) {
  Json runs = Json::array();
  for (const RunView& run : report.runs) {
    Json options = Json::object();
    for (const auto& [name, text] : run.file.about.options) options[name] = text;
    runs.push_back({{"label", run.label},
                    {"file", run.path},
                    {"command", run.file.about.command},
                    {"program", run.file.about.program},
                    {"complete", run.file.complete()},
                    {"options", std::move(options)},
                    {"result", run.file.result}});
  }
  return {{"runs", std::move(runs)}};
}

}  // namespace tactus::results
