// The pictures of a report: of one run, and comparisons of several. Any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "results/report/chart.h"
#include "results/report/run_view.h"

namespace tactus::results {

struct Figure {
  std::variant<LinePlot, BarPlot> plot;
  std::string caption;  // how to read the picture

  const std::string& id() const {
    return std::visit([](const auto& p) -> const std::string& { return p.id; }, plot);
  }
};

// The pictures for which the run has data. `prefix` is the start of their ids.
std::vector<Figure> RunFigures(const RunView& run, const std::string& prefix);
// Latencies against load if the loads differ, and the runs side by side. Empty for one run.
std::vector<Figure> ComparisonFigures(const std::vector<RunView>& runs);

}  // namespace tactus::results
