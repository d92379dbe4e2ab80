#include "cost/fitted.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "cost/embedded_data.h"
#include "cost/fitted_experts.h"

namespace tactus::cost {
namespace {

constexpr size_t kNeighbours = 4;

double Linear(const Knots& knots, double x) {
  if (x <= knots.front().first) return knots.front().second;
  size_t i = 1;
  while (i + 1 < knots.size() && knots[i].first < x) ++i;
  const auto& [x0, y0] = knots[i - 1];
  const auto& [x1, y1] = knots[i];
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

double GemmBytes(const std::string& dtype) {
  return dtype == "bfloat16" ? 2.0 : dtype == "int4" || dtype == "nvfp4" ? 0.5 : 1.0;
}

// Share of the rise between two knots of m that follows the tiles' waves; the rest is a straight line. The waves are
// about right where time rises, but do not predict which tiles the library picks: half of each fitted the profiles'
// left-out rows better than either alone (docs/concepts/cost_model.md, "Between the knots").
constexpr double kWaveShare = 0.5;

// Profiles measure every 8 or 16 tokens, so nothing was measured between knots this close. Between knots farther apart
// there were measurements: a step at a tile edge would have become a knot.
constexpr double kUnmeasured = 16;
static_assert(kUnmeasured < kLeastTileRows, "at most one edge of tiles lies between two such knots");

// A curve of the file, as time over m for one measured shape.
class GemmTime {
 public:
  GemmTime(const GemmCurve& curve, const DeviceSpec& device, const WeightFormat& format, double floor_ns)
      : n(curve.n), k(curve.k), device_(&device), format_(format), floor_ns_(floor_ns), bytes_(GemmBytes(curve.dtype)) {
    for (const auto& [m, efficiency] : curve.efficiency) {
      ns_.emplace_back(m, FloorNs(m, n, k) / efficiency);
      waves_.push_back(WavesNs(m));
    }
  }
  // The time that efficiencies relate to.
  double FloorNs(double m, double columns, double depth) const {
    const double bytes = (m * depth + depth * columns + m * columns) * bytes_;
    return std::max(2 * m * columns * depth / format_.flops, bytes / device_->bandwidth) * 1e9 + floor_ns_;
  }
  double At(double m) const {
    const auto& [last_m, last_ns] = ns_.back();
    if (m > last_m) return FloorNs(m, n, k) * (last_ns / FloorNs(last_m, n, k));
    if (m <= ns_.front().first) return ns_.front().second;
    size_t i = 1;
    while (ns_[i].first < m) ++i;
    const auto& [m0, ns0] = ns_[i - 1];
    const auto& [m1, ns1] = ns_[i];
    if (m == m1) return ns1;
    // The first token after a tile edge begins a new row of tiles, which costs as much as a full one.
    const double edge = std::ceil(m0 / kLeastTileRows) * kLeastTileRows;
    if (m1 - m0 <= kUnmeasured && edge < m1) return m > edge ? ns1 : ns0;
    double share = (m - m0) / (m1 - m0);
    const double waves0 = waves_[i - 1], waves1 = waves_[i];
    if (waves1 > waves0) share += kWaveShare * ((WavesNs(m) - waves0) / (waves1 - waves0) - share);
    return ns0 + (ns1 - ns0) * share;
  }
  double LogEfficiency(double m) const { return std::log(FloorNs(m, n, k) / At(m)); }

  double n, k;

 private:
  double WavesNs(double m) const {
    return TiledGemmNs(*device_, format_, static_cast<int64_t>(m), static_cast<int64_t>(n), static_cast<int64_t>(k),
                       false);
  }

  const DeviceSpec* device_;  // owned by the operators, which outlive it
  WeightFormat format_;
  double floor_ns_, bytes_;
  Knots ns_;
  std::vector<double> waves_;  // at the knots
};

// The curves of one attention geometry, by context (prefill) or batch (decode).
struct Geometry {
  double q_heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<const AttentionCurve*> curves;  // rising `at`

  double BytesPerToken(double kv_bytes) const { return 2 * kv_heads * head_dim * kv_bytes; }
};
using GeometryTable = std::vector<Geometry>;

GeometryTable Gather(const std::vector<AttentionCurve>& curves, const std::string& kv_dtype) {
  std::map<std::tuple<double, double, double>, Geometry> found;
  for (const AttentionCurve& c : curves) {
    if (c.kv_dtype != kv_dtype) continue;
    Geometry& g = found[{c.q_heads, c.kv_heads, c.head_dim}];
    g.q_heads = c.q_heads, g.kv_heads = c.kv_heads, g.head_dim = c.head_dim;
    g.curves.push_back(&c);
  }
  GeometryTable table;
  for (auto& [key, g] : found) {
    std::sort(g.curves.begin(), g.curves.end(), [](const auto* a, const auto* b) { return a->at < b->at; });
    table.push_back(std::move(g));
  }
  return table;
}

// Nearest in (log kv heads, log queries per KV head, 2 log head size): KV traffic first, then the shape of the tiles.
const Geometry* Nearest(const GeometryTable& table, const AttentionShape& s) {
  const Geometry* best = nullptr;
  double least = INFINITY;
  for (const Geometry& g : table) {
    const double a = std::log(g.kv_heads / static_cast<double>(s.kv_heads));
    const double b =
        std::log(g.q_heads / g.kv_heads) - std::log(static_cast<double>(s.q_heads) / static_cast<double>(s.kv_heads));
    const double c = 2 * std::log(g.head_dim / static_cast<double>(s.head_dim));
    const double distance = a * a + b * b + c * c;
    if (distance < least) least = distance, best = &g;
  }
  return best;
}

class Fitted final : public FittedOperators {
 public:
  Fitted(const DeviceSpec& device, const Coefficients& c, std::vector<BesideChunk> beside,
         std::unique_ptr<OperatorTimes> roofline)
      : device_(device), c_(c), beside_(std::move(beside)), roofline_(std::move(roofline)) {
    for (const char* dtype : {"bfloat16", "fp8"}) {
      prefill_[dtype] = Gather(c.prefill, dtype);
      alone_[dtype] = Gather(c.prefill_alone, dtype);
      decode_[dtype] = Gather(c.decode, dtype);
    }
    if (c.experts.empty()) return;
    const Result<WeightFormat> measured = FindWeightFormat(c.experts[0].dtype, device);
    if (measured.ok()) experts_.emplace(c.experts, *measured, device);
  }

  std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const override {
    const std::string dtype = MeasuredDtype(format.name);
    if (dtype.empty()) return roofline_->Gemm(format, n, k);
    std::vector<GemmTime> curves = CurvesOf(dtype);
    const auto distance = [&](const GemmTime& g) {
      const double a = std::log(g.n / static_cast<double>(n)), b = std::log(g.k / static_cast<double>(k));
      return a * a + b * b;
    };
    // Equal distances: by shape, so that the order of the file's lines does not matter.
    std::sort(curves.begin(), curves.end(), [&](const auto& a, const auto& b) {
      return std::tuple(distance(a), a.n, a.k) < std::tuple(distance(b), b.n, b.k);
    });
    // An exact match needs no neighbours.
    const size_t kept = distance(curves[0]) == 0 ? 1 : std::min(kNeighbours, curves.size());
    curves.erase(curves.begin() + static_cast<std::ptrdiff_t>(kept), curves.end());
    std::vector<double> weights;
    double sum = 0;
    for (const GemmTime& g : curves) {
      weights.push_back(1 / std::max(distance(g), 1e-12));
      sum += weights.back();
    }
    for (double& w : weights) w /= sum;
    // A borrowed efficiency is a share of the format's own roofline.
    const GemmTime own({format.name, static_cast<double>(n), static_cast<double>(k), {{1, 1}}}, device_, format,
                       c_.floor_us * 1e3);
    return [=](int64_t m) {
      double log_efficiency = 0;
      for (size_t i = 0; i < curves.size(); ++i)
        log_efficiency += weights[i] * curves[i].LogEfficiency(static_cast<double>(m));
      return own.FloorNs(static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)) /
             std::exp(log_efficiency);
    };
  }

  std::function<double(int64_t)> Experts(const WeightFormat& format, const ExpertsShape& s) const override {
    return experts_.has_value() ? experts_->Time(format, s) : roofline_->Experts(format, s);
  }

  double PrefillBaseNs(const AttentionShape& s) const override {
    const Geometry* g = Nearest(TableOf(alone_, s), s);
    return g == nullptr ? roofline_->PrefillBaseNs(s) : LeastNs(*g);
  }

  double PrefillAddsNs(const AttentionShape& s, double tokens, double context) const override {
    const Geometry* g = Nearest(TableOf(prefill_, s), s);
    if (g == nullptr) return roofline_->PrefillAddsNs(s, tokens, context);
    const double measured = AtContext(*g, context, [&](const AttentionCurve& c) {
      const auto roofline_ns = [&](double chunk) { return RooflineNs(*g, s, chunk, c.at); };
      return ChunkTime(c, tokens, roofline_ns, true);
    });
    // Each chunk's KV is read once, however many chunks share the device.
    const double read_ns = s.BytesPerToken() * (context + tokens) / device_.bandwidth * 1e9;
    return std::max(measured * Scale(*g, s, tokens, context), context > 0 ? read_ns : 0.0);
  }

  double PrefillAloneNs(const AttentionShape& s, double tokens, double context) const override {
    const Geometry* g = Nearest(TableOf(alone_, s), s);
    if (g == nullptr) return roofline_->PrefillAloneNs(s, tokens, context);
    const double measured = AtContext(*g, context, [&](const AttentionCurve& c) {
      const auto roofline_ns = [&](double chunk) { return RooflineNs(*g, s, chunk, c.at); };
      return ChunkTime(c, tokens, roofline_ns, false);
    });
    const double least = LeastNs(*g);
    return least + (measured - least) * Scale(*g, s, tokens, context);
  }

  double DecodeNs(const AttentionShape& s, double batch, double mean_context) const override {
    const Geometry* g = Nearest(TableOf(decode_, s), s);
    if (g == nullptr) return roofline_->DecodeNs(s, batch, mean_context);
    if (Same(*g, s)) return DecodeTime(*g, s.kv_bytes, batch, mean_context);
    // KV heads times sequences fill the device, in any proportion: more heads equal more sequences of fewer heads.
    // Below the measured range, and for another head size, the time above the minimum is scaled.
    const double least_batch = g->curves[0]->at;
    const double sequences = batch * static_cast<double>(s.kv_heads) / g->kv_heads;
    const double measured = DecodeTime(*g, s.kv_bytes, sequences, mean_context);
    const double least = DecodeTime(*g, s.kv_bytes, least_batch, g->curves[0]->knots[0].first);
    const double part = std::min(1.0, sequences / least_batch) * (static_cast<double>(s.head_dim) / g->head_dim);
    return least + std::max(0.0, measured - least) * part;
  }

  // The kernel is the chunk's: only the time above the minimum is added, times a factor.
  double DecodeBesideChunkNs(const AttentionShape& s, double batch, double mean_context) const override {
    const Knots* factors = FactorsBesideChunk(s);
    const Geometry* g = Nearest(TableOf(decode_, s), s);
    if (factors == nullptr || g == nullptr) return DecodeNs(s, batch, mean_context);
    Knots logs;
    for (const auto& [n, factor] : *factors) logs.emplace_back(std::log(n), std::log(factor));
    const double at = std::clamp(std::log(batch), logs.front().first, logs.back().first);
    const double factor = logs.size() == 1 ? logs[0].second : Linear(logs, at);
    const double least = DecodeTime(*g, s.kv_bytes, g->curves[0]->at, g->curves[0]->knots[0].first);
    return std::exp(factor) * std::max(0.0, DecodeNs(s, batch, mean_context) - least);
  }

  double ElementwiseNs(Elementwise op, double bytes) const override {
    for (const ElementwiseFit& e : c_.elementwise) {
      if (e.op == ElementwiseName(op)) return e.overhead_us * 1e3 + bytes / (device_.bandwidth * e.efficiency) * 1e9;
    }
    return roofline_->ElementwiseNs(op, bytes);
  }

  double AllReduceNs(double bytes, int32_t gpus) const override { return CollectiveNs(c_.all_reduce, bytes, gpus, 1); }
  double ExchangeNs(double bytes, int32_t gpus, int32_t tp) const override {
    return CollectiveNs(c_.exchange, bytes, gpus, tp);
  }

  double SendNs(double bytes, int32_t among) const override {
    if (among > device_.group || c_.send_us.empty()) return roofline_->SendNs(bytes, among);
    const auto& [last_bytes, last_us] = c_.send_us.back();
    return 1e3 * (bytes > last_bytes       ? last_us * bytes / last_bytes
                  : c_.send_us.size() == 1 ? last_us
                                           : Linear(c_.send_us, bytes));
  }

  FitCoverage Coverage(const WeightFormat& format, const AttentionShape& s, int32_t tp, int32_t ep) const override {
    FitCoverage v;
    const std::string dtype = MeasuredDtype(format.name);
    v.gemm = !dtype.empty();
    v.experts = experts_.has_value();
    v.gemm_dtype_borrowed = v.gemm && dtype != format.name;
    for (const GemmCurve& g : c_.gemm) {
      if (g.dtype == dtype) v.most_tokens = std::max(v.most_tokens, g.efficiency.back().first);
    }
    if (const Geometry* g = Nearest(TableOf(prefill_, s), s); g != nullptr) {
      v.prefill = true;
      for (const AttentionCurve* c : g->curves) v.most_chunk = std::max(v.most_chunk, c->knots.back().first);
    }
    if (const Geometry* g = Nearest(TableOf(decode_, s), s); g != nullptr) {
      v.decode = true;
      v.geometry = fmt::format("{:.0f}/{:.0f} heads of {:.0f}", g->q_heads, g->kv_heads, g->head_dim);
      v.most_batch = g->curves.back()->at;
      for (const AttentionCurve* c : g->curves) v.most_context = std::max(v.most_context, c->knots.back().first);
    }
    v.beside_chunk = v.decode && FactorsBesideChunk(s) != nullptr;
    v.all_reduce = tp > 1 && CurveOf(c_.all_reduce, tp, 1) != nullptr;
    v.exchange = ep > 1 && CurveOf(c_.exchange, ep, tp) != nullptr;
    return v;
  }

 private:
  using Tables = std::map<std::string, GeometryTable>;

  const GeometryTable& TableOf(const Tables& tables, const AttentionShape& s) const {
    const GeometryTable& own = tables.at(s.kv_bytes == 1 ? "fp8" : "bfloat16");
    // Without fp8 measurements the 16-bit ones are used: half the bytes at the same efficiency.
    return own.empty() ? tables.at("bfloat16") : own;
  }
  // The measured dtype whose efficiencies are used: its own, for other kinds of fp8 those of per-tensor fp8, else
  // bfloat16's; "": none.
  std::string MeasuredDtype(const std::string& dtype) const {
    for (const std::string& candidate :
         {dtype, std::string(dtype.substr(0, 3) == "fp8" ? "fp8" : "bfloat16"), std::string("bfloat16")}) {
      for (const GemmCurve& g : c_.gemm) {
        if (g.dtype == candidate) return candidate;
      }
    }
    return "";
  }
  std::vector<GemmTime> CurvesOf(const std::string& dtype) const {
    const Result<WeightFormat> measured = FindWeightFormat(dtype, device_);
    std::vector<GemmTime> curves;
    for (const GemmCurve& g : c_.gemm) {
      if (g.dtype == dtype) curves.emplace_back(g, device_, *measured, c_.floor_us * 1e3);
    }
    return curves;
  }
  // The device's measured geometry with the nearest number of queries per KV head, which decides how often KV is read.
  const Knots* FactorsBesideChunk(const AttentionShape& s) const {
    const Knots* best = nullptr;
    double least = INFINITY;
    for (const BesideChunk& row : beside_) {
      const double a = std::log(row.factor.q_heads / row.factor.kv_heads) -
                       std::log(static_cast<double>(s.q_heads) / static_cast<double>(s.kv_heads));
      const double b = std::log(row.factor.kv_heads / static_cast<double>(s.kv_heads));
      const double distance = a * a + 0.01 * b * b;
      if (distance < least) least = distance, best = &row.factor.knots;
    }
    return best;
  }
  double CollectiveNs(const std::vector<CollectiveCurve>& curves, double bytes, int32_t gpus, int32_t apart) const {
    const CollectiveCurve* curve = CurveOf(curves, gpus, apart);
    if (curve == nullptr) return roofline_->ExchangeNs(bytes, gpus, apart);
    const auto& [last_bytes, last_us] = curve->us.back();
    const double measured = 1e3 * (bytes > last_bytes      ? last_us * bytes / last_bytes
                                   : curve->us.size() == 1 ? last_us
                                                           : Linear(curve->us, bytes));
    // Another number of devices: scaled by the ring formula.
    return curve->gpus == gpus
               ? measured
               : measured * roofline_->AllReduceNs(bytes, gpus) / roofline_->AllReduceNs(bytes, curve->gpus);
  }
  // `gpus` devices, every `apart`-th one.
  const CollectiveCurve* CurveOf(const std::vector<CollectiveCurve>& curves, int32_t gpus, int32_t apart) const {
    // The tables were measured where a fast link joins all devices, or on a node of devices without links.
    const int32_t among = gpus * apart;
    if (among > (device_.group > 1 ? device_.group : device_.node)) return nullptr;
    if (device_.other_peers && among > device_.group) return nullptr;
    const CollectiveCurve* best = nullptr;
    for (const CollectiveCurve& a : curves) {
      if (best == nullptr ||
          std::abs(std::log2(a.gpus) - std::log2(gpus)) < std::abs(std::log2(best->gpus) - std::log2(gpus)))
        best = &a;
    }
    return best;
  }
  static bool Same(const Geometry& g, const AttentionShape& s) {
    return g.q_heads == static_cast<double>(s.q_heads) && g.kv_heads == static_cast<double>(s.kv_heads) &&
           g.head_dim == static_cast<double>(s.head_dim);
  }

  // The roofline that prefill efficiencies relate to.
  double ChunkRooflineNs(double q_width, double kv_token_bytes, double chunk, double context) const {
    return std::max(4 * q_width * chunk * (context + chunk / 2) / device_.bf16_flops,
                    kv_token_bytes * (context + chunk) / device_.bandwidth) *
           1e9;
  }
  double RooflineNs(const Geometry& g, const AttentionShape& s, double chunk, double context) const {
    return ChunkRooflineNs(g.q_heads * g.head_dim, g.BytesPerToken(s.kv_bytes), chunk, context);
  }
  double Scale(const Geometry& g, const AttentionShape& s, double chunk, double context) const {
    if (Same(g, s)) return 1;
    return ChunkRooflineNs(static_cast<double>(s.q_heads * s.head_dim), s.BytesPerToken(), chunk, context) /
           RooflineNs(g, s, chunk, context);
  }
  double LeastNs(const Geometry& g) const { return g.curves[0]->knots[0].second * 1e3; }

  // ns of a chunk on one curve: log-log linear between knots, the first knot's value below them, proportional to the
  // roofline beyond.
  template <class Roofline>
  static double ChunkTime(const AttentionCurve& c, double chunk, const Roofline& roofline, bool efficiency) {
    const auto ns_at = [&](size_t i) {
      const auto& [x, y] = c.knots[i];
      return efficiency ? roofline(x) / y : y * 1e3;
    };
    const size_t last = c.knots.size() - 1;
    if (chunk <= c.knots[0].first || last == 0) return ns_at(0);
    if (chunk >= c.knots[last].first) return ns_at(last) * roofline(chunk) / roofline(c.knots[last].first);
    size_t i = 1;
    while (c.knots[i].first < chunk) ++i;
    const double share = std::log(chunk / c.knots[i - 1].first) / std::log(c.knots[i].first / c.knots[i - 1].first);
    return std::exp(std::log(ns_at(i - 1)) * (1 - share) + std::log(ns_at(i)) * share);
  }

  // Linear in the context between and beyond the stored curves.
  template <class At>
  static double AtContext(const Geometry& g, double context, const At& at) {
    const size_t last = g.curves.size() - 1;
    if (last == 0) return at(*g.curves[0]);
    size_t i = 1;
    while (i < last && g.curves[i]->at < context) ++i;
    const double x0 = g.curves[i - 1]->at, x1 = g.curves[i]->at;
    const double low = at(*g.curves[i - 1]), high = at(*g.curves[i]);
    return low + std::max(0.0, high - low) * (context - x0) / (x1 - x0);
  }

  double DecodeTime(const Geometry& g, double kv_bytes, double batch, double context) const {
    const auto curve_ns = [&](const AttentionCurve& c) {
      const double token_ns =
          c.at * g.BytesPerToken(kv_bytes) / device_.bandwidth * 1e9;  // per context token, all sequences
      Knots ns;
      for (const auto& [x, efficiency] : c.knots) ns.emplace_back(x, token_ns * x / efficiency);
      const auto& [last_x, last_ns] = ns.back();
      return context > last_x || ns.size() == 1 ? last_ns * std::max(1.0, context / last_x) : Linear(ns, context);
    };
    const size_t last = g.curves.size() - 1;
    if (batch <= g.curves[0]->at) return curve_ns(*g.curves[0]);
    if (batch >= g.curves[last]->at) return curve_ns(*g.curves[last]) * batch / g.curves[last]->at;
    size_t i = 1;
    while (g.curves[i]->at < batch) ++i;
    const double share = (batch - g.curves[i - 1]->at) / (g.curves[i]->at - g.curves[i - 1]->at);
    const double low = curve_ns(*g.curves[i - 1]);
    return low + (curve_ns(*g.curves[i]) - low) * share;
  }

  const DeviceSpec device_;
  const Coefficients& c_;
  const std::vector<BesideChunk> beside_;
  const std::unique_ptr<OperatorTimes> roofline_;
  Tables prefill_, alone_, decode_;
  std::optional<FittedExperts> experts_;
};

}  // namespace

std::unique_ptr<FittedOperators> MakeFitted(const DeviceSpec& device, const Coefficients& coefficients,
                                            std::vector<BesideChunk> beside, std::unique_ptr<OperatorTimes> roofline) {
  return std::make_unique<Fitted>(device, coefficients, std::move(beside), std::move(roofline));
}

Result<std::vector<BesideChunk>> FindBesideChunk(const DeviceSpec& device, const std::string& backend,
                                                 const std::string& kernels) {
  static const Result<std::vector<BesideChunk>> all = ParseBesideChunk(EmbeddedText("hybrid.json"), "hybrid.json");
  if (!all.ok()) return all.status();
  std::vector<BesideChunk> rows;
  if (kernels == "two" || (kernels != "one" && !backend.empty() && backend != "vllm")) return rows;
  // A thread block reads the KV of one query and head by itself: the unused memory bandwidth depends on the bandwidth
  // per multiprocessor.
  const auto per_sm = [](const DeviceSpec& d) { return std::log(d.bandwidth / d.sms); };
  std::string fit;
  double least = INFINITY;
  for (const BesideChunk& row : *all) {
    if (row.fit != device.fit && kernels != "one") continue;
    TACTUS_ASSIGN_OR_RETURN(const DeviceSpec of, FindDevice(row.fit));
    const double distance = row.fit == device.fit ? -1 : std::abs(per_sm(of) - per_sm(device));
    if (distance < least) least = distance, fit = row.fit;
  }
  for (const BesideChunk& row : *all) {
    if (row.fit == fit) rows.push_back(row);
  }
  return rows;
}

Result<const Coefficients*> FindCoefficients(const DeviceSpec& device, const std::string& backend) {
  // Each file is parsed once, on first use.
  static std::mutex mutex;
  static std::map<std::string, Result<Coefficients>> parsed;
  for (const std::string& name : {device.fit + "-" + backend + ".cost.json", device.fit + ".cost.json"}) {
    const std::string_view text = EmbeddedText(name);
    if (text.empty()) continue;
    const std::lock_guard lock(mutex);
    auto found = parsed.find(name);
    if (found == parsed.end()) found = parsed.emplace(name, ParseCoefficients(text, name)).first;
    if (!found->second.ok()) return found->second.status();
    return &found->second.value();
  }
  return static_cast<const Coefficients*>(nullptr);
}

}  // namespace tactus::cost
