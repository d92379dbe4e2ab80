#include "cost/step_tables/nonnegative_fit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tactus::cost {
namespace {

class Problem {
 public:
  Problem(std::span<const double> rows, std::span<const double> targets, std::span<const double> weights, size_t n)
      : n_(n), gram_(n * n, 0.0), moment_(n, 0.0), scale_(n, 0.0) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const double* row = &rows[i * n];
      for (size_t a = 0; a < n; ++a) {
        moment_[a] += weights[i] * row[a] * targets[i];
        for (size_t b = 0; b < n; ++b) gram_[a * n + b] += weights[i] * row[a] * row[b];
      }
    }
    for (size_t a = 0; a < n; ++a) scale_[a] = gram_[a * n + a] > 0 ? 1 / std::sqrt(gram_[a * n + a]) : 0.0;
    for (size_t a = 0; a < n; ++a) {
      moment_[a] *= scale_[a];
      for (size_t b = 0; b < n; ++b) gram_[a * n + b] *= scale_[a] * scale_[b];
    }
  }

  std::vector<double> Solve() {
    std::vector<bool> free(n_, false);
    std::vector<double> x(n_, 0.0);
    for (size_t round = 0; round < 3 * n_ + 10; ++round) {
      const size_t best = SteepestBound(x, free);
      if (best == n_) break;
      free[best] = true;
      for (;;) {
        const std::vector<double> y = SolveFree(free);
        if (Step(y, &free, &x)) break;
      }
    }
    for (size_t a = 0; a < n_; ++a) x[a] *= scale_[a];
    return x;
  }

 private:
  // The bound variable along which the error falls fastest; n_: none.
  size_t SteepestBound(const std::vector<double>& x, const std::vector<bool>& free) const {
    size_t best = n_;
    double most = 1e-9 * (1 + *std::max_element(moment_.begin(), moment_.end()));
    for (size_t a = 0; a < n_; ++a) {
      if (free[a] || scale_[a] == 0) continue;
      double gradient = moment_[a];
      for (size_t b = 0; b < n_; ++b) gradient -= gram_[a * n_ + b] * x[b];
      if (gradient > most) most = gradient, best = a;
    }
    return best;
  }

  // Moves from x towards y until a free variable would become negative; true: y was reached.
  bool Step(const std::vector<double>& y, std::vector<bool>* free, std::vector<double>* x) const {
    double reach = 1;
    for (size_t a = 0; a < n_; ++a) {
      if ((*free)[a] && y[a] <= 0) reach = std::min(reach, (*x)[a] / ((*x)[a] - y[a]));
    }
    bool whole = true;
    for (size_t a = 0; a < n_; ++a) {
      if (!(*free)[a]) continue;
      const bool turns = y[a] <= 0;
      (*x)[a] += (std::isfinite(reach) ? reach : 0) * (y[a] - (*x)[a]);
      if (turns && (*x)[a] <= 1e-12) (*x)[a] = 0, (*free)[a] = false, whole = false;
    }
    return whole;
  }

  // The least-squares solution over the free variables (Cholesky; a ridge of 1e-10 keeps collinear columns solvable).
  std::vector<double> SolveFree(const std::vector<bool>& free) const {
    std::vector<size_t> at;
    for (size_t a = 0; a < n_; ++a) {
      if (free[a]) at.push_back(a);
    }
    const size_t k = at.size();
    std::vector<double> l(k * k, 0.0), z(k, 0.0), y(n_, 0.0);
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = gram_[at[i] * n_ + at[j]] + (i == j ? 1e-10 : 0.0);
        for (size_t p = 0; p < j; ++p) sum -= l[i * k + p] * l[j * k + p];
        l[i * k + j] = i == j ? std::sqrt(std::max(sum, 1e-14)) : sum / l[j * k + j];
      }
    }
    for (size_t i = 0; i < k; ++i) {
      double sum = moment_[at[i]];
      for (size_t p = 0; p < i; ++p) sum -= l[i * k + p] * z[p];
      z[i] = sum / l[i * k + i];
    }
    for (size_t i = k; i-- > 0;) {
      double sum = z[i];
      for (size_t p = i + 1; p < k; ++p) sum -= l[p * k + i] * y[at[p]];
      y[at[i]] = sum / l[i * k + i];
    }
    return y;
  }

  size_t n_;
  std::vector<double> gram_, moment_, scale_;
};

}  // namespace

std::vector<double> NonNegativeLeastSquares(std::span<const double> rows, std::span<const double> targets,
                                            std::span<const double> weights, size_t columns) {
  TACTUS_CHECK(rows.size() == targets.size() * columns && weights.size() == targets.size());
  return Problem(rows, targets, weights, columns).Solve();
}

}  // namespace tactus::cost
