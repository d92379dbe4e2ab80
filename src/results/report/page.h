// A report as one HTML page: tables, pictures and style in one file, without scripts, that asks for nothing else; it
// forbids itself to. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "results/report/figures.h"

namespace tactus::results {

// Beyond these a page shows runs side by side alone.
inline constexpr size_t kMostRunsInDetail = 12;

struct Report {
  std::vector<RunView> runs;  // labelled
  std::vector<Figure> comparison;
  std::vector<std::vector<Figure>> details;  // of each run; empty beyond kMostRunsInDetail
};

// `runs` is not empty.
Report MakeReport(std::vector<RunView> runs);
std::string Page(const Report& report);
// What the page is made from, but the pictures' points: of each run its label, file, what it was, and its result.
Json ReportJson(const Report& report);

}  // namespace tactus::results
