#include "cost/log_grid.h"

#include <algorithm>
#include <cmath>

namespace tactus::cost {

LogAxis::LogAxis(double max_value) : nodes_(2) {
  while (NodeValue(nodes_ - 1) < max_value) ++nodes_;
}

double LogAxis::NodeValue(int32_t node) const {
  return std::ldexp(1.0 + (node % kPerOctave) / static_cast<double>(kPerOctave), node / kPerOctave) - 1.0;
}

LogAxis::Position LogAxis::Beyond(double value) const {
  const double low = NodeValue(nodes_ - 2), high = NodeValue(nodes_ - 1);
  return {nodes_ - 2, (value - low) / (high - low)};
}

double LogGrid::Fill(const std::function<double(double, double)>& f) {
  const int32_t rows = rows_.nodes(), columns = columns_.nodes();
  values_.assign(static_cast<size_t>(rows) * static_cast<size_t>(columns), 0.0);
  double rise = 0;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < columns; ++c) {
      double* value = &values_[static_cast<size_t>(r) * static_cast<size_t>(columns) + static_cast<size_t>(c)];
      const double asked = f(rows_.NodeValue(r), columns_.NodeValue(c));
      double least = asked;
      if (c > 0) least = std::max(least, value[-1]);
      if (r > 0) least = std::max(least, value[-columns]);
      if (asked > 0) rise = std::max(rise, least / asked - 1);
      *value = least;
    }
  }
  return rise;
}

}  // namespace tactus::cost
