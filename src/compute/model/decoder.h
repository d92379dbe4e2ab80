// One forward pass of a decoder-only transformer (Touvron et al., "Llama 2", 2023, and its family) over a hybrid batch
// of prompt chunks and decodes. Linear operators run once over all tokens, so each weight is read once per step for any
// number of sequences. Attention runs per sequence over the paged KV cache. Logits are computed for the requested rows
// only.
//
// Packed weights run the serving pass (forward.cc: a few fused operators per layer). Weights as rows run the reference
// pass (reference_forward.cc: the plain sequence of operators), which only --dtype float32 and tests use.
//
// Both passes run the blocks of ModelConfig::layers one after the other. A model's features (biases, norms, windows,
// RoPE scaling) are data of the blocks: this code depends on no architecture's name.
//
// Owns its activation buffers, sized once for max_tokens: a pass allocates nothing. KV memory and block tables belong
// to compute/exec, sampling to compute/model/sampler.h. One thread at a time; the pool's threads do the work.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/config/config.h"
#include "compute/kernels/ops.h"
#include "compute/model/expert_products.h"
#include "compute/model/expert_rows.h"
#include "compute/model/for_tokens.h"
#include "compute/model/operator_profile.h"
#include "compute/model/rope.h"
#include "compute/model/whole_experts.h"
#include "compute/packing/packed_weights.h"

namespace tactus::compute {

struct DecoderOptions {
  const Ops* ops = nullptr;
  int64_t max_tokens = 0;  // of a step
  int64_t max_model_len = 0;
  int64_t max_logit_rows = 0;  // per call of Logits; see DecoderLogitRows
  int32_t threads = 1;
  // The reference pass calls it before it multiplies x [tokens, w.cols] with w, one of the weights' matrices; it may
  // change the values of w. Null: not called.
  std::function<void(const MatrixView& w, const float* x, int64_t tokens)> before_linear;
};

// One step's tokens, sequence after sequence. Arrays are [tokens] unless stated otherwise.
struct DecoderBatch {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;  // each in [0, vocab)
  const int32_t* positions = nullptr;
  const int64_t* kv_slots = nullptr;  // block id * block_size + position % block_size
  std::span<const AttentionItem> items;
  std::span<const int32_t> logit_rows;  // token rows, ascending, each the last rows of its item; at most max_tokens
};

// The input of a packed product, and the RMSNorm on its way into packed tokens; null weight: none.
struct PackedInput {
  const float* x = nullptr;
  const float* norm_weight = nullptr;
  float eps = 0.0f;
};

class Decoder {
 public:
  // `config` and `weights` outlive the decoder. kResourceExhausted, with the size, when the system refuses memory.
  static Result<std::unique_ptr<Decoder>> Create(const ModelConfig& config, const CpuWeights& weights,
                                                 const DecoderOptions& options);

  // Runs all layers and keeps the final-normed hidden states of batch.logit_rows. `kv`: one entry per layer.
  void Forward(ThreadPool& pool, const DecoderBatch& batch, std::span<const KvLayer> kv);

  // Logits [count, vocab] of the last Forward's logit_rows[first, first + count); count <= max_logit_rows. The caller
  // may change them; they are valid until the next call.
  float* Logits(ThreadPool& pool, int64_t first, int64_t count);

  // Adds every operator's time and cost to *profile from now on (packed weights only); null: stops.
  void set_profile(OperatorProfile* profile) { profile_ = profile; }

  int64_t max_logit_rows() const { return options_.max_logit_rows; }

 private:
  Decoder(const ModelConfig& config, const CpuWeights& weights, const DecoderOptions& options);
  // A forward pass: the tokens that are still computed, attention's items for them, and the block that runs.
  struct Pass {
    ThreadPool& pool;
    const DecoderBatch& batch;
    std::span<const KvLayer> kv;
    int64_t tokens = 0;
    std::span<const AttentionItem> items;
    const int32_t* positions = nullptr;  // [tokens]
    size_t layer = 0;
    const float* in = nullptr;  // [tokens, hidden], the stream that the block reads
    bool waits = false;         // the block's branch goes to input_, for the next block's `joint`
    bool keeps_input = false;   // input_ has a stream or a branch that is read after the block
  };
  void Embed(Pass& pass);
  void AddTokenInputs(Pass& pass);
  void GatherLayerInputs(const Pass& pass, int64_t size);
  // Calls run(block) for each block of the layers, with pass.in set and the stream of a parallel block kept.
  template <class Run>
  void ForBlocks(Pass& pass, Run run);
  void Norm(ThreadPool& pool, const NormSpec& norm, const LayerWeights& weights, const float* x, int64_t tokens,
            float* out);
  void AddBranch(const Pass& pass, const LayerBlock& block);
  void ScaleStream(const Pass& pass, const LayerBlock& block);
  void NormQk(const Pass& pass, const AttentionBlock& block);
  RopeTable RopeOf(const AttentionBlock& block) const;
  AttentionSpec SpecOf(const AttentionBlock& block, size_t layer) const;
  void ForwardPacked(Pass& pass);
  // Run a block: its sum goes to `out`, [tokens, hidden], added to what is there if `adds`.
  struct BlockOutput {
    float* y = nullptr;
    bool adds = false;
  };
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const AttentionBlock& block);
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const GatedFeedForwardBlock& block);
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const FeedForwardBlock& block);
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const ExpertsBlock& block);
  // `x` as the input of products: with the norm on the way where they apply it, else normed into normed_.
  PackedInput InputOf(ThreadPool& pool, const NormSpec& norm, const LayerWeights& weights, const float* x,
                      int64_t tokens);
  void PackedLinear(ThreadPool& pool, DecoderOperator op, const PackedInput& in, int64_t tokens, int64_t cols,
                    std::span<const LinearOutput> outputs, Rounding rounding);
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const LayerInputBlock& block);
  void Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const LowRankBlock& block);
  void Packed(Pass&, const NormSpec&, const BlockOutput&, const StreamsBlock&) {}  // ForBlocks runs it
  void PackedQkv(Pass& pass, const PackedInput& in, const AttentionBlock& block);
  // out = the product of the block's inner values in gate_, [tokens, inner], with its matrix `role`.
  void PackedDown(const Pass& pass, Role role, int64_t inner, const BlockOutput& out);
  void PackedDown(const Pass& pass, Role role, const PackedTokens& x, const BlockOutput& out);
  float* PackedLogits(ThreadPool& pool, int64_t first, int64_t count);
  void Round(ThreadPool& pool, const PackedInput& in, const PackedTokens& out);
  template <class Work, class Cost>
  void Timed(DecoderOperator op, Work work, Cost cost);
  void KeepLogitRows(Pass& pass, int64_t q_width);

  void ForwardReference(Pass& pass);
  float* ReferenceLogits(ThreadPool& pool, int64_t first, int64_t count);
  void Reference(const Pass& pass, const AttentionBlock& block);
  void Reference(const Pass& pass, const GatedFeedForwardBlock& block);
  void Reference(const Pass& pass, const FeedForwardBlock& block);
  void Reference(const Pass& pass, const ExpertsBlock& block);
  // Chooses each token's experts by router_ and groups the tokens; shared_weight_ becomes the shared expert's weight.
  void ChooseExperts(const Pass& pass, const ExpertsBlock& block);
  // The rows' inputs where experts weigh them: x [tokens, hidden] times the rows' weights, to expert_out_.
  void WeighInputs(const Pass& pass, const float* x);
  // Gate or up of the experts and of the shared one. rounds: the tokens are rounded for it; else they already are.
  struct ExpertInput {
    Role role, bias, shared;
    float* y = nullptr;  // [rows, inner], then [tokens, shared_inner]
    bool rounds = true;
  };
  void AddExpertInputs(const Pass& pass, const ExpertsBlock& block, const PackedInput& in, const ExpertInput& part);
  // Computes the experts as whole units if they suffice for the threads; false: it has done nothing.
  bool ExpertsWholePacked(const Pass& pass, const ExpertsBlock& block, const PackedInput& in);
  void ExpertsUpPacked(const Pass& pass, const ExpertsBlock& block, const PackedInput& in);
  void ExpertsDownPacked(const Pass& pass, const ExpertsBlock& block);
  void AddExperts(const Pass& pass, const ExpertsBlock& block, const BlockOutput& out);
  void Reference(const Pass& pass, const LayerInputBlock& block);
  void Reference(const Pass& pass, const LowRankBlock& block);
  void Reference(const Pass&, const StreamsBlock&) {}  // ForBlocks runs it

  // y [tokens, rows] = x times a matrix without bias, in either pass.
  struct ProductMatrix {
    Role role;
    int64_t layer = -1, number = -1;  // as ModelTensor's layer and expert
  };
  void Product(const Pass& pass, const ProductMatrix& at, const float* x, float* y);
  void SplitStreams(const Pass& pass);
  void MergeStreams(const Pass& pass);
  void TakeStream(const Pass& pass, int64_t s, float* out) const;
  void StreamCoefficients(const Pass& pass, const StreamsBlock& block, Role role);
  void Predict(const Pass& pass, const StreamsBlock& block);
  void Correct(const Pass& pass, const StreamsBlock& block);
  void AddToOthers(const Pass& pass);
  void LowRank(const Pass& pass, const LowRankBlock& block, const float* x);
  void CutGate(const Pass& pass, const GatedFeedForwardBlock& block);
  void Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y);

  const ModelConfig& config_;
  const CpuWeights& weights_;
  const DecoderOptions options_;
  const Rope rope_;
  const std::optional<Rope> local_rope_;
  const std::vector<std::vector<float>> slopes_;  // [layers], of ALiBi; empty: none
  const size_t last_stored_;  // the last layer that stores K and V; after that, only rows with logits are computed
  struct FreeMemory {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, FreeMemory> memory_;  // all buffers below; pages are touched as they are first used
  float* hidden_ = nullptr;                   // [max_tokens, hidden], the residual stream
  float* q_ = nullptr;                        // [max_tokens, heads * head_dim]
  float* k_ = nullptr;                        // [max_tokens, kv_heads * head_dim]
  float* v_ = nullptr;                        // [max_tokens, kv_heads * head_dim]
  float* mixed_ = nullptr;                    // [max_tokens, heads * head_dim], attention's output
  float* gate_ = nullptr;                     // [max_tokens, intermediate]
  float* up_ = nullptr;                       // [max_tokens, intermediate]
  float* layer_inputs_ = nullptr;             // [max_tokens, layers, LayerInputs::size]
  float* logits_ = nullptr;                   // [max_logit_rows, vocab]
  float* streams_ = nullptr;                  // [max_tokens, streams, hidden], where there are several
  float* modalities_ = nullptr;               // [max_tokens, streams]
  float* coefficients_ = nullptr;             // [max_tokens, streams * streams]
  // Buffers of the serving pass. packed_inner_ is in up_'s memory, which is free when w_down's input is rounded.
  std::byte* packed_x_ = nullptr;      // packed input of an operator: hidden, heads * head_dim or rank columns
  std::byte* packed_inner_ = nullptr;  // packed input of w_down
  // Buffers of the reference pass, and of the serving pass where a block needs more than products that norm and add on
  // the way (NeedsMore); in packed_x_'s memory where only the reference pass uses them.
  float* normed_ = nullptr;  // [max_tokens, hidden]
  float* branch_ = nullptr;  // [max_tokens, hidden], a block's contribution to the residual stream
  // [max_tokens, hidden], the stream that parallel blocks read, or the branch that waits for the next block's; at the
  // end rows with logits.
  float* input_ = nullptr;
  // Buffers of mixtures of experts. Rows are those of experts_, then the tokens of the shared expert.
  float* router_ = nullptr;           // [max_tokens, experts], logits
  float* shared_weight_ = nullptr;    // [max_tokens]
  float* expert_out_ = nullptr;       // [rows, hidden]
  std::byte* packed_rows_ = nullptr;  // packed tokens of the rows
  Workspace expert_workspace_;
  ExpertRows experts_;
  ExpertProducts products_;
  WholeExperts whole_experts_;
  CallingThread inline_;
  OperatorProfile* profile_ = nullptr;
  std::vector<AttentionItem> last_items_;  // KeepLogitRows; grows to the largest step
  std::vector<int32_t> last_positions_;    // KeepLogitRows
  std::vector<int32_t> input_ids_;         // of the tokens, in the table of layer inputs
  Workspace workspace_;
};

// Runs `work`; with a profile, times it and adds the operations and bytes that `cost` returns.
template <class Work, class Cost>
void Decoder::Timed(DecoderOperator op, Work work, Cost cost) {
  if (profile_ == nullptr) return work();
  const TimeNs start = profile_->NowNs();
  work();
  profile_->Add(op, profile_->NowNs() - start, cost());
}

template <class Run>
void Decoder::ForBlocks(Pass& pass, Run run) {
  for (pass.layer = 0; pass.layer < config_.layers.size(); ++pass.layer) {
    const Layer& layer = config_.layers[pass.layer];
    for (size_t i = 0; i < layer.size(); ++i) {
      if (const auto* streams = std::get_if<StreamsBlock>(&layer[i].block)) {
        streams->step == StreamStep::kPredict ? Predict(pass, *streams) : Correct(pass, *streams);
        continue;
      }
      const LayerBlock* const next = i + 1 < layer.size() ? &layer[i + 1] : nullptr;
      const bool shares = next != nullptr && next->parallel;
      if (shares && !layer[i].parallel) {
        CopyRows(pass.pool, pass.tokens, config_.hidden_size, hidden_, config_.hidden_size, input_);
      }
      pass.waits = next != nullptr && next->joint.exists();
      pass.keeps_input = shares || layer[i].joint.exists();
      pass.in = layer[i].parallel ? input_ : hidden_;
      run(layer[i]);
      if (pass.tokens == 0) return;
    }
  }
}

// Rows of logits in a step's buffer: `rows`, or fewer so that they take at most 256 MiB. The output matrix is read once
// per bufferful.
int64_t DecoderLogitRows(const ModelConfig& config, int64_t rows);

// Bytes that a decoder allocates, for the memory plan.
int64_t DecoderBufferBytes(const ModelConfig& config, const DecoderOptions& options);

}  // namespace tactus::compute
