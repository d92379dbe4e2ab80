// Share of the roofline, operator by operator, and the machine's ceilings, behind the line protocol of
// bench/cpu/engines.py:
//
//   ceilings                                      bf16_ops, int8_ops, f32_ops and read_bytes, all per second
//   operators format=bf16|int8|int4 [rounding=mixed|int8|int16]  a list of name, shape, seconds, ops, bytes, bound and
//   share
//
// Shapes are TinyLlama's (bench/cpu/shape.py). Operations and bytes are counted: weights once per call, packed tokens,
// inputs and outputs once. Time is the least of many calls, which rotate through more weights and KV than caches hold;
// the ceilings are the better of just before and just after. What of activations has 16 bits counts as twice the
// operations: that is what the hardware does.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "../kernels/ceiling.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "compute/kernels/kernel_set.h"
#include "compute/tensor/float16.h"

namespace tactus {
namespace {

using bench::Ceilings;
using compute::PackedMatrix;
using compute::PackedTokens;
using compute::Rounding;

constexpr int64_t kHidden = 2048, kInner = 5632, kVocab = 32000;
constexpr int32_t kHeads = 32, kKvHeads = 4, kHeadDim = 64, kBlockSize = 16;
constexpr int64_t kKvWidth = kKvHeads * kHeadDim;
constexpr int64_t kColdBytes = 320 << 20;  // weights of one operator, in as many copies as needed
constexpr double kSecondsPerRow = 0.12;

// Uses huge pages for large buffers, like the engine's weights and KV.
struct Bytes {
  explicit Bytes(int64_t n) {
    const size_t page = n < (2 << 20) ? 4096 : 2 << 20, bytes = (static_cast<size_t>(n) + page - 1) / page * page;
    data = static_cast<std::byte*>(std::aligned_alloc(page, bytes));
    if (data == nullptr) std::abort();
#ifdef MADV_HUGEPAGE
    (void)madvise(data, bytes, MADV_HUGEPAGE);  // only advice: failure is harmless
#endif
    std::memset(data, 0, bytes);
  }
  ~Bytes() { std::free(data); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::byte* data;
};

std::vector<float> Noise(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  Rng rng(5, static_cast<uint64_t>(n));
  for (float& x : v) x = static_cast<float>(rng.UniformInt(-1000, 1000)) * 1e-3f;
  return v;
}

// Copies of one packed matrix, so that successive calls find none of it in a cache.
struct Weights {
  std::vector<std::unique_ptr<Bytes>> memory;
  std::vector<PackedMatrix> copies;
  const PackedMatrix& At(int64_t i) const { return copies[static_cast<size_t>(i) % copies.size()]; }
};

struct Cost {
  double integer_ops = 0, bf16_ops = 0, f32_ops = 0, bytes = 0;
  bool cached = false;  // its input was just written, as in the model: no share of memory bandwidth
};

struct Row {
  std::string name, shape;
  double seconds = 0;
  Cost cost;
  Ceilings ceilings;
};

class Operators {
 public:
  Operators(int32_t threads, const compute::Ops& ops)
      : pool_(threads, SystemClock()),
        ops_(ops),
        scratch_bytes_(compute::WorkspaceBytes(2048, kInner, kHeads, kHeadDim, threads)),
        scratch_(scratch_bytes_) {}

  Json CeilingsJson() {
    const Ceilings c = bench::MeasureCeilings(pool_, ops_);
    return {
        {"bf16_ops", c.bf16_flops}, {"int8_ops", c.int8_ops}, {"f32_ops", c.f32_flops}, {"read_bytes", c.read_bytes}};
  }

  Result<Json> All(const std::string& format, Rounding rounding) {
    if (ops_.linear_packed == nullptr)
      return Unimplemented(fmt::format("kernel set {} has no packed operators", ops_.name));
    quantization_ = format == "int8"   ? compute::Quantization::kInt8
                    : format == "int4" ? compute::Quantization::kInt4
                                       : compute::Quantization::kNone;
    rounding_ = rounding;
    rows_.clear();
    for (const int64_t tokens : {int64_t{1}, int64_t{16}, int64_t{512}}) Layer(tokens);
    Attention("attention, decode 16", 16, 1024, 1);
    Attention("attention, prompt of 512", 1, 0, 512);
    Attention("attention, prompt of 2048", 1, 0, 2048);
    return Table();
  }

 private:
  compute::Workspace Scratch() const { return {scratch_.data, scratch_bytes_}; }

  Weights Make(int64_t rows, int64_t cols) {
    PackedMatrix form;
    if (quantization_ == compute::Quantization::kNone) {
      compute::PackedFormOf(compute::DType::kBF16, rows, cols, &form);
    } else {
      compute::QuantizedFormOf(quantization_, rows, cols, &form);
    }
    const std::vector<float> noise = Noise(rows * cols);
    std::vector<uint16_t> source(noise.size());
    for (size_t i = 0; i < noise.size(); ++i) source[i] = compute::F32ToBF16(noise[i]);
    const compute::MatrixView view{source.data(), compute::DType::kBF16, rows, cols, cols * 2};
    Weights w;
    const int64_t copies = std::max<int64_t>(2, kColdBytes / form.bytes());
    for (int64_t c = 0; c < copies; ++c) {
      w.memory.push_back(std::make_unique<Bytes>(form.bytes()));
      if (c == 0) {
        pool_.ParallelFor(form.panels(), [&](int64_t p, int32_t) {
          compute::PackPanels(view, form, p, 1, w.memory[0]->data + p * form.panel_bytes);
        });
      } else {
        std::memcpy(w.memory.back()->data, w.memory[0]->data, static_cast<size_t>(form.bytes()));
      }
      w.copies.push_back(form);
      w.copies.back().data = w.memory.back()->data;
    }
    return w;
  }

  // The minimum time of a call; `call(i)` is the i-th. Ends after kSecondsPerRow or 400 calls, but not before 5.
  void Time(const std::string& name, const std::string& shape, const Cost& cost,
            const std::function<void(int64_t)>& call) {
    const Ceilings before = bench::MeasureCeilings(pool_, ops_);
    call(0);
    double least = 1e9;
    const TimeNs begin = SystemClock().NowNs();
    const auto limit = static_cast<TimeNs>(kSecondsPerRow * 1e9);
    for (int64_t i = 1; i <= 400 && (i <= 5 || SystemClock().NowNs() - begin < limit); ++i) {
      const TimeNs start = SystemClock().NowNs();
      call(i);
      least = std::min(least, static_cast<double>(SystemClock().NowNs() - start) * 1e-9);
    }
    // Memory speed varies with other load on the machine: only measurements next to the row count.
    const Ceilings after = bench::MeasureCeilings(pool_, ops_);
    rows_.push_back({name,
                     shape,
                     least,
                     cost,
                     {std::max(before.f32_flops, after.f32_flops), std::max(before.bf16_flops, after.bf16_flops),
                      std::max(before.int8_ops, after.int8_ops), std::max(before.read_bytes, after.read_bytes)}});
  }

  // Minimum times against the best ceilings just before and after.
  Json Table() const {
    Json table = Json::array();
    for (const Row& r : rows_) {
      const Ceilings& c = r.ceilings;
      const double bf16 = c.bf16_flops > 0 ? c.bf16_flops : c.f32_flops, int8 = c.int8_ops > 0 ? c.int8_ops : bf16;
      const double arithmetic_s = r.cost.integer_ops / int8 + r.cost.bf16_ops / bf16 + r.cost.f32_ops / c.f32_flops;
      const double bytes_s = r.cost.bytes / c.read_bytes;
      Json row = {{"name", r.name}, {"shape", r.shape}, {"seconds", r.seconds}};
      row["ops"] = r.cost.integer_ops + r.cost.bf16_ops + r.cost.f32_ops;
      row["bytes"] = r.cost.bytes;
      row["bound"] = r.cost.cached ? "cache" : arithmetic_s > bytes_s ? "arithmetic" : "reading";
      row["share"] = r.cost.cached ? Json() : Json(std::max(arithmetic_s, bytes_s) / r.seconds);
      table.push_back(std::move(row));
    }
    return {{"operators", std::move(table)}};
  }

  Cost LinearCost(int64_t tokens, int64_t rows, int64_t cols, const PackedMatrix& form, double extra_bytes) const {
    Cost cost;
    const double ops = 2.0 * static_cast<double>(tokens * rows * cols);
    (quantization_ == compute::Quantization::kNone ? cost.bf16_ops : cost.integer_ops) = ops * Multiplies(form);
    const double token_bytes = quantization_ == compute::Quantization::kNone ? 2.0 : Multiplies(form);
    cost.bytes = static_cast<double>(form.bytes()) + static_cast<double>(tokens * cols) * token_bytes + extra_bytes;
    return cost;
  }

  // Multiplications per element of a token, on average: 16-bit operands are multiplied twice.
  double Multiplies(const PackedMatrix& form) const {
    const compute::TokenFormat f = compute::TokensFor(form, rounding_);
    return f.integer() ? static_cast<double>(f.multiplies(compute::kTokenBlock)) / compute::kTokenBlock : 1;
  }

  PackedTokens Pack(std::unique_ptr<Bytes>* memory, const PackedMatrix& form, int64_t tokens, int64_t cols) {
    *memory = std::make_unique<Bytes>(compute::PackedTokenBytes(tokens, cols));
    const PackedTokens x = compute::PlaceTokens((*memory)->data, compute::TokensFor(form, rounding_), tokens, cols);
    ops_.pack(pool_, Noise(tokens * cols).data(), nullptr, 0.0f, x);
    return x;
  }

  // A product with one matrix per part (q, k, v in one call).
  void Linear(const std::string& name, int64_t tokens, std::span<const int64_t> rows, int64_t cols, bool add) {
    std::vector<Weights> parts;
    int64_t all_rows = 0;
    for (const int64_t r : rows) {
      parts.push_back(Make(r, cols));
      all_rows += r;
    }
    std::unique_ptr<Bytes> memory;
    const PackedTokens x = Pack(&memory, parts[0].At(0), tokens, cols);
    std::vector<float> y(static_cast<size_t>(tokens * all_rows));
    Cost cost =
        LinearCost(tokens, all_rows, cols, parts[0].At(0), static_cast<double>(tokens * all_rows) * (add ? 8 : 4));
    for (size_t p = 1; p < parts.size(); ++p) cost.bytes += static_cast<double>(parts[p].At(0).bytes());
    Time(name, fmt::format("{} x {} x {}", tokens, all_rows, cols), cost, [&](int64_t i) {
      std::vector<compute::LinearOutput> outputs;
      int64_t at = 0;
      for (const Weights& w : parts) {
        outputs.push_back({&w.At(i), nullptr, y.data() + at, all_rows, add});
        at += w.At(0).rows;
      }
      ops_.linear_packed(pool_, x, outputs, Scratch());
    });
  }

  void Gated(int64_t tokens) {
    const Weights gate = Make(kInner, kHidden), up = Make(kInner, kHidden);
    std::unique_ptr<Bytes> in_memory;
    const PackedTokens x = Pack(&in_memory, gate.At(0), tokens, kHidden);
    PackedMatrix down;
    if (quantization_ == compute::Quantization::kNone) {
      compute::PackedFormOf(compute::DType::kBF16, kHidden, kInner, &down);
    } else {
      compute::QuantizedFormOf(quantization_, kHidden, kInner, &down);
    }
    const Bytes out_memory(compute::PackedTokenBytes(tokens, kInner));
    const PackedTokens out = compute::PlaceTokens(out_memory.data, compute::TokensFor(down, rounding_), tokens, kInner);
    std::vector<float> inner(static_cast<size_t>(tokens * kInner));
    Cost cost = LinearCost(tokens, 2 * kInner, kHidden, gate.At(0),
                           static_cast<double>(up.At(0).bytes() + tokens * kInner * 2));
    Time("gate, up, SiLU, rounding", fmt::format("{} x {} x {}", tokens, 2 * kInner, kHidden), cost, [&](int64_t i) {
      ops_.gated_packed(pool_, x, gate.At(i), nullptr, up.At(i), nullptr, inner.data(), out, Scratch());
    });
  }

  void NormAndRound(int64_t tokens) {
    PackedMatrix form;
    if (quantization_ == compute::Quantization::kNone) {
      compute::PackedFormOf(compute::DType::kBF16, kHidden, kHidden, &form);
    } else {
      compute::QuantizedFormOf(quantization_, kHidden, kHidden, &form);
    }
    const Bytes memory(compute::PackedTokenBytes(tokens, kHidden));
    const PackedTokens out = compute::PlaceTokens(memory.data, compute::TokensFor(form, rounding_), tokens, kHidden);
    const std::vector<float> x = Noise(tokens * kHidden), weight(static_cast<size_t>(kHidden), 1.0f);
    Cost cost;
    cost.cached = true;
    cost.f32_ops = 4.0 * static_cast<double>(tokens * kHidden);
    cost.bytes = static_cast<double>(tokens * kHidden) *
                 (4 + (quantization_ == compute::Quantization::kNone ? 2 : Multiplies(form)));
    Time("norm and rounding", fmt::format("{} x {}", tokens, kHidden), cost,
         [&](int64_t) { ops_.pack(pool_, x.data(), weight.data(), 1e-5f, out); });
  }

  void Layer(int64_t tokens) {
    NormAndRound(tokens);
    const int64_t qkv[] = {kHidden, kKvWidth, kKvWidth}, one[] = {kHidden}, vocabulary[] = {kVocab};
    Linear("q, k, v", tokens, qkv, kHidden, false);
    Linear("attention output", tokens, one, kHidden, true);
    Gated(tokens);
    Linear("down", tokens, one, kInner, true);
    if (tokens < 512) Linear("output matrix", tokens, vocabulary, kHidden, false);
  }

  // `items` sequences with `count` new tokens after `context`; enough layers of KV to exceed the caches.
  void Attention(const std::string& name, int32_t items, int32_t context, int32_t count) {
    compute::KvLayer layer;
    layer.block_size = kBlockSize;
    layer.kv_heads = kKvHeads;
    layer.head_dim = kHeadDim;
    const int32_t length = context + count, blocks = (length + kBlockSize - 1) / kBlockSize;
    const int64_t layer_bytes = compute::KvBlockBytes(layer) * blocks * items;
    const int64_t layers = std::clamp<int64_t>((128 << 20) / (2 * layer_bytes), 2, 64);
    const Bytes memory(2 * layer_bytes * layers);
    std::vector<int32_t> table(static_cast<size_t>(blocks * items));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<compute::AttentionItem> work;
    for (int32_t i = 0; i < items; ++i) work.push_back({i * count, context, count, table.data() + i * blocks});
    const int64_t tokens = int64_t{items} * count, width = kHeads * kHeadDim;
    const std::vector<float> q = Noise(tokens * width);
    std::vector<float> out(static_cast<size_t>(tokens * width));
    Cost cost;
    const double pairs =
        static_cast<double>(items) * (static_cast<double>(count) * context + 0.5 * count * (count + 1.0));
    cost.bf16_ops = 4.0 * pairs * static_cast<double>(width);
    cost.bytes = static_cast<double>(items) * length * kKvWidth * 2 * 2 + static_cast<double>(tokens * width) * 8;
    Time(name, fmt::format("{} x {} at {}", items, count, context), cost, [&](int64_t i) {
      compute::KvLayer kv = layer;
      kv.k = memory.data + (i % layers) * 2 * layer_bytes;
      kv.v = memory.data + (i % layers) * 2 * layer_bytes + layer_bytes;
      ops_.attention(pool_, q.data(), width, work, kHeads, kv, {.scale = 0.125f}, out.data(), width, Scratch());
    });
  }

  compute::ThreadPool pool_;
  const compute::Ops& ops_;
  int64_t scratch_bytes_;
  Bytes scratch_;
  compute::Quantization quantization_ = compute::Quantization::kNone;
  Rounding rounding_ = Rounding::kInt8;
  std::vector<Row> rows_;
};

Result<Json> Answer(Operators& operators, const std::string& line) {
  std::istringstream in(line);
  std::string op, word;
  in >> op;
  std::map<std::string, std::string> value;
  while (in >> word) {
    const size_t at = word.find('=');
    if (at != std::string::npos) value[word.substr(0, at)] = word.substr(at + 1);
  }
  if (op == "ceilings") return operators.CeilingsJson();
  if (op == "operators")
    return operators.All(value["format"], value["rounding"] == "mixed"   ? Rounding::kMixed
                                          : value["rounding"] == "int16" ? Rounding::kInt16
                                                                         : Rounding::kInt8);
  return InvalidArgument("unknown command '" + line + "': ceilings or operators");
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const tactus::compute::Ops* ops = tactus::compute::SelectOps();
  if (threads < 1 || ops == nullptr) {
    std::fprintf(stderr, "usage: cpu_operators THREADS    (commands on stdin; TACTUS_KERNELS forces a kernel set)\n");
    return 2;
  }
  tactus::Operators operators(threads, *ops);
  std::printf("{\"ready\": true, \"kernels\": \"%s\"}\n", ops->name);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = tactus::Answer(operators, line);
    std::printf("%s\n", (answer.ok() ? *answer : tactus::Json{{"error", answer.status().ToString()}}).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}
