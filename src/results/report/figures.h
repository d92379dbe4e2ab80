// The pictures of a report: of one run, and of several side by side. Any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "results/report/chart.h"
#include "results/report/run_view.h"

namespace tactus::results {

struct Figure {
  std::variant<LinePlot, BarPlot> plot;
  std::string caption;  // what to read off it, for people

  const std::string& id() const {
    return std::visit([](const auto& p) -> const std::string& { return p.id; }, plot);
  }
};

// Those for which the run has something to show. `prefix` begins their ids.
std::vector<Figure> RunFigures(const RunView& run, const std::string& prefix);
// Latencies against load where the runs differ in it, and the runs side by side. Nothing for one run.
std::vector<Figure> ComparisonFigures(const std::vector<RunView>& runs);

}  // namespace tactus::results
