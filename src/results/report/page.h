// A report as one HTML page: tables, pictures and style in one file, without scripts or external resources, which its
// policy also forbids. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "results/report/figures.h"

namespace tactus::results {

// With more runs a page only compares them.
inline constexpr size_t kMostRunsInDetail = 12;

struct Report {
  std::vector<RunView> runs;  // labelled
  std::vector<Figure> comparison;
  std::vector<std::vector<Figure>> details;  // per run; empty beyond kMostRunsInDetail
};

// `runs` must not be empty.
Report MakeReport(std::vector<RunView> runs);
std::string Page(const Report& report);
// The data of the page without the pictures' points: each run's label, file, description and result.
Json ReportJson(const Report& report);

}  // namespace tactus::results
