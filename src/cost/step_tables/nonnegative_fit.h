// Non-negative least squares for small dense problems: Lawson and Hanson, "Solving Least Squares Problems" (1974),
// chapter 23, on the normal equations of scaled columns.
#pragma once

#include <span>
#include <vector>

namespace tactus::cost {

// x >= 0 that minimises sum_i weight_i (row_i x - target_i)^2. rows: [targets.size() * columns], row-major. A column of
// zeros gets 0.
std::vector<double> NonNegativeLeastSquares(std::span<const double> rows, std::span<const double> targets,
                                            std::span<const double> weights, size_t columns);

}  // namespace tactus::cost
