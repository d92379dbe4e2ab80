// A function of two non-negative numbers, tabulated on nodes at eight per octave (of value + 1) and interpolated
// bilinearly. Look-ups compute no logarithm, and if the values rise along both axes, so does every interpolated value.
// Beyond the last node it continues with the slope of the last cell.
//
// Thread rule: immutable after Fill.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace tactus::cost {

class LogAxis {
 public:
  static constexpr int kPerOctave = 8;
  struct Position {
    int32_t cell;     // between node `cell` and `cell + 1`
    double fraction;  // >= 0; beyond 1 past the last node
  };

  // Nodes from 0 up to at least `max_value`.
  explicit LogAxis(double max_value);

  int32_t nodes() const { return nodes_; }
  double NodeValue(int32_t node) const;

  // Precondition: value >= 0.
  Position Locate(double value) const {
    // The exponent and the first three bits of the mantissa of value + 1 are the cell, the other bits the fraction.
    const uint64_t bits = std::bit_cast<uint64_t>(value + 1.0);
    const int32_t cell = static_cast<int32_t>(bits >> kFractionBits) - (1023 << 3);
    if (cell >= nodes_ - 1) return Beyond(value);
    return {cell,
            static_cast<double>(bits & ((uint64_t{1} << kFractionBits) - 1)) * (1.0 / (uint64_t{1} << kFractionBits))};
  }

 private:
  static constexpr int kFractionBits = 49;
  Position Beyond(double value) const;

  int32_t nodes_;
};

class LogGrid {
 public:
  LogGrid(double max_row, double max_column) : rows_(max_row), columns_(max_column) {}

  // Sets every node to f(row value, column value), then raises nodes to the largest before them in either direction, so
  // that the result is monotone. Returns the largest relative rise (0: f was monotone on the nodes).
  double Fill(const std::function<double(double, double)>& f);

  double At(double row, double column) const {
    const LogAxis::Position r = rows_.Locate(row);
    const LogAxis::Position c = columns_.Locate(column);
    const double* p = values_.data() + static_cast<size_t>(r.cell) * static_cast<size_t>(columns_.nodes()) + c.cell;
    const double* q = p + columns_.nodes();
    const double low = p[0] + (p[1] - p[0]) * c.fraction;
    const double high = q[0] + (q[1] - q[0]) * c.fraction;
    return low + (high - low) * r.fraction;
  }

 private:
  LogAxis rows_, columns_;
  std::vector<double> values_;
};

}  // namespace tactus::cost
