// Decodes that share a prefix: a step's attention with the prefix read once for all sequences (on) and once per
// sequence (off), alternating.
//
//   cascade_bench [THREADS] [NAME_PART] [SECONDS] [OWN]
//
// NAME_PART: only rows whose name contains it; "groups": the time to find groups. OWN: positions of each sequence
// behind the prefix, 64 by default
//
// A turn is one step: a call per layer of a model of this shape, each layer with its own cache, so the processor's
// caches hold what they would in a step. One thread is measured in thread CPU time, several threads in wall-clock time;
// medians and quartiles of turns, and of the ratios of neighbouring turns. Before the measurement the results of on and
// off are compared bit by bit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prefix_groups.h"
#include "base/rng.h"
#include "compute/kernels/ops.h"
#include "measure.h"

namespace tactus::bench {
namespace {

struct Model {
  const char* name;
  int32_t heads, kv_heads, head_dim, layers;
};
constexpr Model kModels[] = {
    {"30 x 9/3x64", 9, 3, 64, 30}, {"22 x 32/4x64", 32, 4, 64, 22}, {"8 x 32/8x128", 32, 8, 128, 8}};
constexpr int32_t kBlock = 16;

// The data of one table row's turns.
class Scene {
 public:
  Scene(const Model& m, compute::DType dtype, int32_t sequences, int32_t prefix, int32_t own_tokens,
        compute::ThreadPool& pool)
      : model_(m),
        pool_(pool),
        blocks_((prefix + sequences * own_tokens) / kBlock),
        k_(int64_t{blocks_} * m.layers * BlockBytes(m, dtype)),
        v_(k_.bytes) {
    Rng rng(3);
    std::vector<int32_t> order(static_cast<size_t>(blocks_));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1))]);
    }
    const int32_t shared = prefix / kBlock, own = own_tokens / kBlock;
    tables_.resize(static_cast<size_t>(sequences));
    for (int32_t s = 0; s < sequences; ++s) {
      auto& table = tables_[static_cast<size_t>(s)];
      table.assign(order.begin(), order.begin() + shared);
      table.insert(table.end(), order.begin() + shared + s * own, order.begin() + shared + (s + 1) * own);
      items_.push_back({s, prefix + own_tokens - 1, 1, table.data(), 0, prefix});
    }
    const int64_t kv_row = int64_t{m.kv_heads} * m.head_dim;
    std::vector<float> one(static_cast<size_t>(kv_row * kBlock));
    for (float& x : one) x = static_cast<float>(rng.Uniform() - 0.5);
    for (int32_t l = 0; l < m.layers; ++l) {
      layers_.push_back({k_.data + l * (k_.bytes / static_cast<size_t>(m.layers)),
                         v_.data + l * (v_.bytes / static_cast<size_t>(m.layers)), dtype, kBlock, m.kv_heads,
                         m.head_dim});
      for (int64_t b = 0; b < blocks_; ++b) {
        int64_t slots[kBlock];
        for (int32_t i = 0; i < kBlock; ++i) slots[i] = b * kBlock + i;
        one[static_cast<size_t>(b) % one.size()] += 0.125f;  // makes blocks differ
        ops_.store_kv(pool_, one.data(), one.data(), slots, kBlock, layers_.back());
      }
    }
    q_.resize(static_cast<size_t>(sequences) * static_cast<size_t>(m.heads * m.head_dim));
    for (float& x : q_) x = static_cast<float>(rng.Uniform() - 0.5);
    out_.resize(q_.size());
    scratch_.resize(static_cast<size_t>(compute::WorkspaceBytes(sequences, 64, m.heads, m.head_dim, pool.threads())));
  }

  // Runs a step's attention; returns its seconds.
  double Turn(bool on) {
    for (compute::AttentionItem& item : items_) item.prefix_group = on ? 0 : -1;
    const int64_t row = int64_t{model_.heads} * model_.head_dim;
    const bool cpu = pool_.threads() == 1;
    const double start = Now(cpu);
    for (const compute::KvLayer& kv : layers_) {
      ops_.attention(pool_, q_.data(), row, items_, model_.heads, kv, {.scale = 0.125f}, out_.data(), row,
                     {scratch_.data(), static_cast<int64_t>(scratch_.size())});
    }
    return Now(cpu) - start;
  }
  const std::vector<float>& out() const { return out_; }

 private:
  static int64_t BlockBytes(const Model& m, compute::DType dtype) {
    return compute::KvBlockBytes({nullptr, nullptr, dtype, kBlock, m.kv_heads, m.head_dim});
  }
  const compute::Ops& ops_ = *compute::SelectOps();
  const Model model_;
  compute::ThreadPool& pool_;
  int32_t blocks_;
  Mapping k_, v_;
  std::vector<compute::KvLayer> layers_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<compute::AttentionItem> items_;
  std::vector<float> q_, out_;
  std::vector<std::byte> scratch_;
};

struct Quartiles {
  explicit Quartiles(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    low = x[x.size() / 4];
    median = x[x.size() / 2];
    high = x[x.size() * 3 / 4];
  }
  double low, median, high;
};

void Row(const Model& m, compute::DType dtype, int32_t sequences, int32_t prefix, int32_t own, double seconds,
         const std::string& part, compute::ThreadPool& pool) {
  const std::string name = std::string(m.name) + " " + compute::InfoOf(dtype).name + " | " + std::to_string(sequences) +
                           " | " + std::to_string(prefix);
  if (name.find(part) == std::string::npos) return;
  Scene scene(m, dtype, sequences, prefix, own, pool);
  scene.Turn(false);
  const std::vector<float> apart = scene.out();
  scene.Turn(true);
  if (std::memcmp(apart.data(), scene.out().data(), apart.size() * sizeof(float)) != 0) {
    std::fprintf(stderr, "%s: on and off give different bits\n", name.c_str());
    std::exit(1);
  }
  std::vector<double> on, off, ratio;
  const double end = Now(false) + seconds;
  for (int turn = 0; turn < 7 || Now(false) < end; ++turn) {
    const bool first = turn % 2 == 0;
    const double a = scene.Turn(first), b = scene.Turn(!first);
    on.push_back(first ? a : b);
    off.push_back(first ? b : a);
    ratio.push_back(off.back() / on.back());
  }
  const Quartiles with(on), without(off), gain(ratio);
  std::printf("| %-32s | %8.2f (%.2f-%.2f) | %8.2f (%.2f-%.2f) | %5.2f (%.2f-%.2f) | %zu |\n", name.c_str(),
              without.median * 1e3, without.low * 1e3, without.high * 1e3, with.median * 1e3, with.low * 1e3,
              with.high * 1e3, gain.median, gain.low, gain.high, on.size());
  std::fflush(stdout);
}

// Time to find groups, once per step: 256 sequences behind one prefix of 4,096, without a prefix, and in eight groups
// of different lengths behind a prefix of 128.
void TimeGroups() {
  constexpr int32_t kSequences = 256, kBlocks = 260;
  std::vector<std::vector<int32_t>> tables(kSequences, std::vector<int32_t>(kBlocks));
  std::vector<PrefixGroups::Sequence> sequences;
  for (auto& table : tables) sequences.push_back({table.data(), kBlocks * kBlock, -1, 0});
  PrefixGroups groups(kBlock, kSequences);
  for (const char* kind : {"one group", "none", "nested"}) {
    for (int32_t s = 0; s < kSequences; ++s) {
      for (int32_t b = 0; b < kBlocks; ++b) {
        const bool shared = kind[0] == 'o' ? b < 256 : kind[1] == 'e' ? b < 8 : false;
        const bool deeper = kind[1] == 'e' && b < 256 - 16 * (s % 8);
        tables[static_cast<size_t>(s)][static_cast<size_t>(b)] = shared   ? b
                                                                 : deeper ? (s % 8 + 1) * 1000 + b
                                                                          : 100000 + s * kBlocks + b;
      }
    }
    std::vector<double> us;
    int64_t spared = 0;
    for (int turn = 0; turn < 500; ++turn) {
      const double start = Now(true);
      spared = groups.Find(sequences);
      us.push_back((Now(true) - start) * 1e6);
    }
    const Quartiles q(us);
    std::printf("groups of %d sequences, %s: %.1f us (%.1f-%.1f), %lld tokens spared\n", kSequences, kind, q.median,
                q.low, q.high, static_cast<long long>(spared));
  }
}

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  using namespace tactus;
  using namespace tactus::bench;
  compute::ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 1, SystemClock());
  const std::string part = argc > 2 ? argv[2] : "";
  if (part == "groups") {
    TimeGroups();
    return 0;
  }
  const double seconds = argc > 3 ? std::atof(argv[3]) : 3.0;
  const int32_t own = argc > 4 ? std::atoi(argv[4]) : 64;
  std::printf(
      "kernels %s, %d threads, %d own positions each\n\n| layers x heads, KV | sequences | prefix | off ms (quartiles) "
      "| "
      "on ms (quartiles) | off / on (quartiles of pairs) | turns |\n|---|---|---|---|---|---|---|\n",
      compute::SelectOps()->name, pool.threads(), own);
  for (const Model& m : kModels) {
    for (const compute::DType dtype : {compute::DType::kBF16, compute::DType::kInt8, compute::DType::kF32}) {
      if (dtype == compute::DType::kF32 && m.head_dim > 64) continue;
      for (const int32_t prefix : {128, 512, 4096}) {
        for (const int32_t sequences : {2, 4, 8, 32, 128}) Row(m, dtype, sequences, prefix, own, seconds, part, pool);
      }
    }
  }
  return 0;
}
