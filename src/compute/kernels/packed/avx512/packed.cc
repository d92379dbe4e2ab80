// The operators over packed weights of sets with AVX-512: distributes panels, finishes their sums and rounds the next
// operator's input. The products themselves: vnni.cc, bf16.cc, unrounded.cc, ../amx/packed.cc.
//
// A task is a panel, or a few small ones, times up to kTaskRows rows of tokens; its sums are on its stack. Tasks of one
// panel are adjacent, so that its weights are read from memory once.
#include "compute/kernels/packed/avx512/packed.h"

#include "compute/kernels/packed/avx512/round.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/rows/row_kernel.h"

namespace tactus::compute {
namespace {

constexpr int64_t kTaskRows = 192;  // token rows per task; their sums are 48 KiB
constexpr size_t kOutputsMax = 8;   // per call
constexpr double kTaskMaxNs = 150e3, kTaskMinNs = 4e3;

// For products without an instruction on this CPU.
const Ops& FallbackOps() {
#if defined(TACTUS_HAS_KERNELS_AVX2)
  return Avx2Ops();
#else
  return PortableOps();  // not reached: RunnableOps includes this set only where no product needs another
#endif
}

bool Multiplies(const PackedTokens& x) {
  if (x.format.values == TokenValues::kF32) return true;
  return x.format.integer() ? CpuHasAvx512Vnni() : CpuHasAvx512Bf16();
}

void SumPanel(const PanelRun& run) {
  if (run.x->format.values == TokenValues::kF32) return SumPanelUnrounded(run);
  run.x->format.integer() ? SumPanelVnni(run) : SumPanelBf16(run);
}

constexpr Multiplier kVectors = {SumPanel};

bool ByTiles(const Multiplier& by, const PackedTokens& x, const PackedMatrix& w) {
  return by.by_tiles != nullptr && by.by_tiles(x, w);
}
int64_t TileRows(const Multiplier& by, const PackedTokens& x, const PackedMatrix& w) {
  return ByTiles(by, x, w) ? by.tile_rows : 1;
}
// Bytes of tokens per pass (TaskOrder). Of vectors: well within a shared cache. With wide groups tiles read twice as
// many.
int64_t PassBytes(const Multiplier& by, const PackedTokens& x, const PackedMatrix& w) {
  if (!ByTiles(by, x, w)) return int64_t{4} << 20;
  return by.tile_pass_bytes / (x.format.wide > 0 ? 2 : 1);
}

// How a product is divided: groups of `panels_each` panels times token blocks.
struct Cut {
  int64_t token_blocks = 1, panels_each = 1;
};

// `panel_ns`: approximate time of one panel for all rows; only limits the length of tasks.
Cut CutWork(int64_t panels, int64_t rows, double panel_ns, int32_t threads, int64_t tile_rows) {
  Cut cut;
  cut.token_blocks = CeilDiv(rows, kTaskRows);
  const auto by_time = static_cast<int64_t>(panel_ns / kTaskMaxNs) + 1;
  const int64_t by_threads = panels > 0 ? CeilDiv(int64_t{4} * threads, panels) : 1;
  // More blocks only while each has a few full tiles.
  const int64_t most = MaxOf(1, MinOf(rows / (4 * kTileTokens), rows / tile_rows));
  const int64_t wanted = MinOf(MaxOf(by_time, by_threads), most);
  cut.token_blocks = MaxOf(cut.token_blocks, wanted);
  if (cut.token_blocks == 1) {
    const auto small = static_cast<int64_t>(kTaskMinNs / panel_ns);
    cut.panels_each = MaxOf(1, MinOf(small, panels / (int64_t{8} * threads)));
  }
  return cut;
}

// The panels and tokens of each task. Every panel is multiplied with all tokens of a pass before the next panel, so
// that weights are read from memory once per pass, and a pass's tokens, read for every panel, stay in the caches.
class TaskOrder {
 public:
  struct Place {
    int64_t group, block;  // group: groups() for tasks beyond the last
  };
  TaskOrder(const PackedTokens& x, int64_t groups, int64_t blocks, int64_t pass_bytes)
      : groups_(groups), blocks_(blocks) {
    const int64_t bytes = CeilDiv(x.rows(), blocks) * x.stride;
    blocks_each_ = MinOf(blocks, MaxOf(1, pass_bytes / bytes));
  }
  int64_t tasks() const { return groups_ * blocks_; }
  Place At(int64_t task) const {
    if (task >= tasks()) return {groups_, 0};
    const int64_t pass = task / (groups_ * blocks_each_), first = pass * blocks_each_;
    const int64_t count = MinOf(blocks_each_, blocks_ - first), in_pass = task - first * groups_;
    return {in_pass / count, first + in_pass % count};
  }

 private:
  int64_t groups_, blocks_, blocks_each_ = 1;
};

double PanelNs(const PackedMatrix& w, const PackedTokens& x) {
  constexpr double kBytesPerNs = 20, kF32PerNs = 180, kBf16PerNs = 450, kInt8PerNs = 850;
  const double operations = 2.0 * static_cast<double>(kPanelRows * x.tokens * x.format.multiplies(w.cols));
  const double arithmetic = operations / (x.format.integer()                      ? kInt8PerNs
                                          : x.format.values == TokenValues::kBF16 ? kBf16PerNs
                                                                                  : kF32PerNs);
  const double reading = static_cast<double>(w.panel_bytes) / kBytesPerNs;
  return arithmetic > reading ? arithmetic : reading;
}

// The upper bytes of a row's wide groups in their columns.
void SpreadUpper(const PackedTokens& x, int64_t row, std::byte* to) {
  const WideGroup* wide = x.wide + row * x.wide_count();
  const int64_t padded = PackedTokens::PaddedCols(x.cols);
  for (int64_t c = 0; c < padded; c += 64) _mm512_store_si512(to + c, _mm512_setzero_si512());
  for (int64_t c = 0; c < padded; c += x.format.wide, ++wide)
    std::memcpy(to + c + wide->first, wide->upper, kWideColumns);
}

// The terms of every matrix of a product (one set where their blocks and zeros agree), in the caller's workspace.
class ProductTerms {
 public:
  ProductTerms(const Multiplier& by, ThreadPool& pool, const PackedTokens& x, Workspace scratch)
      : by_(by), pool_(pool), x_(x), scratch_(scratch) {}

  TokenTerms Of(const PackedMatrix& w) {
    if (!x_.format.integer()) return {};
    for (size_t i = 0; i < made_; ++i) {
      const PackedMatrix& m = *matrices_[i];
      if (m.block == w.block && m.zero == w.zero && m.has_minimum == w.has_minimum && m.has_zeros == w.has_zeros)
        return terms_[i];
    }
    TokenTerms terms = PlaceTerms(Take(TermBytes(x_, w)), x_, w);
    if (x_.format.wide > 0 && ByTiles(by_, x_, w)) terms.upper = Upper();
    constexpr int64_t kSumsPerTask = 32768;
    const int64_t per_task = MaxOf(1, kSumsPerTask / x_.sum_count());
    const int64_t rows = x_.rows();
    pool_.ParallelFor(CeilDiv(rows, per_task), [&](int64_t task, int32_t) {
      FillTerms(x_, w, task * per_task, MinOf(per_task, rows - task * per_task), terms);
    });
    matrices_[made_] = &w;
    terms_[made_++] = terms;
    return terms;
  }

 private:
  std::byte* Take(int64_t bytes) {
    std::byte* at = AlignedWorkspace(scratch_, used_ + bytes) + used_;
    used_ += bytes;
    return at;
  }
  std::byte* Upper() {
    if (upper_ != nullptr) return upper_;
    upper_ = Take(x_.rows() * x_.stride);
    pool_.ParallelFor(x_.rows(), [&](int64_t row, int32_t) { SpreadUpper(x_, row, upper_ + row * x_.stride); });
    return upper_;
  }

  const Multiplier& by_;
  ThreadPool& pool_;
  const PackedTokens& x_;
  const Workspace scratch_;
  int64_t used_ = 0;
  std::byte* upper_ = nullptr;
  size_t made_ = 0;
  const PackedMatrix* matrices_[kOutputsMax] = {};
  TokenTerms terms_[kOutputsMax];
};

// A task's tokens, and their rows. Blocks begin at multiples of `whole` rows, which divides kTaskRows and kGatedRows.
struct TaskTokens {
  int64_t first, end, first_row, rows;
  TaskTokens(const PackedTokens& x, int64_t block, int64_t blocks, int64_t whole)
      : first(Start(x, block, blocks, whole)),
        end(Start(x, block + 1, blocks, whole)),
        first_row(first * x.format.parts),
        rows((end - first) * x.format.parts) {}

 private:
  static int64_t Start(const PackedTokens& x, int64_t block, int64_t blocks, int64_t whole) {
    const int64_t tile = MaxOf(1, whole / x.format.parts), tiles = CeilDiv(x.tokens, tile);
    return MinOf(x.tokens, tiles * block / blocks * tile);
  }
};

// Converts a panel's sums to values: the scale of rows with one block, bias.
struct Finish {
  const float* sums;
  const float* scales;  // [64]; null: already applied
  const float* bias;    // of this panel's rows; null: none
  int64_t rows;         // the matrix's rows in this panel
  int64_t parts;        // parts per token

  Finish(const PanelRun& run, const float* bias_or_null)
      : sums(run.sums),
        scales(nullptr),
        bias(nullptr),
        rows(MinOf(kPanelRows, run.w->rows - run.panel * kPanelRows)),
        parts(run.x->format.parts) {
    if (run.x->format.integer() && run.w->block == 0) {
      const std::byte* end = run.w->data + (run.panel + 1) * run.w->panel_bytes;
      scales = reinterpret_cast<const float*>(end) - kPanelRows;
    }
    if (bias_or_null != nullptr) bias = bias_or_null + run.panel * kPanelRows;
  }

  __mmask16 Lanes(int j) const { return Simd::LaneLess(static_cast<int>(rows) - 16 * j); }

  // Vector j of the token, counted from the run's first.
  __attribute__((always_inline)) __m512 Value(int64_t token, int j) const {
    const float* from = sums + token * parts * kPanelRows + 16 * j;
    __m512 v = _mm512_load_ps(from);
    if (parts == 2) v = _mm512_add_ps(v, _mm512_load_ps(from + kPanelRows));
    if (scales != nullptr) v = _mm512_mul_ps(v, _mm512_load_ps(scales + 16 * j));
    if (bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(Lanes(j), bias + 16 * j));
    return v;
  }
};

void StoreOutput(const LinearOutput& out, const PanelRun& run, const TaskTokens& tokens) {
  const Finish finish(run, out.bias);
  for (int64_t t = tokens.first; t < tokens.end; ++t) {
    float* y = out.y + t * out.y_stride + run.panel * kPanelRows;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __mmask16 lanes = finish.Lanes(j);
      __m512 v = finish.Value(t - tokens.first, j);
      if (out.add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + 16 * j), v);
      _mm512_mask_storeu_ps(y + 16 * j, lanes, v);
    }
  }
}

// Panel `index` counted over all outputs.
struct PanelOf {
  const LinearOutput* output = nullptr;
  int64_t panel = 0;
};
PanelOf FindPanel(std::span<const LinearOutput> outputs, int64_t index) {
  for (const LinearOutput& o : outputs) {
    if (index < o.w->panels()) return {&o, index};
    index -= o.w->panels();
  }
  return {};
}
const std::byte* PanelData(std::span<const LinearOutput> outputs, int64_t index) {
  const PanelOf at = FindPanel(outputs, index);
  return at.output == nullptr ? nullptr : at.output->w->data + at.panel * at.output->w->panel_bytes;
}

}  // namespace

void LinearPackedBy512(const Multiplier& by, ThreadPool& pool, const PackedTokens& x,
                       std::span<const LinearOutput> outputs, Workspace scratch) {
  if (x.tokens <= 0) return;
  if (!Multiplies(x)) return FallbackOps().linear_packed(pool, x, outputs, scratch);
  if (outputs.empty()) return;
  if (outputs.size() > kOutputsMax) {
    LinearPackedBy512(by, pool, x, outputs.first(kOutputsMax), scratch);
    return LinearPackedBy512(by, pool, x, outputs.subspan(kOutputsMax), scratch);
  }
  int64_t panels = 0;
  double ns = 0;
  for (const LinearOutput& o : outputs) {
    panels += o.w->panels();
    ns = PanelNs(*o.w, x);
  }
  const int64_t tile_rows = TileRows(by, x, *outputs.front().w);
  const Cut cut = CutWork(panels, x.rows(), ns, pool.threads(), tile_rows);
  ProductTerms product_terms(by, pool, x, scratch);
  TokenTerms terms[kOutputsMax];
  for (size_t i = 0; i < outputs.size(); ++i) terms[i] = product_terms.Of(*outputs[i].w);
  const TaskOrder order(x, CeilDiv(panels, cut.panels_each), cut.token_blocks, PassBytes(by, x, *outputs.front().w));
  pool.ParallelFor(order.tasks(), [&](int64_t task, int32_t) {
    alignas(64) float sums[kTaskRows * kPanelRows];
    const auto [group, block] = order.At(task);
    const TaskTokens tokens(x, block, cut.token_blocks, tile_rows);
    // Threads take tasks roughly in turn: this thread's next task.
    const int64_t next_group = order.At(task + pool.threads()).group;
    const int64_t last = MinOf(panels, (group + 1) * cut.panels_each) - 1;
    for (int64_t p = group * cut.panels_each; p <= last; ++p) {
      const PanelOf at = FindPanel(outputs, p);
      PanelRun run;
      run.w = at.output->w;
      run.x = &x;
      run.terms = terms[at.output - outputs.data()];
      run.panel = at.panel;
      run.first_row = tokens.first_row;
      run.rows = tokens.rows;
      run.out = at.output->y + tokens.first * at.output->y_stride + at.panel * kPanelRows;
      run.out_stride = at.output->y_stride;
      run.out_tokens = tokens.end - tokens.first;
      run.next = PanelData(outputs, p < last ? p + 1 : next_group * cut.panels_each);
      run.sums = sums;
      by.sum_panel(run);
      StoreOutput(*at.output, run, tokens);
    }
  });
}

namespace {

constexpr int64_t kGatedRows = kTaskRows / 2;

// One task of the gated product computes whole blocks of `out`: one panel each of gate and up, or two where a token
// block spans two panels.
struct Gated {
  const Multiplier& by;
  const PackedTokens& x;
  const PackedMatrix& gate;
  const float* gate_bias;
  const PackedMatrix& up;
  const float* up_bias;
  const PackedTokens& out;
  TokenTerms gate_terms, up_terms;
  int64_t each;  // panels per task

  // silu(gate) * up of a panel for some tokens: 64 columns of `values`, whose rows have each * 64. `after`: the panel
  // that this thread will probably read next.
  void Panel(int64_t panel, int64_t after, const TaskTokens& tokens, float* values) const {
    alignas(64) float gate_sums[kGatedRows * kPanelRows], up_sums[kGatedRows * kPanelRows];
    PanelRun run;
    run.x = &x;
    run.panel = panel;
    run.first_row = tokens.first_row;
    run.rows = tokens.rows;
    run.w = &gate;
    run.terms = gate_terms;
    run.next = up.data + panel * up.panel_bytes;
    run.sums = gate_sums;
    by.sum_panel(run);
    const Finish gates(run, gate_bias);
    run.w = &up;
    run.terms = up_terms;
    run.next = after < gate.panels() ? gate.data + after * gate.panel_bytes : nullptr;
    run.sums = up_sums;
    by.sum_panel(run);
    const Finish ups(run, up_bias);
    for (int64_t t = 0; t < tokens.end - tokens.first; ++t) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512 g = gates.Value(t, j);
        const __m512 denominator = _mm512_add_ps(_mm512_set1_ps(1.0f), Exp(_mm512_sub_ps(_mm512_setzero_ps(), g)));
        const __m512 v = _mm512_mul_ps(_mm512_div_ps(g, denominator), ups.Value(t, j));
        _mm512_store_ps(values + t * each * kPanelRows + 16 * j, _mm512_maskz_mov_ps(gates.Lanes(j), v));
      }
    }
  }

  // Group `group` of panels for some tokens.
  void Task(int64_t group, int64_t next_group, const TaskTokens& tokens) const {
    alignas(64) float values[kGatedRows * 2 * kPanelRows];
    const int64_t first = tokens.first, end = tokens.end;
    const int64_t columns = each * kPanelRows, column = group * columns, panels = gate.panels();
    for (int64_t i = 0; i < each; ++i) {
      const int64_t panel = group * each + i;
      float* to = values + i * kPanelRows;
      if (panel < panels) {
        Panel(panel, i + 1 < each ? panel + 1 : next_group * each, tokens, to);
        continue;
      }
      for (int64_t t = 0; t < end - first; ++t) {  // beyond the matrix: the rest of a token's last block
        for (int j = 0; j < 4; ++j) _mm512_store_ps(to + t * columns + 16 * j, _mm512_setzero_ps());
      }
    }
    for (int64_t t = first; t < end; ++t) {
      const float* from = values + (t - first) * columns - column;
      RoundColumns(t, column, columns, out, [from](int64_t c) { return _mm512_load_ps(from + c); });
    }
    // Rows are padded to 128 columns, half of which may be beyond the last panel.
    const int64_t done = column + columns, padded = PackedTokens::PaddedCols(out.cols);
    if (group * each + each < panels || done >= padded) return;
    for (int64_t t = first; t < end; ++t) {
      RoundColumns(t, done, padded - done, out, [](int64_t) { return _mm512_setzero_ps(); });
    }
  }
};

}  // namespace

void GatedPackedBy512(const Multiplier& by, ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate,
                      const float* gate_bias, const PackedMatrix& up, const float* up_bias, float* inner,
                      const PackedTokens& out, Workspace scratch) {
  if (x.tokens <= 0) return;
  if (!Multiplies(x)) return FallbackOps().gated_packed(pool, x, gate, gate_bias, up, up_bias, inner, out, scratch);
  const int64_t each = out.format.integer() ? kTokenBlock / kPanelRows : 1;
  const int64_t groups = CeilDiv(gate.panels(), each);
  const double ns = static_cast<double>(each) * (PanelNs(gate, x) + PanelNs(up, x));
  const int64_t tile_rows = TileRows(by, x, gate);
  const int64_t token_blocks =
      MaxOf(CutWork(groups, x.rows(), ns, pool.threads(), tile_rows).token_blocks, CeilDiv(x.rows(), kGatedRows));
  ProductTerms terms(by, pool, x, scratch);
  const Gated gated = {by, x, gate, gate_bias, up, up_bias, out, terms.Of(gate), terms.Of(up), each};
  const TaskOrder order(x, groups, token_blocks, PassBytes(by, x, gate));
  pool.ParallelFor(order.tasks(), [&](int64_t task, int32_t) {
    const auto [group, block] = order.At(task);
    gated.Task(group, order.At(task + pool.threads()).group, TaskTokens(x, block, token_blocks, tile_rows));
  });
}

void LinearPackedAvx512(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,
                        Workspace scratch) {
  LinearPackedBy512(kVectors, pool, x, outputs, scratch);
}

void GatedPackedAvx512(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                       const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,
                       Workspace scratch) {
  GatedPackedBy512(kVectors, pool, x, gate, gate_bias, up, up_bias, inner, out, scratch);
}

namespace {

// 1 / sqrt(mean(x^2) + eps), summed as in rms_norm.
float PackInverseRms(const float* x, int64_t cols, float eps) {
  __m512 acc[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
  int64_t i = 0;
  for (; i + 64 <= cols; i += 64) {
    for (int j = 0; j < 4; ++j) {
      const __m512 v = _mm512_loadu_ps(x + i + 16 * j);
      acc[j] = _mm512_fmadd_ps(v, v, acc[j]);
    }
  }
  for (; i < cols; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(Simd::LaneLess(static_cast<int>(MinOf(16, cols - i))), x + i);
    acc[0] = _mm512_fmadd_ps(v, v, acc[0]);
  }
  const float sum = Simd::Sum(_mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(cols) + eps);
}

}  // namespace

void PackAvx512(ThreadPool& pool, const float* x, const float* norm_weight, float eps, const PackedTokens& out) {
  const int64_t cols = out.cols, padded = PackedTokens::PaddedCols(cols);
  ForRows(pool, out.tokens, cols, [&](int64_t t) {
    const float* row = x + t * cols;
    const auto load = [cols](const float* from, int64_t c) {
      return c + 16 <= cols ? _mm512_loadu_ps(from + c)
                            : _mm512_maskz_loadu_ps(Simd::LaneLess(static_cast<int>(MaxOf(0, cols - c))), from + c);
    };
    if (norm_weight == nullptr) {
      RoundColumns(t, 0, padded, out, [&](int64_t c) { return load(row, c); });
      return;
    }
    const __m512 inverse = _mm512_set1_ps(PackInverseRms(row, cols, eps));
    RoundColumns(t, 0, padded, out,
                 [&](int64_t c) { return _mm512_mul_ps(_mm512_mul_ps(load(row, c), inverse), load(norm_weight, c)); });
  });
}

void EmbedPackedAvx512(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table, float* x) {
  pool.ParallelFor(tokens, [&](int64_t t, int32_t) { UnpackRow(table, ids[t], x + t * table.cols); });
}

}  // namespace tactus::compute
