#include "compute/cuda/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/cuda/decoder_buffers.h"
#include "compute/cuda/kernels/dense.h"
#include "compute/cuda/kernels/few_tokens.h"
#include "compute/cuda/kernels/quantized.h"
#include "compute/cuda/kernels/rows.h"
#include "compute/cuda/kernels/streams.h"

namespace tactus::compute::cuda {
namespace {

constexpr int32_t kF32Bytes = 4;
constexpr int64_t kMostPartialBytes = int64_t{256} << 20;

size_t LastStored(const ModelConfig& config) {
  size_t last = 0;
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const AttentionBlock* const a = AttentionOf(config.layers[l]);
    if (a != nullptr && a->stores_kv()) last = l;
  }
  return last;
}

int32_t RotaryDim(const ModelConfig& config, RopeChoice choice) {
  const RopeConfig& rope = choice == RopeChoice::kLocal ? *config.local_rope : config.rope;
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr || a->rope != choice) continue;
    return rope.rotary_dim > 0 ? rope.rotary_dim : static_cast<int32_t>(a->head_dim);
  }
  return 0;
}

AttentionShape ShapeOf(const AttentionBlock& a, const DecoderOptions& options) {
  return {.heads = static_cast<int32_t>(a.heads),
          .kv_heads = static_cast<int32_t>(a.kv_heads),
          .head_dim = static_cast<int32_t>(a.head_dim),
          .window = a.window,
          .chunk = a.chunk,
          .multiprocessors = options.multiprocessors};
}

// One list of buffers serves the allocation and its size: visit(name, bytes, pointer).
template <class Visit>
void ForBuffers(const ModelConfig& c, const DecoderOptions& o, Visit visit) {
  const BufferWidths w(c);
  const int64_t t = o.max_tokens, real = SizeOf(o.type), rows = t * w.expert_rows;
  const bool keeps = KeepsInputs(c), inputs = w.layer_inputs > 0, streams = w.streams > 1;
  visit("hidden", t * w.hidden * kF32Bytes);
  visit("spare_hidden", t * w.hidden * kF32Bytes);
  visit("normed", t * w.hidden * kF32Bytes);
  visit("branch", t * w.hidden * kF32Bytes);
  visit("input", keeps ? t * w.hidden * kF32Bytes : 0);
  visit("spare_input", keeps ? t * w.hidden * kF32Bytes : 0);
  visit("x", t * w.x * real);
  visit("codes", o.fp8_tokens ? t * w.x : 0);
  visit("code scales", o.fp8_tokens ? t * kF32Bytes : 0);
  visit("qkv", t * (w.q + 2 * w.kv) * real);
  visit("spare_q", t * w.q * real);
  visit("mixed", t * w.q * real);
  visit("gate_up", 2 * t * w.inner * real);
  visit("layer_inputs", inputs ? t * w.layer_inputs * kF32Bytes : 0);
  visit("spare_layer_inputs", inputs ? t * w.layer_inputs * kF32Bytes : 0);
  visit("layer_input", inputs ? t * c.layer_inputs.size * kF32Bytes : 0);
  visit("streams", streams ? t * w.streams * w.hidden * kF32Bytes : 0);
  visit("spare_streams", streams ? t * w.streams * w.hidden * kF32Bytes : 0);
  visit("modalities", streams ? t * w.streams * kF32Bytes : 0);
  visit("coefficients", streams ? t * w.streams * w.streams * kF32Bytes : 0);
  visit("logits", o.max_logit_rows * c.vocab_size * kF32Bytes);
  visit("partials", Decoder::PartialSlots(c, o) * (w.head_dim + kPartialStats) * kF32Bytes);
  visit("router", t * w.experts * kF32Bytes);
  visit("shared_logits", w.shared_inner > 0 ? t * kF32Bytes : 0);
  visit("expert_out", rows * w.hidden * kF32Bytes);
  visit("shared_out", w.shared_inner > 0 ? t * w.hidden * kF32Bytes : 0);
  visit("shared_gate_up", 2 * t * w.shared_inner * real);
  visit("chosen", rows * kF32Bytes);
  visit("weights", rows * kF32Bytes);
  visit("first", w.experts > 0 ? (w.experts + 1) * kF32Bytes : 0);
  visit("token", rows * kF32Bytes);
  visit("row", rows * kF32Bytes);
  visit("row_weights", rows * kF32Bytes);
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const DeviceWeights& weights, Gemm& gemm, const DecoderOptions& options)
    : config_(config), weights_(weights), gemm_(gemm), options_(options), last_stored_(LastStored(config)) {
  rope_.emplace(config.rope, std::max(RotaryDim(config, RopeChoice::kMain), 2), options.max_model_len);
  if (config.local_rope.has_value()) {
    local_rope_.emplace(*config.local_rope, std::max(RotaryDim(config, RopeChoice::kLocal), 2), options.max_model_len);
  }
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    shape_of_layer_.push_back(0);
    if (a == nullptr) continue;
    const AttentionShape shape = ShapeOf(*a, options);
    const auto at = std::find(shapes_.begin(), shapes_.end(), shape);
    shape_of_layer_.back() = static_cast<size_t>(at - shapes_.begin());
    if (at == shapes_.end()) shapes_.push_back(shape);
  }
}

int64_t Decoder::PartialSlots(const ModelConfig& config, const DecoderOptions& options) {
  int64_t slots = 1;
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    if (a == nullptr) continue;
    const int64_t kv_tokens = options.max_items * options.max_model_len;
    const int64_t most = kMostPartialBytes / (kF32Bytes * (a->head_dim + kPartialStats));
    slots = std::max(slots, std::min(most, UsefulSlots(ShapeOf(*a, options), kv_tokens, options.max_items)));
  }
  return slots;
}

int64_t Decoder::BufferBytes(const ModelConfig& config, const DecoderOptions& options) {
  int64_t total = 0;
  ForBuffers(config, options, [&](const char*, int64_t bytes) { total += bytes; });
  return total;
}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, const DeviceWeights& weights, Gemm& gemm,
                                                 const DecoderOptions& options) {
  std::unique_ptr<Decoder> decoder(new Decoder(config, weights, gemm, options));
  TACTUS_RETURN_IF_ERROR(decoder->Allocate());
  TACTUS_RETURN_IF_ERROR(decoder->PrepareProducts());
  return decoder;
}

Status Decoder::Allocate() {
  // In the order of ForBuffers.
  void** const pointers[] = {reinterpret_cast<void**>(&hidden_),
                             reinterpret_cast<void**>(&spare_hidden_),
                             reinterpret_cast<void**>(&normed_),
                             reinterpret_cast<void**>(&branch_),
                             reinterpret_cast<void**>(&input_),
                             reinterpret_cast<void**>(&spare_input_),
                             &x_,
                             &codes_,
                             reinterpret_cast<void**>(&code_scales_),
                             &qkv_,
                             &spare_q_,
                             &mixed_,
                             &gate_up_,
                             reinterpret_cast<void**>(&layer_inputs_),
                             reinterpret_cast<void**>(&spare_layer_inputs_),
                             reinterpret_cast<void**>(&layer_input_),
                             reinterpret_cast<void**>(&streams_),
                             reinterpret_cast<void**>(&spare_streams_),
                             reinterpret_cast<void**>(&modalities_),
                             reinterpret_cast<void**>(&coefficients_),
                             reinterpret_cast<void**>(&logits_),
                             reinterpret_cast<void**>(&partials_),
                             reinterpret_cast<void**>(&router_),
                             reinterpret_cast<void**>(&shared_logits_),
                             reinterpret_cast<void**>(&expert_out_),
                             reinterpret_cast<void**>(&shared_out_),
                             &shared_gate_up_,
                             reinterpret_cast<void**>(&expert_rows_.chosen),
                             reinterpret_cast<void**>(&expert_rows_.weights),
                             reinterpret_cast<void**>(&expert_rows_.first),
                             reinterpret_cast<void**>(&expert_rows_.token),
                             reinterpret_cast<void**>(&expert_rows_.row),
                             reinterpret_cast<void**>(&expert_rows_.row_weights)};
  Status status;
  size_t n = 0;
  const auto allocate = [&](const char* name, int64_t bytes) -> void* {
    if (bytes == 0 || !status.ok()) return nullptr;
    Result<DeviceMemory> memory = DeviceMemory::Allocate(bytes, name);
    if (!memory.ok()) {
      status = memory.status();
      return nullptr;
    }
    memory_.push_back(std::move(*memory));
    return memory_.back().as<>();
  };
  ForBuffers(config_, options_, [&](const char* name, int64_t bytes) { *pointers[n++] = allocate(name, bytes); });
  TACTUS_RETURN_IF_ERROR(status);
  TACTUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Stream::Create());
  const auto upload = [&](const char* name, const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    auto* const to = static_cast<float*>(allocate(name, bytes));
    if (to != nullptr) stream->CopyToDevice(to, values.data(), bytes);
    return to;
  };
  // Rows that pad a step are not written by attention, but multiplied.
  const BufferWidths widths(config_);
  stream->Fill(mixed_, 0, options_.max_tokens * widths.q * SizeOf(options_.type));
  inv_freq_ = upload("rope", rope_->inv_freq());
  if (local_rope_.has_value()) local_inv_freq_ = upload("local rope", local_rope_->inv_freq());
  std::vector<float> slopes;
  for (const Layer& layer : config_.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    slope_of_layer_.push_back(-1);
    if (a == nullptr || a->alibi == 0.0f) continue;
    slope_of_layer_.back() = static_cast<int64_t>(slopes.size());
    for (const float slope : AlibiSlopes(a->heads)) slopes.push_back(a->alibi * slope);
  }
  slopes_ = upload("slopes", slopes);
  stream->Synchronize();
  return status.ok() ? DeviceStatus() : status;
}

// Every product of a pass that the library computes, so that none of them allocates or searches.
Status Decoder::PrepareProducts() {
  const auto prepare = [&](const DeviceMatrix& w) {
    if (options_.fp8_tokens && TakesFp8Tokens(w)) return gemm_.PrepareFp8(w.rows, w.cols, options_.max_tokens);
    if (w.format != MatrixFormat::kReal || w.rows == 0) return Status();  // in a fused product
    TACTUS_RETURN_IF_ERROR(gemm_.Prepare(w.rows, w.cols, options_.max_tokens, w.real, w.real));
    return gemm_.Prepare(w.rows, w.cols, options_.max_tokens, w.real, Real::kF32);
  };
  for (const ModelTensor& t : config_.Tensors()) {
    if (!IsMatrix(t.role) || t.role == Role::kPositions || t.role == Role::kInputTable) continue;
    TACTUS_RETURN_IF_ERROR(prepare(t.role == Role::kEmbedding ? weights_.lm_head : MatrixAt(weights_, t)));
  }
  for (const DeviceLayer& layer : weights_.layers) {
    for (const FusedProduct& fused : layer.fused) TACTUS_RETURN_IF_ERROR(prepare(fused.matrix));
  }
  return Status();
}

// y [tokens, w.rows] = or += x [tokens, w.cols] w^T + bias
void Decoder::Multiply(const Pass& pass, const Product& p) {
  const DeviceMatrix& w = *p.w;
  const bool fp8 = options_.fp8_tokens && TakesFp8Tokens(w);
  if (w.format == MatrixFormat::kReal || fp8) {
    GemmCall call{.x = p.x,
                  .w = w.data,
                  .type = w.real,
                  .tokens = pass.count(),
                  .rows = w.rows,
                  .cols = w.cols,
                  .bias = p.bias,
                  .y = p.y,
                  .y_type = p.y_type,
                  .y_stride = w.rows,
                  .adds = p.adds};
    if (fp8) {
      QuantizeToFp8(pass.s, p.x, options_.type, pass.count(), w.cols, codes_, code_scales_);
      call.x = codes_;
      call.x_scales = code_scales_;
      call.w_scales = static_cast<const float*>(w.scales);
      call.one_w_scale = w.group == 0;
    }
    const bool few = !options_.batch_invariant && IsFewTokens(call);
    few ? MultiplyFew(pass.s, call) : gemm_.Multiply(pass.s, call);
    return;
  }
  MultiplyQuantized(pass.s, {.x = p.x,
                             .type = options_.type,
                             .tokens = pass.count(),
                             .w = w,
                             .bias = p.bias,
                             .y = p.y,
                             .y_type = p.y_type,
                             .y_stride = w.rows,
                             .adds = p.adds});
}

void Decoder::Norm(const Pass& pass, const NormSpec& norm, const DeviceLayer& weights, const float* x, int64_t tokens,
                   void* out, Real type) {
  NormRows(pass.s, {.x = x,
                    .x_stride = config_.hidden_size,
                    .tokens = tokens,
                    .dim = config_.hidden_size,
                    .layer = norm.kind == NormKind::kLayer,
                    .weight = weights.vector(norm.weight),
                    .bias = weights.vector(norm.bias),
                    .eps = norm.eps,
                    .out = out,
                    .out_type = type});
}

// norm(x) as the input of products, in x_.
const void* Decoder::Round(const Pass& pass, const NormSpec& norm, const DeviceLayer& weights, const float* x,
                           int64_t tokens) {
  if (norm.exists()) {
    Norm(pass, norm, weights, x, tokens, x_, options_.type);
  } else {
    ConvertRows(pass.s, x, tokens * config_.hidden_size, options_.type, x_);
  }
  return x_;
}

void Decoder::Embed(Pass& pass) {
  const DeviceMatrix& table = weights_.embedding;
  const int64_t tokens = pass.count(), dim = config_.hidden_size;
  EmbedRows(pass.s, pass.batch.ids, tokens, table.data, table.real, table.rows, dim, config_.embedding_scale, hidden_);
  if (config_.learned_positions > 0) {
    const DeviceMatrix& positions = weights_.positions;
    EmbedRows(pass.s, pass.tokens->positions, tokens, positions.data, positions.real, positions.rows, dim, 1.0f,
              branch_);
    AddRows(pass.s, hidden_, branch_, 1.0f, tokens * dim);
  }
  if (config_.embedding_norm.exists()) {
    Norm(pass, config_.embedding_norm, weights_.outside, hidden_, tokens, hidden_, Real::kF32);
  }
}

// layer_inputs_ = the tokens' inputs to the layers (LayerInputs).
void Decoder::AddTokenInputs(Pass& pass) {
  const LayerInputs& inputs = config_.layer_inputs;
  const int64_t tokens = pass.count(), width = config_.layer_inputs_width(), values = tokens * width;
  Multiply(pass, {.x = Round(pass, {}, weights_.outside, hidden_, tokens),
                  .w = &weights_.outside[Role::kInputProjection],
                  .y = layer_inputs_});
  ScaleRows(pass.s, layer_inputs_, inputs.projection_scale, 0.0f, values);
  NormRows(pass.s, {.x = layer_inputs_,
                    .x_stride = inputs.size,
                    .tokens = values / inputs.size,
                    .dim = inputs.size,
                    .weight = weights_.outside.vector(inputs.norm.weight),
                    .eps = inputs.norm.eps,
                    .out = layer_inputs_});
  const DeviceMatrix& table = weights_.outside[Role::kInputTable];
  EmbedRows(pass.s, pass.batch.ids, tokens, table.data, table.real, table.rows, width, inputs.table_scale,
            spare_layer_inputs_);
  AddRows(pass.s, layer_inputs_, spare_layer_inputs_, 1.0f, values);
  ScaleRows(pass.s, layer_inputs_, inputs.scale, 0.0f, values);
}

void Decoder::Forward(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv) {
  Begin(s, batch, kv);
  while (Advance(nullptr)) {
  }
}

void Decoder::Begin(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv) {
  Pass& pass = pass_.emplace(Pass{s, batch, kv, &batch.all});
  logit_rows_ = batch.last.tokens;
  hidden_now_ = hidden_;
  input_now_ = input_;
  streams_now_ = streams_;
  layer_inputs_now_ = layer_inputs_;
  Embed(pass);
  if (config_.layer_inputs.size > 0) AddTokenInputs(pass);
  if (config_.streams > 1) SplitStreams(pass);
}

bool Decoder::Advance(Event* products_end) {
  Pass& pass = *pass_;
  for (; pass.layer < config_.layers.size(); ++pass.layer, pass.block = 0) {
    const Layer& layer = config_.layers[pass.layer];
    for (; pass.block < layer.size(); ++pass.block) {
      if (!pass.attended && BeginBlock(pass, layer, products_end)) return true;
      if (pass.count() == 0) break;
      pass.attended = false;
      EndBlock(pass, layer[pass.block]);
    }
    if (pass.count() == 0) break;
  }
  if (config_.streams > 1 && pass.count() > 0) MergeStreams(pass);
  if (products_end != nullptr) products_end->Record(pass.s);
  return false;
}

// Up to the attention of the block, if it has one: true where its attention is enqueued.
bool Decoder::BeginBlock(Pass& pass, const Layer& layer, Event* products_end) {
  const LayerBlock& b = layer[pass.block];
  if (const auto* streams = std::get_if<StreamsBlock>(&b.block)) {
    Change(pass, *streams);
    return false;
  }
  const LayerBlock* const next = pass.block + 1 < layer.size() ? &layer[pass.block + 1] : nullptr;
  const bool shares = next != nullptr && next->parallel;
  if (shares && !b.parallel) {
    pass.s.CopyOnDevice(input_now_, hidden_now_, pass.count() * config_.hidden_size * kF32Bytes);
  }
  pass.waits = next != nullptr && next->joint.exists();
  pass.keeps_input = shares || b.joint.exists();
  pass.in = b.parallel ? input_now_ : hidden_now_;
  const auto* const a = std::get_if<AttentionBlock>(&b.block);
  if (a == nullptr) return false;
  StartAttention(pass, b.norm, *a);
  if (pass.count() == 0) return false;
  if (products_end != nullptr) products_end->Record(pass.s);
  if (pass.attends) Attend(pass, *a, pass.kv[a->stores_kv() ? pass.layer : static_cast<size_t>(a->kv_layer)]);
  pass.attended = true;
  return true;
}

void Decoder::EndBlock(Pass& pass, const LayerBlock& b) {
  if (std::holds_alternative<StreamsBlock>(b.block)) return;
  const bool directly = b.adds_directly() && !pass.waits;
  const Output out = directly ? Output{hidden_now_, true} : Output{branch_, false};
  std::visit([&](const auto& block) { Run(pass, b.norm, out, block); }, b.block);
  if (!directly) AddBranch(pass, b);
  float scale = b.factor;
  if (b.scale != Role::kNone) scale *= weights_.scalars.at({static_cast<int64_t>(pass.layer), b.scale});
  if (scale != 1.0f) ScaleRows(pass.s, hidden_now_, scale, 0.0f, pass.count() * config_.hidden_size);
}

void Decoder::ForwardProducts(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv) {
  Begin(s, batch, kv);
  pass_->attends = false;
  while (Advance(nullptr)) {
  }
}

void Decoder::ForwardAttention(Stream& s, const DeviceBatch& batch, std::span<const KvPages> kv) {
  Pass pass{s, batch, kv, &batch.all};
  q_now_ = qkv_;
  for (pass.layer = 0; pass.layer < config_.layers.size(); ++pass.layer) {
    const AttentionBlock* const a = AttentionOf(config_.layers[pass.layer]);
    if (a == nullptr) continue;
    if (pass.layer == last_stored_) pass.tokens = &batch.last;  // as KeepLogitRows
    const FusedProduct* const fused = weights_.layers[pass.layer].FusedOf(Fusion::kQkv);
    q_stride_now_ = fused != nullptr ? fused->matrix.rows : a->q_width();
    Attend(pass, *a, kv[a->stores_kv() ? pass.layer : static_cast<size_t>(a->kv_layer)]);
  }
}

void Decoder::TakeLogitRows(Stream& s, const Decoder& from) {
  if (from.logit_rows_ == 0) return;
  const int64_t dim = config_.hidden_size;
  s.CopyOnDevice(hidden_now_ + logit_rows_ * dim, from.hidden_now_, from.logit_rows_ * dim * kF32Bytes);
  logit_rows_ += from.logit_rows_;
}

// Adds the block's branch in branch_ to the stream, or keeps it for the next block's.
void Decoder::AddBranch(const Pass& pass, const LayerBlock& b) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const int64_t tokens = pass.count(), values = tokens * config_.hidden_size;
  if (b.post.exists()) Norm(pass, b.post, w, branch_, tokens, branch_, Real::kF32);
  if (b.joint.exists()) {
    AddRows(pass.s, branch_, input_now_, 1.0f, values);
    Norm(pass, b.joint, w, branch_, tokens, branch_, Real::kF32);
  }
  if (pass.waits) {
    pass.s.CopyOnDevice(input_now_, branch_, values * kF32Bytes);
  } else if (b.to_others) {
    AddToOtherStreams(pass.s, branch_, tokens, config_.streams, config_.hidden_size, streams_now_);
  } else {
    AddRows(pass.s, hidden_now_, branch_, b.multiplier, values);
  }
}

float* Decoder::Logits(Stream& s, int64_t first, int64_t count) {
  DeviceTokens rows;
  rows.tokens = count;
  const DeviceBatch batch;
  const Pass pass{s, batch, {}, &rows};
  const float* const x = hidden_now_ + first * config_.hidden_size;
  Multiply(pass, {.x = Round(pass, config_.final_norm, weights_.outside, x, count),
                  .w = &weights_.lm_head,
                  .bias = weights_.outside.vector(Role::kLmHeadBias),
                  .y = logits_});
  if (config_.logits_scale != 1.0f || config_.logits_softcap > 0.0f) {
    ScaleRows(s, logits_, config_.logits_scale, config_.logits_softcap, count * config_.vocab_size);
  }
  return logits_;
}

}  // namespace tactus::compute::cuda
