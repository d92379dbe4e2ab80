// One forward pass on the device: the blocks of ModelConfig::layers one after the other, as compute/model/decoder.h on
// a CPU. The residual stream is f32; inputs of products are rounded to the activations' type, and so are q, k, v and
// the values inside a feed-forward block. A pass only enqueues work: it neither allocates nor waits.
//
// One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/cuda/attention_plan.h"
#include "compute/cuda/device_weights.h"
#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/experts.h"
#include "compute/cuda/kernels/rope_store.h"
#include "compute/model/rope.h"

namespace tactus::compute::cuda {

// A step's attention for one shape: the units on the device.
struct DeviceUnits {
  const AttentionUnit* decodes = nullptr;
  const AttentionUnit* chunks = nullptr;
  const AttentionMember* members = nullptr;
  const AttentionMerge* merges = nullptr;
  int64_t num_decodes = 0, num_chunks = 0, num_merges = 0;
};
// The tokens of a step, or those that are left after the last layer that stores K and V: the rows with logits.
struct DeviceTokens {
  int64_t tokens = 0;
  const int32_t* positions = nullptr;  // [tokens]
  const AttentionRow* rows = nullptr;
  std::vector<DeviceUnits> units;  // by AttentionShapes()
};
// A step as the device sees it; pointers to device memory.
struct DeviceBatch {
  const int32_t* ids = nullptr;         // [tokens]
  const int64_t* kv_slots = nullptr;    // [tokens]: block * block_size + offset
  const int32_t* tables = nullptr;      // block tables; AttentionRow::table is an index
  const int32_t* logit_rows = nullptr;  // [last.tokens], ascending rows of `all`
  DeviceTokens all, last;
};

struct DecoderOptions {
  Real type = Real::kBF16;  // of activations
  int64_t max_tokens = 0;
  int64_t max_model_len = 0;
  int64_t max_logit_rows = 0;  // per call of Logits
  int64_t max_items = 0;       // of a step
  int32_t multiprocessors = 1;
  bool batch_invariant = true;  // else products of few tokens have a kernel of their own
};

class Decoder {
 public:
  // `config` and `weights` outlive the decoder. kResourceExhausted: a buffer with its size.
  static Result<std::unique_ptr<Decoder>> Create(const ModelConfig& config, const DeviceWeights& weights, Gemm& gemm,
                                                 const DecoderOptions& options);
  static int64_t BufferBytes(const ModelConfig& config, const DecoderOptions& options);

  // The distinct shapes of the layers' attention, for which a step brings units.
  std::span<const AttentionShape> shapes() const { return shapes_; }
  // Partial results of attention that there is memory for.
  static int64_t PartialSlots(const ModelConfig& config, const DecoderOptions& options);

  void Forward(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv);
  // The same in parts, so that two decoders can take turns (decoder_overlap.h): Begin, then Advance until it is false.
  // Advance enqueues work up to and with the next layer's attention, and records `products_end` (may be null) ahead of
  // the attention, or at the end of the pass. `batch` outlives the pass.
  void Begin(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv);
  bool Advance(Event* products_end);
  // For measurements, over the values of an earlier pass with this batch: all but the attention and the write of K and
  // V, and the attention alone.
  void ForwardProducts(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv);
  void ForwardAttention(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv);
  // Puts the logit rows of another decoder's pass, which has ended in `s`, behind those of this one's.
  void TakeLogitRows(Stream& s, const Decoder& from);
  // Logits [count, vocab] of rows [first, first + count) of the last Forward's logit rows, valid until the next call.
  float* Logits(Stream& s, int64_t first, int64_t count);
  const float* logits() const { return logits_; }  // of the last call of Logits
  int64_t max_logit_rows() const { return options_.max_logit_rows; }

 private:
  struct Pass {
    Stream& s;
    const DeviceBatch& batch;
    std::span<const KvPages> kv;
    const DeviceTokens* tokens = nullptr;
    bool attends = true;          // else it stores no K and V either: another pass may read them
    size_t layer = 0, block = 0;  // of the layer
    bool attended = false;        // the block's attention is enqueued, the rest of the block is not
    const float* in = nullptr;    // the stream that the block reads
    bool waits = false;           // the block's branch goes to input_, for the next block's `joint`
    bool keeps_input = false;     // input_ has a stream or a branch that is read after the block
    int64_t count() const { return tokens->tokens; }
  };
  struct Output {
    float* y = nullptr;
    bool adds = false;
  };
  // Rows of q, k and v.
  struct Heads {
    void *q = nullptr, *k = nullptr, *v = nullptr;
    int64_t q_stride = 0, kv_stride = 0;
  };
  struct Product {
    const void* x = nullptr;
    const DeviceMatrix* w = nullptr;
    const float* bias = nullptr;
    void* y = nullptr;
    Real y_type = Real::kF32;
    bool adds = false;
  };
  Decoder(const ModelConfig& config, const DeviceWeights& weights, Gemm& gemm, const DecoderOptions& options);
  Status Allocate();
  Status PrepareProducts();
  void Multiply(const Pass& pass, const Product& product);
  const void* Round(const Pass& pass, const NormSpec& norm, const DeviceLayer& weights, const float* x, int64_t tokens);
  void Norm(const Pass& pass, const NormSpec& norm, const DeviceLayer& weights, const float* x, int64_t tokens,
            void* out, Real type);
  void Embed(Pass& pass);
  void AddTokenInputs(Pass& pass);
  bool BeginBlock(Pass& pass, const Layer& layer, Event* products_end);
  void EndBlock(Pass& pass, const LayerBlock& b);
  void AddBranch(const Pass& pass, const LayerBlock& b);
  void KeepLogitRows(Pass& pass, int64_t q_width);
  void StartAttention(Pass& pass, const NormSpec& norm, const AttentionBlock& a);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const AttentionBlock& a);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const GatedFeedForwardBlock& f);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const FeedForwardBlock& f);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const ExpertsBlock& e);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const LayerInputBlock& f);
  void Run(Pass& pass, const NormSpec& norm, const Output& out, const LowRankBlock& b);
  void Run(Pass&, const NormSpec&, const Output&, const StreamsBlock&) {}  // BeginBlock runs it
  Heads MultiplyHeads(const Pass& pass, const AttentionBlock& a, const void* x);
  void Attend(const Pass& pass, const AttentionBlock& a, const KvPages& kv);
  const void* MultiplyGated(const Pass& pass, Fusion fusion, const GatedFeedForwardBlock& f, const void* x,
                            void* gate_up);
  void SplitStreams(const Pass& pass);
  void MergeStreams(const Pass& pass);
  void StreamCoefficients(const Pass& pass, const StreamsBlock& b, Role role);
  void Change(const Pass& pass, const StreamsBlock& b);
  void ExpertProducts(const Pass& pass, const ExpertsBlock& e, const void* x);

  const ModelConfig& config_;
  const DeviceWeights& weights_;
  Gemm& gemm_;
  const DecoderOptions options_;
  const size_t last_stored_;
  std::vector<AttentionShape> shapes_;
  std::vector<size_t> shape_of_layer_;

  std::optional<Pass> pass_;  // that Begin began
  int64_t logit_rows_ = 0;    // of the last pass

  std::vector<DeviceMemory> memory_;
  float *hidden_ = nullptr, *spare_hidden_ = nullptr;  // [max_tokens, hidden]; swapped by KeepLogitRows
  float* hidden_now_ = nullptr;                        // one of the two
  float *normed_ = nullptr, *branch_ = nullptr;        // [max_tokens, hidden]
  float *input_ = nullptr, *spare_input_ = nullptr, *input_now_ = nullptr;
  void* x_ = nullptr;  // [max_tokens, widest input], input of products
  void *qkv_ = nullptr, *spare_q_ = nullptr, *mixed_ = nullptr;
  const void* q_now_ = nullptr;  // rows of q, q_stride_now_ values apart
  int64_t q_stride_now_ = 0;
  void* gate_up_ = nullptr;  // [max_tokens or rows of experts, 2 * inner]
  float *layer_inputs_ = nullptr, *spare_layer_inputs_ = nullptr, *layer_inputs_now_ = nullptr;
  float* layer_input_ = nullptr;  // [max_tokens, size], of one layer
  float *streams_ = nullptr, *spare_streams_ = nullptr, *streams_now_ = nullptr;
  float *modalities_ = nullptr, *coefficients_ = nullptr;
  float* logits_ = nullptr;    // [max_logit_rows, vocab]
  float* partials_ = nullptr;  // AttentionCall::partials
  float *router_ = nullptr, *shared_logits_ = nullptr, *expert_out_ = nullptr, *shared_out_ = nullptr;
  void* shared_gate_up_ = nullptr;
  ExpertRowsView expert_rows_;
  float *inv_freq_ = nullptr, *local_inv_freq_ = nullptr;
  std::optional<Rope> rope_, local_rope_;
  float* slopes_ = nullptr;              // [layers, heads] where layers have ALiBi
  std::vector<int64_t> slope_of_layer_;  // first slope; -1: none
};

}  // namespace tactus::compute::cuda
