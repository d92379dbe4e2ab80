#include "cost/step_tables/step_lookup.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace tactus::cost {
namespace {

// A full grid of points over two axes.
class Grid {
 public:
  static Result<Grid> Of(const std::string& table, const std::vector<LookupRow>& rows) {
    Grid g;
    std::set<double> a, b;
    std::map<std::pair<double, double>, double> points;
    for (const LookupRow& r : rows) {
      if (r.table != table) continue;
      a.insert(r.a), b.insert(r.b);
      if (!points.emplace(std::pair(r.a, r.b), r.ms).second) {
        return DataLoss(fmt::format("{}: {} has the point ({:g}, {:g}) twice", r.where, table, r.a, r.b));
      }
    }
    g.a_.assign(a.begin(), a.end()), g.b_.assign(b.begin(), b.end());
    for (const double x : g.a_) {
      for (const double y : g.b_) {
        const auto found = points.find({x, y});
        if (found == points.end())
          return DataLoss(fmt::format("table {} has no point ({:g}, {:g}): its grid must be full", table, x, y));
        g.ns_.push_back(found->second * 1e6);
      }
    }
    return g;
  }
  bool empty() const { return ns_.empty(); }
  double most_a() const { return a_.empty() ? 0 : a_.back(); }
  double most_b() const { return b_.empty() ? 0 : b_.back(); }

  double At(double a, double b) const {
    const auto [i, s] = Locate(a_, a);
    const auto [j, t] = Locate(b_, b);
    const auto along_b = [&](size_t row) {
      return Mix(ns_[row * b_.size() + j], j + 1 < b_.size() ? ns_[row * b_.size() + j + 1] : 0, t);
    };
    return Mix(along_b(i), s > 0 ? along_b(i + 1) : 0, s);
  }

  // For every inner point, |linear interpolation between its neighbours along the first axis / the point - 1|.
  void LeftOut(std::vector<double>* errors) const {
    for (size_t i = 1; i + 1 < a_.size(); ++i) {
      const double s = (a_[i] - a_[i - 1]) / (a_[i + 1] - a_[i - 1]);
      for (size_t j = 0; j < b_.size(); ++j) {
        const double own = ns_[i * b_.size() + j];
        if (own > 0)
          errors->push_back(std::abs(Mix(ns_[(i - 1) * b_.size() + j], ns_[(i + 1) * b_.size() + j], s) / own - 1));
      }
    }
  }

 private:
  struct Position {
    size_t low;
    double share;  // 0 at a listed point, so that it is returned exactly
  };
  static Position Locate(const std::vector<double>& axis, double x) {
    if (axis.size() == 1 || x <= axis[0]) return {0, 0};
    const size_t high = std::min<size_t>(
        static_cast<size_t>(std::upper_bound(axis.begin(), axis.end(), x) - axis.begin()), axis.size() - 1);
    if (x == axis[high]) return {high, 0};
    return {high - 1, (x - axis[high - 1]) / (axis[high] - axis[high - 1])};
  }
  static double Mix(double low, double high, double share) { return share == 0 ? low : low + (high - low) * share; }

  std::vector<double> a_, b_, ns_;
};

class Lookup final : public StepProfile {
 public:
  Lookup(double step_ns, Grid tokens, Grid chunk, Grid decode, int64_t rows, std::map<std::string, std::string> remarks)
      : step_ns_(step_ns),
        tokens_(std::move(tokens)),
        chunk_(std::move(chunk)),
        decode_(std::move(decode)),
        remarks_(std::move(remarks)) {
    std::vector<double> errors;
    for (const Grid* g : {&tokens_, &chunk_, &decode_}) g->LeftOut(&errors);
    std::sort(errors.begin(), errors.end());
    error_.rows = rows;
    if (!errors.empty()) {
      error_.left_out_median = errors[errors.size() / 2];
      error_.left_out_p90 = errors[errors.size() * 9 / 10];
    }
  }

  DurationNs StepTimeNs(const StepShape& s) const override {
    const int64_t tokens = s.tokens() + s.padded_tokens;
    double ns = step_ns_ + tokens_.At(static_cast<double>(tokens), 0);
    if (!chunk_.empty()) {
      for (const ChunkShape& c : s.chunks) ns += chunk_.At(c.tokens, c.context_tokens);
    }
    if (s.decodes > 0 && !decode_.empty()) {
      const double decodes = static_cast<double>(s.decodes);
      ns += decode_.At(decodes, static_cast<double>(s.decode_context_tokens) / decodes);
    }
    return std::llround(std::clamp(ns, 0.0, kLongestStepNs));
  }

  const Error& error() const override { return error_; }
  const std::map<std::string, std::string>& remarks() const override { return remarks_; }
  std::string Describe() const override {
    return fmt::format(
        "tables of {} points: steps of up to {:.0f} tokens, chunks of up to {:.0f} behind {:.0f}, {:.0f} decodes over "
        "{:.0f} tokens each; points left "
        "out are met within {:.1f} % (median)",
        error_.rows, tokens_.most_a(), chunk_.most_a(), chunk_.most_b(), decode_.most_a(), decode_.most_b(),
        100 * error_.left_out_median);
  }
  std::string Extrapolation(const StepShape& most) const override {
    std::string beyond;
    const auto note = [&](const char* what, double value, double listed) {
      if (listed <= 0 || value <= listed) return;
      beyond += fmt::format("{}{} {:.0f} (listed up to {:.0f}: {:.1f} x beyond)", beyond.empty() ? "" : "; ", what,
                            value, listed, value / listed);
    };
    note("tokens per step", static_cast<double>(most.tokens() + most.padded_tokens), tokens_.most_a());
    double chunk = 0, context = 0;
    for (const ChunkShape& c : most.chunks)
      chunk = std::max<double>(chunk, c.tokens), context = std::max<double>(context, c.context_tokens);
    note("tokens per chunk", chunk, chunk_.most_a());
    note("a chunk's context of", context, chunk_.most_b());
    note("decodes", static_cast<double>(most.decodes), decode_.most_a());
    if (most.decodes > 0)
      note("mean context of decodes",
           static_cast<double>(most.decode_context_tokens) / static_cast<double>(most.decodes), decode_.most_b());
    return beyond;
  }

 private:
  const double step_ns_;
  const Grid tokens_, chunk_, decode_;
  Error error_;
  const std::map<std::string, std::string> remarks_;
};

}  // namespace

Result<std::unique_ptr<StepProfile>> MakeStepLookup(const std::vector<LookupRow>& rows,
                                                    std::map<std::string, std::string> remarks) {
  double step_ns = 0;
  for (const LookupRow& r : rows) {
    if (r.table == "step") {
      step_ns += r.ms * 1e6;
    } else if (r.table != "tokens" && r.table != "chunk" && r.table != "decode") {
      return DataLoss(fmt::format("{}, column 1: '{}' is not a table; the tables are step, tokens, chunk, decode",
                                  r.where, r.table.substr(0, 40)));
    }
  }
  TACTUS_ASSIGN_OR_RETURN(Grid tokens, Grid::Of("tokens", rows));
  TACTUS_ASSIGN_OR_RETURN(Grid chunk, Grid::Of("chunk", rows));
  TACTUS_ASSIGN_OR_RETURN(Grid decode, Grid::Of("decode", rows));
  if (tokens.empty()) return DataLoss("no row of table tokens: a step's time by its tokens is needed");
  return std::unique_ptr<StepProfile>(std::make_unique<Lookup>(step_ns, std::move(tokens), std::move(chunk),
                                                               std::move(decode), static_cast<int64_t>(rows.size()),
                                                               std::move(remarks)));
}

}  // namespace tactus::cost
