#include "compute/model/calibrate.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>

#include "base/available_memory.h"
#include "base/rng.h"
#include "compute/kernels/fit/least_squares.h"
#include "compute/kernels/fit/product.h"
#include "compute/model/decoder.h"
#include "compute/model/sampler.h"
#include "compute/tensor/dequantize.h"

namespace tactus::compute {
namespace {

constexpr int64_t kSequences = 16, kLength = 256;  // of the calibration text
constexpr int64_t kTokens = kSequences * kLength;
constexpr int32_t kKvBlock = 16;
constexpr uint64_t kSeed = 1;

const Ops& Scalar() {
  static const Ops* const ops = SelectOps("scalar");
  return *ops;
}

// Integer products have the same bits on every kernel set, so the fastest is used.
void IntegerProducts(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,
                     Workspace scratch) {
  static const Ops* const ops = SelectOps();
  ops->linear_packed(pool, x, outputs, scratch);
}

void Gated(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
           const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out, Workspace scratch) {
  std::vector<float> other(static_cast<size_t>(x.tokens * up.rows));
  const LinearOutput both[] = {{&gate, gate_bias, inner, gate.rows}, {&up, up_bias, other.data(), up.rows}};
  IntegerProducts(pool, x, both, scratch);
  Scalar().activate(pool, Activation::kSilu, inner, other.data(), x.tokens * up.rows, inner);
  Scalar().pack(pool, inner, nullptr, 0.0f, out);
}

// The rounding pass's linear operator: the same bits on every kernel set. Weights are rows of f32.
void Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
            Workspace) {
  for (int64_t t = 0; t < tokens; ++t) {
    float* row = y + t * w.rows;
    if (bias != nullptr) {
      std::copy(bias, bias + w.rows, row);
    } else {
      std::fill(row, row + w.rows, 0.0f);
    }
  }
  AddProduct(pool, {.a = {x, w.cols, 1},
                    .b = {static_cast<const float*>(w.data), 1, w.cols},
                    .c = y,
                    .m = tokens,
                    .k = w.cols,
                    .n = w.rows,
                    .c_stride = w.rows});
}

// The K and V that a layer stores, all calibration tokens.
int64_t KvElements(const Layer& layer) {
  const AttentionBlock* attention = AttentionOf(layer);
  return attention == nullptr || !attention->stores_kv() ? 0 : 2 * kTokens * attention->kv_width();
}

// The matrices that the rounding pass multiplies with: those that it rounds, the routers, and projections of streams.
bool InPass(const PackedSlot& slot) {
  const Role role = slot.tensor.role;
  return IsInt4(slot.form) || IsRouting(role) || role == Role::kStreamIn || role == Role::kStreamOut;
}

bool SharesKv(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(), [](const Layer& layer) {
    const AttentionBlock* attention = AttentionOf(layer);
    return attention != nullptr && !attention->stores_kv();
  });
}

// Buffer sizes of the rounding pass. K and V need one layer, since each layer finishes with them before the next stores
// its own; all layers, where one reads another's.
struct Sizes {
  Sizes(const ModelConfig& config, const PackPlan& plan) {
    for (const PackedSlot& slot : plan.slots) {
      if (!InPass(slot)) continue;
      matrix = std::max(matrix, slot.form.rows * slot.form.cols);
      cols = std::max(cols, slot.form.cols);
    }
    embedding = kTokens * config.hidden_size;
    for (const Layer& layer : config.layers) {
      const int64_t size = KvElements(layer);
      kv = std::max(kv, size);
      all_kv += size;
    }
    if (SharesKv(config)) kv = all_kv;
    input_table = kTokens * config.layer_inputs_width();
    input_projection = config.layer_inputs_width() * config.hidden_size;
  }
  int64_t Elements() const { return 2 * matrix + cols * cols + cols + embedding + kv + input_table + input_projection; }
  int64_t matrix = 0, cols = 0, embedding = 0, kv = 0, all_kv = 0;  // elements
  int64_t input_table = 0, input_projection = 0;                    // of LayerInputs
};

DecoderOptions OptionsOf(const Ops* ops, int64_t tokens, int32_t threads) {
  DecoderOptions options;
  options.ops = ops;
  options.max_tokens = tokens;
  options.max_model_len = kLength;
  options.max_logit_rows = kSequences;
  options.threads = threads;
  return options;
}

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

Status NoMemoryToRound(int64_t bytes) {
  return Status(StatusCode::kResourceExhausted,
                "rounding to int4 by least squares needs " + std::to_string(bytes) +
                    " bytes beside the weights, more than available: allow this process more, copy a --weight-cache "
                    "from a larger machine, or use --quantization int4_nearest, which needs none",
                "quantization");
}

Result<Memory> Allocate(int64_t elements) {
  const int64_t bytes = (elements * 4 + 63) / 64 * 64;
  Memory memory(std::aligned_alloc(64, static_cast<size_t>(bytes)));
  if (memory == nullptr) return NoMemoryToRound(bytes);
  return memory;
}

// K and V of every calibration token, sequence after sequence, from `k` on: KvElements(layer).
KvLayer KvAt(const Layer& layer, float* k) {
  const AttentionBlock* attention = AttentionOf(layer);
  if (attention == nullptr) return {};
  return {k,        k + kTokens * attention->kv_width(),       DType::kF32,
          kKvBlock, static_cast<int32_t>(attention->kv_heads), static_cast<int32_t>(attention->head_dim)};
}

// `count` tokens of every sequence, from position `first` on.
class Batch {
 public:
  Batch(int32_t first, int32_t count) : blocks_(kTokens / kKvBlock) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int32_t s = 0; s < kSequences; ++s) {
      AttentionItem item;
      item.first_token = s * count;
      item.first_position = first;
      item.count = count;
      item.block_table = blocks_.data() + s * kLength / kKvBlock;
      items_.push_back(item);
      for (int32_t p = first; p < first + count; ++p) {
        positions_.push_back(p);
        kv_slots_.push_back(s * kLength + p);
      }
    }
  }
  DecoderBatch Of(const int32_t* ids, std::span<const int32_t> logit_rows) const {
    return {static_cast<int64_t>(positions_.size()), ids, positions_.data(), kv_slots_.data(), items_, logit_rows};
  }

 private:
  std::vector<int32_t> positions_, blocks_;
  std::vector<int64_t> kv_slots_;
  std::vector<AttentionItem> items_;
};

// [kSequences][kLength] tokens that the packed model samples, each sequence from a different first token.
Result<std::vector<int32_t>> WriteTokens(const ModelConfig& config, const CpuWeights& weights, ThreadPool& pool,
                                         const std::function<void(double)>& progress) {
  Ops ops = Scalar();
  ops.linear_packed = IntegerProducts;
  ops.gated_packed = Gated;
  TACTUS_ASSIGN_OR_RETURN(const auto decoder,
                          Decoder::Create(config, weights, OptionsOf(&ops, kSequences, pool.threads())));
  int64_t kv_elements = 0;
  for (const Layer& layer : config.layers) kv_elements += KvElements(layer);
  TACTUS_ASSIGN_OR_RETURN(const Memory memory, Allocate(kv_elements));
  std::vector<KvLayer> kv;
  auto* next = static_cast<float*>(memory.get());
  for (const Layer& layer : config.layers) {
    kv.push_back(KvAt(layer, next));
    next += KvElements(layer);
  }

  std::vector<int32_t> tokens(kTokens), last(kSequences), rows(kSequences);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t s = 0; s < kSequences; ++s) {
    last[static_cast<size_t>(s)] =
        static_cast<int32_t>(UniformAt(kSeed, static_cast<uint64_t>(s), 0) * static_cast<double>(config.vocab_size));
  }
  std::vector<Sampler> samplers(static_cast<size_t>(pool.threads()), Sampler(config.vocab_size));
  std::atomic<bool> finite{true};
  for (int32_t p = 0;; ++p) {
    for (size_t s = 0; s < kSequences; ++s) tokens[s * kLength + static_cast<size_t>(p)] = last[s];
    if (p + 1 == kLength) break;
    decoder->Forward(pool, Batch(p, 1).Of(last.data(), rows), kv);
    float* logits = decoder->Logits(pool, 0, kSequences);
    pool.ParallelFor(kSequences, [&](int64_t s, int32_t thread) {
      Sampler& sampler = samplers[static_cast<size_t>(thread)];
      if (!sampler.Scan({logits + s * config.vocab_size, static_cast<size_t>(config.vocab_size)})) {
        finite = false;
        return;
      }
      sampler.Shape(SamplingParams());
      last[static_cast<size_t>(s)] =
          sampler.Draw(UniformAt(kSeed, static_cast<uint64_t>(s), static_cast<uint64_t>(p) + 1));
    });
    if (!finite) return DataLoss("the model's logits are not finite: its weights cannot be rounded by least squares");
    if (progress) progress(static_cast<double>(p + 1) / kLength);
  }
  return tokens;
}

class Calibration {
 public:
  Calibration(const PackPlan& plan, const ModelConfig& config, WeightSource& source, const ModelWeights& weights,
              ThreadPool& pool, std::byte* memory, const std::function<void(double)>& progress)
      : plan_(plan),
        config_(config),
        source_(source),
        weights_{weights, nullptr},
        pool_(pool),
        memory_(memory),
        progress_(progress),
        sizes_(config, plan) {}

  Status Run(const TensorNames& names) {
    TACTUS_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Write());
    TACTUS_ASSIGN_OR_RETURN(memory_of_pass_, Allocate(sizes_.Elements()));
    Place();
    const std::vector<MatrixPlace> places = MatrixPlaces(config_, names, &weights_);
    for (size_t i = 0; i < places.size(); ++i) {
      MatrixView* view = places[i].view;
      slots_[view] = &plan_.slots[i];
      if (!InPass(plan_.slots[i])) continue;
      if (IsInt4(plan_.slots[i].form)) total_ += WorkOf(plan_.slots[i]);
      *view = {matrix_, DType::kF32, view->rows, view->cols, view->cols * 4};
    }
    EmbedTokens(*slots_.at(&weights_.embedding), tokens);
    if (config_.layer_inputs.size > 0) ReadLayerInputs(tokens);

    Ops ops = Scalar();
    ops.linear = Linear;
    DecoderOptions options = OptionsOf(&ops, kTokens, pool_.threads());
    options.before_linear = [this](const MatrixView& w, const float* x, int64_t count) { Round(w, x, count); };
    TACTUS_ASSIGN_OR_RETURN(const auto decoder, Decoder::Create(config_, weights_, options));
    std::vector<int32_t> ids(kTokens);  // rows of the reduced embedding
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<KvLayer> kv;
    float* next = kv_;
    for (const Layer& layer : config_.layers) {
      kv.push_back(KvAt(layer, next));
      if (SharesKv(config_)) next += KvElements(layer);
    }
    decoder->Forward(pool_, Batch(0, kLength).Of(ids.data(), {}), kv);
    return Status();
  }

 private:
  static constexpr double kWritingPart = 0.25;  // share of the time, about

  static double WorkOf(const PackedSlot& slot) {
    return static_cast<double>(slot.form.rows + slot.form.cols) * static_cast<double>(slot.form.cols);
  }

  Result<std::vector<int32_t>> Write() {
    CpuWeights nearest = weights_;
    PackChoice choice;
    choice.rounding = Rounding::kInt16;
    BindPacked(plan_, config_, choice, memory_, &nearest);
    return WriteTokens(config_, nearest, pool_, [this](double part) { Progress(kWritingPart * part); });
  }

  void Progress(double part) {
    if (progress_) progress_(part);
  }

  void Place() {
    auto* next = static_cast<float*>(memory_of_pass_.get());
    for (auto [buffer, size] : {std::pair{&matrix_, sizes_.matrix},
                                {&errors_, sizes_.matrix},
                                {&inputs_, sizes_.cols * sizes_.cols},
                                {&embedding_, sizes_.embedding},
                                {&kv_, sizes_.kv},
                                {&input_table_, sizes_.input_table},
                                {&input_projection_, sizes_.input_projection},
                                {&importance_, sizes_.cols}}) {
      *buffer = next;
      next += size;
    }
  }

  // Rows [first, first + count) of a slot, as f32.
  void ReadRows(const PackedSlot& slot, int64_t first, int64_t count, float* to) {
    const MatrixView& m = slot.source;
    std::vector<std::byte> scratch(static_cast<size_t>(count * m.row_bytes));
    const std::byte* rows = source_.Rows(slot.name, m, first, count, scratch.data());
    for (int64_t r = 0; r < count; ++r) Dequantize(m.dtype, rows + r * m.row_bytes, m.cols, to + r * m.cols);
  }

  // The rows of a table for the calibration's tokens, in their order.
  MatrixView TokenRows(const PackedSlot& table, const std::vector<int32_t>& tokens, float* to) {
    const int64_t cols = table.form.cols;
    for (size_t t = 0; t < tokens.size(); ++t) {
      ReadRows(table, tokens[t] < table.form.rows ? tokens[t] : 0, 1, to + static_cast<int64_t>(t) * cols);
    }
    return {to, DType::kF32, kTokens, cols, cols * 4};
  }
  void EmbedTokens(const PackedSlot& table, const std::vector<int32_t>& tokens) {
    weights_.embedding = TokenRows(table, tokens, embedding_);
  }
  // Neither the table nor the projection is stored in 4 bits.
  void ReadLayerInputs(const std::vector<int32_t>& tokens) {
    MatrixView &table = weights_.outside[Role::kInputTable], &projection = weights_.outside[Role::kInputProjection];
    table = TokenRows(*slots_.at(&table), tokens, input_table_);
    ReadRows(*slots_.at(&projection), 0, projection.rows, input_projection_);
    projection = {input_projection_, DType::kF32, projection.rows, projection.cols, projection.cols * 4};
  }

  // Called before the pass multiplies x [tokens, w.cols] with w. An expert that no token uses keeps the nearest values.
  void Round(const MatrixView& w, const float* x, int64_t tokens) {
    const PackedSlot& slot = *slots_.at(&w);
    if (!InPass(slot)) return;
    constexpr int64_t kRowsAtOnce = 64;
    pool_.ParallelFor((w.rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t task, int32_t) {
      const int64_t first = task * kRowsAtOnce;
      ReadRows(slot, first, std::min(kRowsAtOnce, w.rows - first), matrix_ + first * w.cols);
    });
    if (!IsInt4(slot.form)) return;
    if (!SharesInput(w)) FactorInputs(x, tokens, w.cols);
    RoundInt4(pool_, inputs_, importance_, slot.form, matrix_, errors_, memory_ + slot.offset);
    source_.Release(slot.source, 0, w.rows);
    done_ += WorkOf(slot);
    Progress(kWritingPart + (1.0 - kWritingPart) * done_ / total_);
  }

  // Whether w has the same input as the matrix rounded before it.
  bool SharesInput(const MatrixView& w) const {
    const Role role = slots_.at(&w)->tensor.role;
    return role == Role::kK || role == Role::kV || role == Role::kUp || role == Role::kExpertUp ||
           role == Role::kSharedUp;
  }

  void FactorInputs(const float* x, int64_t tokens, int64_t cols) {
    for (const float damping : {0.01f, 0.1f, 1.0f}) {
      GramUpper(pool_, x, tokens, cols, inputs_);
      if (compute::FactorInputs(pool_, cols, damping, inputs_, importance_)) return;
    }
    // Inputs that are not finite, or all 0: each weight is rounded separately.
    std::fill(inputs_, inputs_ + cols * cols, 0.0f);
    std::fill(importance_, importance_ + cols, 1.0f);
  }

  const PackPlan& plan_;
  const ModelConfig& config_;
  WeightSource& source_;
  CpuWeights weights_;  // rows; matrices take turns in matrix_
  ThreadPool& pool_;
  std::byte* const memory_;
  const std::function<void(double)>& progress_;
  const Sizes sizes_;
  std::map<const MatrixView*, const PackedSlot*> slots_;
  Memory memory_of_pass_;              // holds all below
  float* matrix_ = nullptr;            // the matrix of the next product
  float* errors_ = nullptr;            // as large as matrix_
  float* inputs_ = nullptr;            // [cols, cols]
  float* importance_ = nullptr;        // [cols]
  float* embedding_ = nullptr;         // [kTokens, hidden]
  float* kv_ = nullptr;                // K and V of one layer, or of all (Sizes)
  float* input_table_ = nullptr;       // [kTokens, layers * LayerInputs::size]
  float* input_projection_ = nullptr;  // [layers * LayerInputs::size, hidden]
  double done_ = 0, total_ = 0;
};

}  // namespace

Status PackCalibrated(const PackPlan& plan, const ModelConfig& config, const TensorNames& names, WeightSource& source,
                      const ModelWeights& weights, ThreadPool& pool, std::byte* memory,
                      const std::function<void(double)>& progress) {
  // First the writing needs K and V of all layers, then the rounding pass its buffers.
  const int64_t available = AvailableMemoryBytes(), kv = Sizes(config, plan).all_kv * 4;
  const int64_t bytes = std::max(
      kv, Sizes(config, plan).Elements() * 4 + DecoderBufferBytes(config, OptionsOf(nullptr, kTokens, pool.threads())));
  if (available >= 0 && bytes > available) return NoMemoryToRound(bytes);
  return Calibration(plan, config, source, weights, pool, memory, progress).Run(names);
}

}  // namespace tactus::compute
