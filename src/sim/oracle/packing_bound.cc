#include "sim/oracle/packing_bound.h"

#include <algorithm>
#include <limits>

namespace tactus::sim {
namespace {

constexpr double kTiny = 1e-9;

// The simplex method with bounded variables, in a condensed table: each row expresses a basic variable through the
// nonbasic ones (the columns), which are 0. A share that reaches 1 is replaced by its complement, which is then 0.
class Simplex {
 public:
  Simplex(const std::vector<PackingRow>& rows, size_t things) : rows_(rows.size()), things_(things) {
    for (size_t i = 0; i < rows_; ++i) {
      // Scaled by each row's capacity, so that rows in different units have similar magnitudes.
      const double scale = 1 / std::max(rows[i].there_is, kTiny);
      scale_.push_back(scale);
      table_.emplace_back();
      for (const double takes : rows[i].takes) table_.back().push_back(takes * scale);
      value_.push_back(rows[i].there_is * scale);
      basic_.push_back(things_ + i);
    }
    gain_.assign(things_, 1.0);
    for (size_t j = 0; j < things_; ++j) column_.push_back(j);
    turned_.assign(things_, false);
  }

  void Run(const std::function<bool()>& keep_going) {
    // An iteration limit far above normal need; if the method cycles, the current prices are still valid.
    const size_t most = 50 * (rows_ + things_);
    for (size_t i = 0; i < most && (!keep_going || keep_going()) && Improve(); ++i) {
    }
  }

  std::vector<double> Shares() const {
    std::vector<double> shares(things_, 0.0);
    for (size_t i = 0; i < rows_; ++i) {
      if (basic_[i] < things_) shares[basic_[i]] = value_[i];
    }
    for (size_t j = 0; j < things_; ++j) shares[j] = std::clamp(turned_[j] ? 1 - shares[j] : shares[j], 0.0, 1.0);
    return shares;
  }
  std::vector<double> Prices() const {
    std::vector<double> prices(rows_, 0.0);
    for (size_t j = 0; j < column_.size(); ++j) {
      if (column_[j] >= things_) prices[column_[j] - things_] = std::max(0.0, -gain_[j]) * scale_[column_[j] - things_];
    }
    return prices;
  }

 private:
  bool Improve() {
    size_t enters = column_.size();
    double best = kTiny;
    for (size_t j = 0; j < column_.size(); ++j) {
      if (gain_[j] > best) best = gain_[j], enters = j;
    }
    if (enters == column_.size()) return false;
    double most = column_[enters] < things_ ? 1 : std::numeric_limits<double>::infinity();
    size_t leaves = rows_;
    bool at_one = false;
    for (size_t i = 0; i < rows_; ++i) {
      const double rate = table_[i][enters];
      double until = std::numeric_limits<double>::infinity();
      if (rate > kTiny) until = std::max(0.0, value_[i]) / rate;
      if (rate < -kTiny && basic_[i] < things_) until = std::max(0.0, 1 - value_[i]) / -rate;
      if (until >= most) continue;
      most = until, leaves = i, at_one = rate < 0;
    }
    if (leaves == rows_) {
      if (column_[enters] >= things_) return false;  // unbounded: impossible with rows that take something
      TurnColumn(enters);
      return true;
    }
    if (at_one) TurnRow(leaves);
    Pivot(leaves, enters);
    return true;
  }

  void TurnColumn(size_t j) {
    for (size_t i = 0; i < rows_; ++i) {
      value_[i] -= table_[i][j];
      table_[i][j] = -table_[i][j];
    }
    gain_[j] = -gain_[j];
    turned_[column_[j]] = !turned_[column_[j]];
  }
  void TurnRow(size_t i) {
    for (double& rate : table_[i]) rate = -rate;
    value_[i] = 1 - value_[i];
    turned_[basic_[i]] = !turned_[basic_[i]];
  }

  void Pivot(size_t leaves, size_t enters) {
    std::vector<double>& row = table_[leaves];
    const double by = 1 / row[enters];
    for (double& rate : row) rate *= by;
    row[enters] = by;
    value_[leaves] *= by;
    for (size_t i = 0; i < rows_; ++i) {
      const double times = table_[i][enters];
      if (i == leaves || times == 0) continue;
      for (size_t j = 0; j < row.size(); ++j) table_[i][j] = (j == enters ? 0 : table_[i][j]) - times * row[j];
      value_[i] -= times * value_[leaves];
    }
    const double times = gain_[enters];
    for (size_t j = 0; j < row.size(); ++j) gain_[j] = (j == enters ? 0 : gain_[j]) - times * row[j];
    std::swap(basic_[leaves], column_[enters]);
  }

  const size_t rows_, things_;
  std::vector<double> scale_, value_, gain_;
  std::vector<std::vector<double>> table_;
  std::vector<size_t> basic_, column_;  // variables: the things, then the slack of each row
  std::vector<bool> turned_;
};

}  // namespace

PackingBound BoundPacking(const std::vector<PackingRow>& rows, size_t things, const std::function<bool()>& keep_going) {
  Simplex simplex(rows, things);
  simplex.Run(keep_going);
  PackingBound bound;
  bound.shares = simplex.Shares();
  bound.prices = simplex.Prices();
  std::vector<double> left(things, 1.0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (bound.prices[i] == 0) continue;
    bound.most += bound.prices[i] * rows[i].there_is;
    for (size_t j = 0; j < things; ++j) left[j] -= bound.prices[i] * rows[i].takes[j];
  }
  for (const double of : left) bound.most += std::max(0.0, of);
  return bound;
}

}  // namespace tactus::sim
