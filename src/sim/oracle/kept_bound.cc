#include "sim/oracle/kept_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/objectives.h"
#include "sim/oracle/packing_bound.h"
#include "sim/oracle/step_floor.h"

namespace tactus::sim {
namespace {

constexpr double kNeverNs = std::numeric_limits<double>::infinity();
constexpr size_t kMostStarts = 96;   // starts, and ends, of the time spans considered
constexpr int32_t kMostRounds = 40;  // rounds in which rows are added
constexpr size_t kRowsOfRound = 12;  // rows added per round, each with a different start
constexpr double kBroken = 1e-6;     // relative tolerance: a row exceeded by more is violated
constexpr int64_t kMostStepTokens = int64_t{1} << 22;

// One way to charge requests for steps: a floor of the step time, and how its fixed part is divided.
struct Charge {
  double token_ns = 0, pair_ns = 0;
  double kv_token_ns = 0;   // per context token of a decode; includes its share of the fixed part by memory
  double prompt_kv_ns = 0;  // per token of a prompt, once: the prompt's last step holds them all
  double in_step_ns = 0;    // minimum per step that contains the sequence
};

class Bound {
 public:
  Bound(std::span<const AskedRequest> requests, const KeptBoundMachine& machine,
        const std::function<bool(const KeptBoundProgress&)>& keep_going)
      : machine_(machine), keep_going_(keep_going) {
    const StepTimeModel& times = *machine.step_time;
    StepLimits limits;
    limits.tokens = std::clamp<int64_t>(machine.kv_tokens, 1, kMostStepTokens);
    limits.decodes = std::max(1, machine.max_num_seqs);
    limits.context = std::clamp<int64_t>(machine.context, 1, limits.tokens);
    floors_ = FloorsOf(times, SlowestStage(times, limits.tokens), limits);
    shortest_ns_ = 0.99 * static_cast<double>(ShortestStepNs(times));
    MakeCharges(limits);
    for (const AskedRequest& r : requests) {
      Needs n = NeedsOf(r);
      if (Alone(n)) needs_.push_back(n);
    }
  }

  // Absent: stopped.
  std::optional<int64_t> Most() {
    MakeSpans();
    std::vector<PackingRow> rows;
    double most = static_cast<double>(needs_.size());
    std::vector<double> shares(needs_.size(), 1.0);
    for (; progress_.round < kMostRounds; ++progress_.round) {
      std::vector<PackingRow> broken = Broken(shares);
      if (!going_) return std::nullopt;
      if (broken.empty()) break;
      rows.insert(rows.end(), broken.begin(), broken.end());
      PackingBound bound = BoundPacking(rows, needs_.size(), [this] { return GoOn(); });
      if (!going_) return std::nullopt;
      most = std::min(most, bound.most);
      shares = std::move(bound.shares);
      std::vector<PackingRow> held;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (bound.prices[i] > 0) held.push_back(std::move(rows[i]));
      }
      rows = std::move(held);
    }
    return static_cast<int64_t>(std::floor(most + 1e-6));
  }

 private:
  // What a request requires to meet its objectives; times in ns of the clock.
  struct Needs {
    double arrival = 0, prompt_tokens = 0, decodes = 0;
    double prompt_due = kNeverNs;       // the first token
    double gap = 0;                     // longest time between two tokens; 0: no limit
    double due = kNeverNs;              // the last token
    double prompt_ns = 0, step_ns = 0;  // minimum times alone on the fastest replica
    std::vector<double> prompt_charge;  // one per way to charge
  };

  bool GoOn() { return going_ = going_ && (!keep_going_ || keep_going_(progress_)); }

  void MakeCharges(const StepLimits& limits) {
    const double kv = static_cast<double>(std::max<int64_t>(1, machine_.kv_tokens));
    for (const StepFloor& f : floors_) {
      for (const double by_memory : {0.0, 0.5, 1.0}) {
        const double of_memory = by_memory * f.fixed_ns / kv;
        const double of_places = (1 - by_memory) * f.fixed_ns / static_cast<double>(limits.decodes);
        charges_.push_back({.token_ns = f.token_ns,
                            .pair_ns = f.pair_ns,
                            .kv_token_ns = f.kv_token_ns + of_memory,
                            .prompt_kv_ns = of_memory,
                            .in_step_ns = of_places});
        if (f.fixed_ns == 0) break;
      }
    }
  }

  Needs NeedsOf(const AskedRequest& r) const {
    Needs n;
    n.arrival = static_cast<double>(r.arrival_ns);
    n.prompt_tokens = static_cast<double>(std::max<int64_t>(1, r.prompt_tokens - r.shared_tokens));
    n.decodes = static_cast<double>(std::max<int64_t>(0, r.output_tokens - 1));
    n.prompt_ns = n.step_ns = shortest_ns_;
    for (const StepFloor& f : floors_) {
      n.prompt_ns = std::max(n.prompt_ns, f.At(n.prompt_tokens, 0, PairsOf(n.prompt_tokens, 0)));
      n.step_ns = std::max(n.step_ns, f.At(1, n.prompt_tokens + 1, 0));
    }
    n.prompt_ns *= machine_.quickest;
    n.step_ns *= machine_.quickest;
    n.gap = static_cast<double>(r.slo.tbt_ns);
    if (r.slo.jct_ns > 0) n.due = n.arrival + static_cast<double>(r.slo.jct_ns);
    n.prompt_due = n.due - n.decodes * n.step_ns;
    if (r.slo.ttft_ns > 0) n.prompt_due = std::min(n.prompt_due, n.arrival + static_cast<double>(r.slo.ttft_ns));
    for (const Charge& c : charges_) {
      n.prompt_charge.push_back((c.token_ns + c.prompt_kv_ns) * n.prompt_tokens +
                                c.pair_ns * PairsOf(n.prompt_tokens, 0) + c.in_step_ns);
    }
    return n;
  }

  // Whether the request can meet its objectives on an otherwise idle machine.
  static bool Alone(const Needs& n) {
    if (n.decodes > 0 && n.gap > 0 && n.gap < n.step_ns) return false;
    return n.arrival + n.prompt_ns <= n.prompt_due;
  }

  // Number of decodes of `n` that must have run by `t`.
  double LastDueBy(const Needs& n, double t) const {
    double last = 0;
    if (n.gap > 0 && n.prompt_due <= t) last = std::floor((t - n.prompt_due) / n.gap);
    if (n.due < kNeverNs) last = std::max(last, std::floor(n.decodes - (n.due - t) / n.step_ns));
    return std::clamp(last, 0.0, n.decodes);
  }

  // The minimum that `n` is charged within [s, t]. For the prompt: the part that does not fit into the time outside.
  void ChargeIn(const Needs& n, double s, double t, std::vector<double>* takes) const {
    std::fill(takes->begin(), takes->end(), 0.0);
    const double outside = std::max(0.0, s - n.arrival) + std::max(0.0, n.prompt_due - t);
    const double first = std::max(1.0, std::ceil((s - n.arrival - n.prompt_ns) / n.step_ns) + 1);
    const double last = LastDueBy(n, t), count = std::max(0.0, last - first + 1);
    const double context = n.prompt_tokens + (first + last) / 2;  // mean
    for (size_t i = 0; i < charges_.size(); ++i) {
      const Charge& c = charges_[i];
      double& take = (*takes)[i];
      if (outside < kNeverNs) take += std::max(0.0, n.prompt_charge[i] - outside / machine_.quickest);
      if (count > 0) take += count * (c.token_ns + c.in_step_ns + c.kv_token_ns * context);
    }
  }

  static std::vector<double> Thinned(std::vector<double> times) {
    std::erase_if(times, [](double t) { return t == kNeverNs; });
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    if (times.size() <= kMostStarts) return times;
    std::vector<double> some;
    for (size_t i = 0; i < kMostStarts; ++i) some.push_back(times[i * (times.size() - 1) / (kMostStarts - 1)]);
    return some;
  }

  void MakeSpans() {
    std::vector<double> starts, ends;
    for (const Needs& n : needs_) {
      starts.push_back(n.arrival);
      ends.push_back(n.prompt_due);
      ends.push_back(std::min(n.due, n.gap > 0 ? n.prompt_due + n.decodes * n.gap : kNeverNs));
    }
    starts_ = Thinned(std::move(starts));
    ends_ = Thinned(std::move(ends));
  }

  // The rows most violated by `shares`, at most one per start; empty if stopped.
  std::vector<PackingRow> Broken(const std::vector<double>& shares) {
    struct Found {
      double by = 0;
      double start = 0, end = 0;
      size_t charge = 0;
    };
    std::vector<Found> found;
    std::vector<double> sums(charges_.size()), takes(charges_.size());
    for (const double start : starts_) {
      if (!GoOn()) return {};
      Found worst;
      for (const double end : ends_) {
        if (end <= start) continue;
        std::fill(sums.begin(), sums.end(), 0.0);
        for (size_t j = 0; j < needs_.size(); ++j) {
          if (shares[j] <= 0 || needs_[j].arrival >= end) continue;
          ChargeIn(needs_[j], start, end, &takes);
          for (size_t i = 0; i < takes.size(); ++i) sums[i] += shares[j] * takes[i];
        }
        for (size_t i = 0; i < sums.size(); ++i) {
          const double by = sums[i] / (machine_.replicas * (end - start)) - 1;
          if (by > std::max(worst.by, kBroken)) worst = {by, start, end, i};
        }
      }
      if (worst.by > 0) found.push_back(worst);
    }
    std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.by > b.by; });
    if (found.size() > kRowsOfRound) found.resize(kRowsOfRound);
    std::vector<PackingRow> rows;
    for (const Found& f : found) {
      PackingRow row;
      row.there_is = machine_.replicas * (f.end - f.start);
      for (const Needs& n : needs_) {
        ChargeIn(n, f.start, f.end, &takes);
        row.takes.push_back(takes[f.charge]);
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  const KeptBoundMachine machine_;
  const std::function<bool(const KeptBoundProgress&)>& keep_going_;
  KeptBoundProgress progress_{.most_rounds = kMostRounds};
  bool going_ = true;
  double shortest_ns_ = 0;
  std::vector<StepFloor> floors_;
  std::vector<Charge> charges_;
  std::vector<Needs> needs_;
  std::vector<double> starts_, ends_;
};

}  // namespace

std::optional<int64_t> MostKept(std::span<const AskedRequest> requests, const KeptBoundMachine& machine,
                                const std::function<bool(const KeptBoundProgress&)>& keep_going) {
  if (requests.empty()) return 0;
  return Bound(requests, machine, keep_going).Most();
}

}  // namespace tactus::sim
