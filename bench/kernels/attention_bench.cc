// Attention against the machine's ceilings: its share of the bf16 arithmetic and of the read bandwidth. The ceilings
// are measured between the calls; both are the best of many short turns, which excludes other load on the machine.
//
//   attention_bench [THREADS] [NAME_PART] [cached]
//
// NAME_PART: only rows whose name contains it. cached: all sequences share eight blocks, which stay in the caches.
// Decodes read a cache far larger than the processor's. Ceilings: a sequential read ("reading"), impossible with a
// paged cache, and a read of the same blocks in the same order, prefetched by software ("blocks"). A prefill of n
// tokens is measured as chunks of 512 queries, at most four, spread over it. One thread is measured in thread CPU time,
// several threads in wall-clock time.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ceiling.h"
#include "compute/kernels/ops.h"

namespace tactus::bench {
namespace {

struct Heads {
  const char* name;
  int32_t heads, kv_heads, head_dim;
};
constexpr Heads kHeads[] = {{"32/4x64", 32, 4, 64}, {"32/8x128", 32, 8, 128}};
constexpr int32_t kBlock = 16;
constexpr int64_t kPoolBytes = int64_t{192} << 20;

double Now(bool cpu) {
  timespec t;
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<float> RandomFloats(int64_t n) {
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.5);
  return x;
}

// Like an executor's KV cache: huge pages where available.
struct Mapping {
  explicit Mapping(int64_t n) : bytes(static_cast<size_t>(n)) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) std::abort();
#ifdef MADV_HUGEPAGE
    (void)madvise(data, bytes, MADV_HUGEPAGE);
#endif
  }
  ~Mapping() { munmap(data, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  size_t bytes;
  void* data;
};

// Measures the ceilings' turns.
class Ceiling {
 public:
  explicit Ceiling(compute::ThreadPool& pool) : pool_(pool), loops_(Loops()), data_(kFloats * 16) {
    std::fill(data_.begin(), data_.end(), 1.0f);
  }
  void Arithmetic() {
    pool_.ParallelFor(pool_.threads(), [&](int64_t, int32_t) { sink_ = sink_ + loops_.bf16(kRounds); });
  }
  double arithmetic() const { return static_cast<double>(kRounds * loops_.bf16_flops_per_round * pool_.threads()); }
  void Read() {
    const float* from = data_.data() + turn_++ % 16 * kFloats;
    const int64_t piece = kFloats / 64;
    pool_.ParallelFor(64, [&](int64_t i, int32_t) { sink_ = sink_ + loops_.read(from + i * piece, piece); });
  }
  static double read() { return 4.0 * kFloats; }

  // Sums every head of every block of `work`, K and V, in tasks of one item and head, like attention's.
  void Blocks(const compute::KvLayer& kv, const std::vector<compute::AttentionItem>& work) {
    const int64_t head_bytes = compute::KvBlockBytes(kv) / kv.kv_heads;
    const int64_t ahead = std::max<int64_t>(1, (16 << 10) / head_bytes / 2);
    pool_.ParallelFor(static_cast<int64_t>(work.size()) * kv.kv_heads, [&](int64_t task, int32_t) {
      const compute::AttentionItem& item = work[static_cast<size_t>(task / kv.kv_heads)];
      const int64_t blocks = item.first_position / kBlock + 1, head = task % kv.kv_heads;
      uint64_t sum = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        for (const void* base : {kv.k, kv.v}) {
          auto at = [&](int64_t block) {
            return static_cast<const char*>(base) + (item.block_table[block] * kv.kv_heads + head) * head_bytes;
          };
          const char *from = at(b), *next = at(std::min(b + ahead, blocks - 1));
          for (int64_t i = 0; i < head_bytes; i += 64) {
            __builtin_prefetch(next + i);
            uint64_t words[8];
            std::memcpy(words, from + i, sizeof words);
            for (const uint64_t w : words) sum += w;
          }
        }
      }
      sink_ = sink_ + static_cast<float>(sum);
    });
  }

 private:
  static CeilingLoops Loops() {
#if defined(__x86_64__)
    if (compute::SelectOps("avx512") != nullptr && Avx512Loops().bf16 != nullptr) return Avx512Loops();
#endif
    std::fprintf(stderr, "no bf16 arithmetic on this machine\n");
    std::exit(2);
  }
  static constexpr int64_t kFloats = int64_t{12} << 18, kRounds = 4000;  // 12 MiB per turn
  compute::ThreadPool& pool_;
  CeilingLoops loops_;
  std::vector<float> data_;
  size_t turn_ = 0;
  volatile float sink_ = 0;
};

class Bench {
 public:
  Bench(int32_t threads, std::string part, bool cached)
      : pool_(threads, SystemClock()), ceiling_(pool_), part_(std::move(part)), cached_(cached) {}

  // `items` sequences of `context`, with queries in the last `count` positions; a prefill uses chunks at several
  // depths.
  void Row(const Heads& h, compute::DType dtype, const std::string& what, int32_t items, int32_t context,
           int32_t count) {
    const std::string name = what + " " + h.name + " " + compute::InfoOf(dtype).name;
    if (name.find(part_) == std::string::npos) return;
    const int32_t blocks_each = (context + kBlock - 1) / kBlock;
    compute::KvLayer kv = {nullptr, nullptr, dtype, kBlock, h.kv_heads, h.head_dim};
    const int64_t block_bytes = compute::KvBlockBytes(kv);
    const bool prefill = count > 1;
    const int64_t sets = prefill ? 1 : std::max<int64_t>(1, kPoolBytes / (2 * block_bytes * blocks_each * items));
    const int64_t blocks = sets * items * blocks_each;
    Mapping k(blocks * block_bytes), v(blocks * block_bytes);
    kv.k = k.data;
    kv.v = v.data;
    const compute::Ops& ops = *compute::SelectOps();
    const int64_t row = int64_t{h.heads} * h.head_dim, kv_row = int64_t{h.kv_heads} * h.head_dim;
    const std::vector<float> one = RandomFloats(kv_row * kBlock);
    for (int64_t b = 0; b < blocks; ++b) {
      std::vector<int64_t> slots;
      for (int32_t i = 0; i < kBlock; ++i) slots.push_back(b * kBlock + i);
      ops.store_kv(pool_, one.data(), one.data(), slots.data(), kBlock, kv);
    }
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(cached_ ? i % 8 : i);
    Rng rng(3);
    for (size_t i = table.size(); i > 1; --i)
      std::swap(table[i - 1], table[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1))]);
    const int32_t chunk = prefill ? std::min(512, context) : 1, pieces = std::min(4, prefill ? context / chunk : 1);
    const std::vector<float> q = RandomFloats(int64_t{items} * chunk * row);
    std::vector<float> out(q.size());
    std::vector<std::byte> scratch(
        static_cast<size_t>(compute::WorkspaceBytes(int64_t{items} * chunk, 64, h.heads, h.head_dim, pool_.threads())));
    std::vector<double> best(static_cast<size_t>(pieces), 1e9);
    double best_flops = 1e9, best_read = 1e9, best_blocks = 1e9;
    const bool cpu = pool_.threads() == 1;
    const double end = Now(false) + 1.0;
    for (int64_t turn = 0; Now(false) < end || turn < 4 * pieces; ++turn) {
      const auto piece = static_cast<int32_t>(turn % pieces);
      std::vector<compute::AttentionItem> work;
      for (int32_t i = 0; i < items; ++i) {
        // The chunks' mean depth is that of the whole prefill.
        const int32_t first = prefill ? (context - chunk) * (2 * piece + 1) / (2 * pieces) : context - 1;
        work.push_back({i * chunk, first, chunk, table.data() + (turn % sets * items + i) * blocks_each});
      }
      auto timed = [&](auto&& run, double* least) {
        const double start = Now(cpu);
        run();
        *least = std::min(*least, Now(cpu) - start);
      };
      timed(
          [&] {
            ops.attention(pool_, q.data(), row, work, h.heads, kv, {.scale = 0.125f}, out.data(), row,
                          {scratch.data(), static_cast<int64_t>(scratch.size())});
          },
          &best[static_cast<size_t>(piece)]);
      timed([&] { ceiling_.Arithmetic(); }, &best_flops);
      timed([&] { ceiling_.Read(); }, &best_read);
      if (!prefill) timed([&] { ceiling_.Blocks(kv, work); }, &best_blocks);
    }
    double seconds = 0, flops = 0;
    for (int32_t p = 0; p < pieces; ++p) {
      seconds += best[static_cast<size_t>(p)];
      const int32_t first = prefill ? (context - chunk) * (2 * p + 1) / (2 * pieces) : context - 1;
      for (int32_t i = 0; i < chunk; ++i) flops += 4.0 * items * static_cast<double>(row) * (first + i + 1);
    }
    const double bytes = 2.0 * static_cast<double>(block_bytes * blocks_each) * items;
    const double peak = ceiling_.arithmetic() / best_flops, read = Ceiling::read() / best_read;
    std::printf("| %-30s | %8.1f | %5.1f | %3.0f %% | ", name.c_str(), seconds * 1e6, flops / seconds * 1e-9,
                100 * flops / seconds / peak);
    if (prefill) {
      std::printf("     |       |       | %5.0f |      |      |\n", peak * 1e-9);
    } else {
      std::printf("%4.1f | %3.0f %% | %3.0f %% | %5.0f | %4.1f | %4.1f |\n", bytes / seconds * 1e-9,
                  100 * bytes / seconds / read, 100 * best_blocks / seconds, peak * 1e-9, read * 1e-9,
                  bytes / best_blocks * 1e-9);
    }
    std::fflush(stdout);
  }

 private:
  compute::ThreadPool pool_;
  Ceiling ceiling_;
  std::string part_;
  const bool cached_;
};

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  using namespace tactus;
  using namespace tactus::bench;
  const bool cached = argc > 3 && std::strcmp(argv[3], "cached") == 0;
  Bench bench(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "", cached);
  std::printf(
      "| attention | us | GFLOP/s | of bf16 | GB/s | of reading | of blocks | bf16 GFLOP/s | reading | blocks GB/s "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Heads& h : kHeads) {
    for (const compute::DType dtype : {compute::DType::kBF16, compute::DType::kInt8, compute::DType::kF32}) {
      for (const int32_t context : {128, 1024, 8192}) {
        for (const int32_t batch : {1, 8, 16, 32})
          bench.Row(h, dtype, "decode " + std::to_string(batch) + " at " + std::to_string(context), batch, context, 1);
      }
      for (const int32_t context : {512, 2048, 8192})
        bench.Row(h, dtype, "prefill " + std::to_string(context), 1, context, context);
    }
  }
  return 0;
}
