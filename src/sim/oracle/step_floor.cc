#include "sim/oracle/step_floor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tactus::sim {
namespace {

constexpr double kCertain = 0.99;  // safety factor on each floor, for values between the sampled points
constexpr int64_t kPerOctave = 8;
// Step sizes in tokens at which floors are tangent.
constexpr std::array<int64_t, 8> kTouched = {1, 4, 16, 64, 128, 256, 512, 2048};

// Points from 1 to the first that is not below `most`, at the grid of cost tables (cost/log_grid.h: eight per octave of
// value + 1) and of the value itself.
std::vector<int64_t> Points(int64_t most, int64_t per_octave = kPerOctave) {
  std::vector<int64_t> points;
  for (int64_t octave = 1;; octave *= 2) {
    for (int64_t i = 0; i < per_octave; ++i) {
      const int64_t value = octave + octave * i / per_octave;
      for (const int64_t point : {value - 1, value}) {
        if (point < 1 || (!points.empty() && point <= points.back())) continue;
        points.push_back(point);
        if (point >= most) return points;
      }
    }
  }
}

// Time of n padded tokens, indexed by n from 1; [0] is not used.
std::vector<double> TokenTimes(const StepTimeModel& times, int32_t stage, int64_t most) {
  std::vector<double> ns(static_cast<size_t>(most) + 1);
  for (int64_t n = 1; n <= most; ++n) {
    StepShape shape;
    shape.padded_tokens = n;
    ns[static_cast<size_t>(n)] = static_cast<double>(times.StageTimeNs(shape, stage));
  }
  return ns;
}

// Corners of the lower convex hull of the points (n, ns[n]).
std::vector<int64_t> LowerHull(const std::vector<double>& ns) {
  std::vector<int64_t> hull;
  const auto slope = [&](int64_t a, int64_t b) {
    return (ns[static_cast<size_t>(b)] - ns[static_cast<size_t>(a)]) / static_cast<double>(b - a);
  };
  for (int64_t n = 1; n < static_cast<int64_t>(ns.size()); ++n) {
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), n)) hull.pop_back();
    hull.push_back(n);
  }
  return hull;
}

class Floors {
 public:
  Floors(const StepTimeModel& times, int32_t stage, const StepLimits& limits)
      : times_(times), stage_(stage), limits_(limits) {}

  std::vector<StepFloor> Make() {
    Touch();
    kv_.assign(floors_.size(), std::numeric_limits<double>::infinity());
    pair_ = kv_;
    OfDecodes();
    OfChunks();
    for (size_t i = 0; i < floors_.size(); ++i) {
      floors_[i].kv_token_ns = std::isfinite(kv_[i]) ? std::max(0.0, kv_[i]) : 0;
      floors_[i].pair_ns = std::isfinite(pair_[i]) ? std::max(0.0, pair_[i]) : 0;
    }
    Together();
    for (StepFloor& f : floors_) {
      for (double* part : {&f.fixed_ns, &f.token_ns, &f.kv_token_ns, &f.pair_ns}) *part *= kCertain;
    }
    return floors_;
  }

 private:
  // Tangents below the time of padded tokens: the sides of its lower hull at kTouched, and the line through 0.
  void Touch() {
    const std::vector<double> ns = TokenTimes(times_, stage_, limits_.tokens);
    double least = std::numeric_limits<double>::infinity();
    for (size_t n = 1; n < ns.size(); ++n) {
      const double per_token = ns[n] / static_cast<double>(n);
      if (per_token >= least) continue;
      least = per_token;
      fullest_ = static_cast<int64_t>(n);
    }
    floors_.push_back({.token_ns = least});
    sizes_ = Points(limits_.tokens, 1);
    sizes_.push_back(fullest_);
    const std::vector<int64_t> hull = LowerHull(ns);
    size_t side = 0;
    for (const int64_t touched : kTouched) {
      while (side + 1 < hull.size() && hull[side + 1] <= touched) ++side;
      if (side + 1 >= hull.size()) break;
      const int64_t a = hull[side], b = hull[side + 1];
      sizes_.insert(sizes_.end(), {a, b});
      const double at_a = ns[static_cast<size_t>(a)], rate = (ns[static_cast<size_t>(b)] - at_a) / double(b - a);
      const double fixed = at_a - rate * static_cast<double>(a);
      if (fixed < 0 || rate < 0 || floors_.back().fixed_ns == fixed) continue;
      floors_.push_back({.fixed_ns = fixed, .token_ns = rate});
    }
    std::sort(sizes_.begin(), sizes_.end());
    sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  }

  double TimeNs(StepShape shape, int64_t tokens) const {
    shape.padded_tokens = tokens - shape.tokens();
    return static_cast<double>(times_.StageTimeNs(shape, stage_));
  }

  // Lowers the rates to the time that each floor leaves for `amount`, in steps of the shape's tokens, alone or with
  // others.
  void Least(const StepShape& shape, double amount, std::vector<double>* rates) const {
    const int64_t own = shape.tokens();
    const auto at = [&](int64_t tokens) {
      const double ns = TimeNs(shape, tokens);
      for (size_t i = 0; i < floors_.size(); ++i) {
        (*rates)[i] = std::min((*rates)[i], (ns - floors_[i].At(static_cast<double>(tokens), 0, 0)) / amount);
      }
    };
    at(own);
    for (const int64_t tokens : sizes_) {
      if (tokens > own) at(tokens);
    }
  }

  // Samples up to one point beyond the largest step, so that every possible step lies between points.
  void OfDecodes() {
    int64_t fewer = 0;
    for (const int64_t decodes : Points(limits_.decodes)) {
      int64_t shorter = 0;
      for (const int64_t context : Points(limits_.context)) {
        if (fewer * shorter > limits_.tokens) break;
        StepShape shape;
        shape.decodes = decodes;
        shape.decode_context_tokens = decodes * context;
        Least(shape, static_cast<double>(shape.decode_context_tokens), &kv_);
        shorter = context;
      }
      fewer = decodes;
    }
  }

  void OfChunks() {
    std::vector<int64_t> before = Points(limits_.context);
    before.insert(before.begin(), 0);
    for (const int64_t tokens : Points(std::min(limits_.context, limits_.tokens))) {
      for (const int64_t context : before) {
        const ChunkShape chunk{static_cast<int32_t>(context), static_cast<int32_t>(tokens)};
        StepShape shape;
        shape.chunks = {&chunk, 1};
        Least(shape, PairsOf(static_cast<double>(tokens), static_cast<double>(context)), &pair_);
        Least(shape, static_cast<double>(tokens + context), &kv_);  // recomputing a decode is such a chunk
        if (context + tokens > limits_.context) break;
      }
    }
  }

  // In one step, decodes and a chunk may hide each other's time (overlap, a host slower than the device): both rates
  // are lowered until such steps stay above the floor too.
  void Together() {
    for (const int64_t decodes : Points(limits_.decodes, 1)) {
      for (const int64_t context : Points(limits_.context, 1)) {
        if (decodes * context > 2 * limits_.tokens) break;
        for (const int64_t tokens : Points(std::min(limits_.context, limits_.tokens), 1)) {
          for (const int64_t before : {int64_t{0}, context}) {
            const ChunkShape chunk{static_cast<int32_t>(before), static_cast<int32_t>(tokens)};
            StepShape shape;
            shape.chunks = {&chunk, 1};
            shape.decodes = decodes;
            shape.decode_context_tokens = decodes * context;
            for (const int64_t all : {tokens + decodes, std::max(tokens + decodes, fullest_)}) Lower(shape, all);
          }
        }
      }
    }
  }
  void Lower(const StepShape& shape, int64_t all) {
    const double ns = TimeNs(shape, all), tokens = static_cast<double>(all);
    const double pairs = PairsOf(shape.chunks[0].tokens, shape.chunks[0].context_tokens);
    for (StepFloor& f : floors_) {
      const double base = f.At(tokens, 0, 0);
      const double more = f.At(tokens, static_cast<double>(shape.decode_context_tokens), pairs) - base;
      if (base + more <= ns) continue;
      const double share = std::max(0.0, ns - base) / more;
      f.kv_token_ns *= share;
      f.pair_ns *= share;
    }
  }

  const StepTimeModel& times_;
  const int32_t stage_;
  const StepLimits limits_;
  int64_t fullest_ = 1;         // step size with the least time per token
  std::vector<int64_t> sizes_;  // step sizes at which attention is sampled
  std::vector<StepFloor> floors_;
  std::vector<double> kv_, pair_;  // one per floor
};

}  // namespace

std::vector<StepFloor> FloorsOf(const StepTimeModel& times, int32_t stage, const StepLimits& limits) {
  return Floors(times, stage, limits).Make();
}

int32_t SlowestStage(const StepTimeModel& times, int64_t tokens) {
  StepShape shape;
  shape.padded_tokens = tokens;
  int32_t slowest = 0;
  for (int32_t stage = 1; stage < times.stages(); ++stage) {
    if (times.StageTimeNs(shape, stage) > times.StageTimeNs(shape, slowest)) slowest = stage;
  }
  return slowest;
}

}  // namespace tactus::sim
