// A decoder's buffers, and the choice between the two passes: forward.cc or reference_forward.cc.
#include "compute/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tactus::compute {
namespace {

constexpr int64_t kBufferAlignment = 64;
constexpr int64_t kLogitBytesMax = int64_t{256} << 20;
constexpr int64_t kLogitRowsMin = 16;

int64_t Aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Products of packed tokens norm on the way in, and add to the stream as they are.
bool NormsOnTheWay(const NormSpec& norm) {
  return norm.kind == NormKind::kRms && norm.weight != Role::kNone;
}

// Whether the serving pass computes more between products than that.
bool NeedsMore(const ModelConfig& c) {
  if (c.learned_positions > 0 || c.streams > 1 || !NormsOnTheWay(c.final_norm)) return true;
  for (const Layer& layer : c.layers) {
    if (ExpertsOf(layer) != nullptr) return true;
    for (const LayerBlock& b : layer) {
      if (b.parallel || !b.adds_directly() || (b.norm.exists() && !NormsOnTheWay(b.norm))) return true;
    }
  }
  return false;
}

// What mixtures of experts need beside the other blocks; the largest of any.
struct ExpertSizes {
  void Take(const ExpertsBlock& e, const ModelConfig& c, const DecoderOptions& o) {
    const int64_t rows = o.max_tokens * e.router.chosen, shared = e.shared_inner > 0 ? o.max_tokens : 0;
    router = std::max(router, o.max_tokens * e.experts);
    shared_weight = o.max_tokens;
    out = std::max(out, (rows + shared) * c.hidden_size);
    inner = std::max(inner, rows * e.expert.inner + shared * e.shared_inner);
    packed_rows = std::max(packed_rows, PackedTokenBytes(rows, c.hidden_size));
    packed_inner =
        std::max(packed_inner, PackedTokenBytes(rows, e.expert.inner) + PackedTokenBytes(shared, e.shared_inner));
    cols = std::max({cols, c.hidden_size, e.expert.inner, e.shared_inner});
    workspace = std::max(workspace, ExpertProducts::WorkspaceBytesFor(cols, o.threads));
    if (WholeExperts::Compute(e)) {
      const int64_t inner_most = std::max(e.expert.inner, e.shared_inner);
      workspace =
          std::max(workspace, WholeExperts::WorkspaceBytesFor(c.hidden_size, inner_most, o.max_tokens, o.threads));
    }
    products = std::max(products, 2 * (e.experts + 1));
  }
  int64_t Bytes() const {
    int64_t bytes = Aligned(packed_rows) + Aligned(workspace);
    for (const int64_t n : {router, shared_weight, out}) bytes += Aligned(n * 4);
    return bytes;
  }
  int64_t router = 0, shared_weight = 0, out = 0, inner = 0;  // elements
  int64_t packed_rows = 0, packed_inner = 0, workspace = 0;   // bytes
  int64_t cols = 0, products = 0;
};

// Elements of each f32 buffer, in the order of Decoder's members.
struct BufferSizes {
  BufferSizes(const ModelConfig& c, const DecoderOptions& o) {
    int64_t q_width = 0, kv_width = 0, inner_width = 0, heads = 0, head_dim = 0, rank = 0;  // the largest of any block
    for (const Layer& layer : c.layers) {
      for (const LayerBlock& b : layer) {
        if (const auto* a = std::get_if<AttentionBlock>(&b.block)) {
          q_width = std::max(q_width, a->q_width());
          kv_width = std::max(kv_width, a->kv_width());
          heads = std::max(heads, a->heads);
          head_dim = std::max(head_dim, a->head_dim);
        } else if (const auto* f = std::get_if<GatedFeedForwardBlock>(&b.block)) {
          inner_width = std::max(inner_width, f->inner);
        } else if (const auto* p = std::get_if<FeedForwardBlock>(&b.block)) {
          inner_width = std::max(inner_width, p->inner);
        } else if (const auto* e = std::get_if<ExpertsBlock>(&b.block)) {
          experts.Take(*e, c, o);
        } else if (const auto* i = std::get_if<LayerInputBlock>(&b.block)) {
          inner_width = std::max(inner_width, i->inner);
        } else if (const auto* r = std::get_if<LowRankBlock>(&b.block)) {
          inner_width = std::max(inner_width, r->rank);
          rank = std::max(rank, r->rank);
        }
      }
    }
    inner_width = std::max(inner_width, c.layer_inputs_width());  // rows of the table of layer inputs
    layer_inputs = o.max_tokens * c.layer_inputs_width();
    more = NeedsMore(c);
    hidden = o.max_tokens * c.hidden_size;
    query = o.max_tokens * q_width;
    key = o.max_tokens * kv_width;
    inner = o.max_tokens * inner_width;
    logits = o.max_logit_rows * c.vocab_size;
    const int64_t max_cols = std::max({c.hidden_size, inner_width, q_width, experts.cols});
    packed_x = PackedTokenBytes(o.max_tokens, std::max({c.hidden_size, q_width, rank}));
    if (c.streams > 1) {
      modalities = o.max_tokens * c.streams;
      streams = modalities * c.hidden_size;
      coefficients = modalities * c.streams;
    }
    packed_inner = std::max(PackedTokenBytes(o.max_tokens, inner_width), experts.packed_inner);
    inner = std::max(inner, experts.inner);
    workspace_bytes =
        WorkspaceBytes(o.max_tokens, max_cols, static_cast<int32_t>(heads), static_cast<int32_t>(head_dim), o.threads);
  }
  // Packed tokens share memory with f32 buffers of the reference pass, or of an operator that needs no packed tokens
  // meanwhile.
  int64_t NormedOffset() const { return more ? Aligned(packed_x) : 0; }
  int64_t NormedBytes() const { return std::max(NormedOffset() + 3 * Aligned(hidden * 4), Aligned(packed_x)); }
  int64_t UpBytes() const { return std::max(Aligned(inner * 4), Aligned(packed_inner)); }
  int64_t TotalBytes() const {
    int64_t bytes = Aligned(workspace_bytes) + NormedBytes() + UpBytes();
    for (int64_t n : {hidden, query, query, key, key, inner, layer_inputs, logits, streams, modalities, coefficients}) {
      bytes += Aligned(n * 4);
    }
    return bytes + experts.Bytes();
  }
  ExpertSizes experts;
  bool more;
  int64_t hidden, query, key, inner, layer_inputs, logits, packed_x, packed_inner, workspace_bytes;
  int64_t streams = 0, modalities = 0, coefficients = 0;
};

// The rotary dimensions of the layers with `choice`, which is `rope` and which share them (ValidateConfig); 0: there
// are none.
int32_t RotaryDim(const ModelConfig& config, RopeChoice choice, const RopeConfig& rope) {
  for (const Layer& layer : config.layers) {
    const AttentionBlock* attention = AttentionOf(layer);
    if (attention == nullptr || attention->rope != choice) continue;
    return rope.rotary_dim > 0 ? rope.rotary_dim : static_cast<int32_t>(attention->head_dim);
  }
  return 0;
}

std::optional<Rope> LocalRope(const ModelConfig& config, int64_t max_model_len) {
  if (!config.local_rope.has_value()) return std::nullopt;
  return Rope(*config.local_rope, RotaryDim(config, RopeChoice::kLocal, *config.local_rope), max_model_len);
}

std::vector<std::vector<float>> Slopes(const ModelConfig& config) {
  std::vector<std::vector<float>> slopes(config.layers.size());
  for (size_t l = 0; l < slopes.size(); ++l) {
    const AttentionBlock* attention = AttentionOf(config.layers[l]);
    if (attention == nullptr || attention->alibi == 0.0f) continue;
    slopes[l] = AlibiSlopes(attention->heads);
    for (float& slope : slopes[l]) slope *= attention->alibi;
  }
  return slopes;
}

size_t LastStored(const ModelConfig& config) {
  size_t last = 0;
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const AttentionBlock* attention = AttentionOf(config.layers[l]);
    if (attention != nullptr && attention->stores_kv()) last = l;
  }
  return last;
}

}  // namespace

int64_t DecoderLogitRows(const ModelConfig& config, int64_t rows) {
  const int64_t fit = kLogitBytesMax / (std::max<int64_t>(config.vocab_size, 1) * 4);
  return std::max<int64_t>(1, std::min(rows, std::max(fit, kLogitRowsMin)));
}

int64_t DecoderBufferBytes(const ModelConfig& config, const DecoderOptions& options) {
  return BufferSizes(config, options).TotalBytes() + ExpertRows::Bytes(config, options.max_tokens);
}

void Decoder::FreeMemory::operator()(void* p) const {
  std::free(p);
}

Decoder::Decoder(const ModelConfig& config, const CpuWeights& weights, const DecoderOptions& options)
    : config_(config),
      weights_(weights),
      options_(options),
      rope_(config.rope, RotaryDim(config, RopeChoice::kMain, config.rope), options.max_model_len),
      local_rope_(LocalRope(config, options.max_model_len)),
      slopes_(Slopes(config)),
      last_stored_(LastStored(config)),
      experts_(config, options.max_tokens),
      products_(BufferSizes(config, options).experts.products),
      whole_experts_(BufferSizes(config, options).experts.products) {}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, const CpuWeights& weights,
                                                 const DecoderOptions& options) {
  std::unique_ptr<Decoder> decoder(new Decoder(config, weights, options));
  const BufferSizes sizes(config, options);
  const int64_t bytes = sizes.TotalBytes();
  decoder->memory_.reset(std::aligned_alloc(kBufferAlignment, static_cast<size_t>(bytes)));
  if (decoder->memory_ == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes of activations for steps of " +
                      std::to_string(options.max_tokens) + " tokens: lower --max-num-batched-tokens",
                  "max-num-batched-tokens");
  }
  auto* next = static_cast<std::byte*>(decoder->memory_.get());
  auto take = [&next](int64_t elements) {
    auto* buffer = reinterpret_cast<float*>(next);
    next += Aligned(elements * 4);
    return buffer;
  };
  decoder->hidden_ = take(sizes.hidden);
  decoder->q_ = take(sizes.query);
  decoder->mixed_ = take(sizes.query);
  decoder->k_ = take(sizes.key);
  decoder->v_ = take(sizes.key);
  decoder->gate_ = take(sizes.inner);
  decoder->layer_inputs_ = take(sizes.layer_inputs);
  decoder->logits_ = take(sizes.logits);
  decoder->streams_ = take(sizes.streams);
  decoder->modalities_ = take(sizes.modalities);
  decoder->coefficients_ = take(sizes.coefficients);
  decoder->packed_inner_ = next;
  decoder->up_ = reinterpret_cast<float*>(next);
  next += sizes.UpBytes();
  decoder->packed_x_ = next;
  std::byte* const after = next + sizes.NormedBytes();
  next += sizes.NormedOffset();
  decoder->normed_ = take(sizes.hidden);
  decoder->branch_ = take(sizes.hidden);
  decoder->input_ = take(sizes.hidden);
  next = after;
  decoder->workspace_ = {next, sizes.workspace_bytes};
  next += Aligned(sizes.workspace_bytes);
  decoder->router_ = take(sizes.experts.router);
  decoder->shared_weight_ = take(sizes.experts.shared_weight);
  decoder->expert_out_ = take(sizes.experts.out);
  decoder->packed_rows_ = next;
  next += Aligned(sizes.experts.packed_rows);
  decoder->expert_workspace_ = {next, sizes.experts.workspace};
  decoder->last_positions_.reserve(static_cast<size_t>(options.max_tokens));
  decoder->input_ids_.resize(static_cast<size_t>(config.layer_inputs.size > 0 ? options.max_tokens : 0));
  return decoder;
}

void Decoder::Forward(ThreadPool& pool, const DecoderBatch& batch, std::span<const KvLayer> kv) {
  Pass pass{pool, batch, kv, batch.tokens, batch.items, batch.positions};
  weights_.packed != nullptr ? ForwardPacked(pass) : ForwardReference(pass);
}

float* Decoder::Logits(ThreadPool& pool, int64_t first, int64_t count) {
  float* const logits =
      weights_.packed != nullptr ? PackedLogits(pool, first, count) : ReferenceLogits(pool, first, count);
  if (config_.logits_scale != 1.0f || config_.logits_softcap > 0.0f) {
    options_.ops->scale(pool, logits, config_.logits_scale, config_.logits_softcap, count * config_.vocab_size);
  }
  return logits;
}

// hidden_ = the tokens' rows of the embedding, scaled, with their positions' rows, normed.
void Decoder::Embed(Pass& pass) {
  const Ops& ops = *options_.ops;
  const PackedWeights* const packed = weights_.packed.get();
  const int64_t elements = pass.tokens * config_.hidden_size;
  if (packed != nullptr) {
    ops.embed_packed(pass.pool, pass.batch.ids, pass.tokens, packed->embedding, hidden_);
  } else {
    ops.embed(pass.pool, pass.batch.ids, pass.tokens, weights_.embedding, hidden_);
  }
  if (config_.embedding_scale != 1.0f) ops.scale(pass.pool, hidden_, config_.embedding_scale, 0.0f, elements);
  if (config_.learned_positions > 0) {
    if (packed != nullptr) {
      ops.embed_packed(pass.pool, pass.batch.positions, pass.tokens, packed->positions, branch_);
    } else {
      ops.embed(pass.pool, pass.batch.positions, pass.tokens, weights_.positions, branch_);
    }
    ops.add(pass.pool, hidden_, branch_, 1.0f, elements);
  }
  if (config_.embedding_norm.exists()) {
    Norm(pass.pool, config_.embedding_norm, weights_.outside, hidden_, pass.tokens, hidden_);
  }
}

// layer_inputs_, the products of the projection, becomes the tokens' inputs to the layers.
void Decoder::AddTokenInputs(Pass& pass) {
  const Ops& ops = *options_.ops;
  const LayerInputs& inputs = config_.layer_inputs;
  const int64_t elements = pass.tokens * config_.layer_inputs_width();
  ops.scale(pass.pool, layer_inputs_, inputs.projection_scale, 0.0f, elements);
  ops.rms_norm(pass.pool, layer_inputs_, elements / inputs.size, inputs.size,
               weights_.outside.vector(inputs.norm.weight), inputs.norm.eps, layer_inputs_);
  const PackedWeights* const packed = weights_.packed.get();
  const MatrixView& table = weights_.outside[Role::kInputTable];
  const int64_t rows = packed != nullptr ? packed->outside[Role::kInputTable].rows : table.rows;
  for (int64_t t = 0; t < pass.tokens; ++t) {
    const int32_t id = pass.batch.ids[t];
    input_ids_[static_cast<size_t>(t)] = id < rows ? id : 0;
  }
  if (packed != nullptr) {
    ops.embed_packed(pass.pool, input_ids_.data(), pass.tokens, packed->outside[Role::kInputTable], gate_);
  } else {
    ops.embed(pass.pool, input_ids_.data(), pass.tokens, table, gate_);
  }
  ops.add(pass.pool, layer_inputs_, gate_, inputs.table_scale, elements);
  ops.scale(pass.pool, layer_inputs_, inputs.scale, 0.0f, elements);
}

// up_ = the tokens' inputs to this layer
void Decoder::GatherLayerInputs(const Pass& pass, int64_t size) {
  const int64_t width = config_.layer_inputs_width(), first = static_cast<int64_t>(pass.layer) * size;
  CopyRows(pass.pool, pass.tokens, size, layer_inputs_ + first, width, up_);
}

void Decoder::Norm(ThreadPool& pool, const NormSpec& norm, const LayerWeights& weights, const float* x, int64_t tokens,
                   float* out) {
  const Ops& ops = *options_.ops;
  const float* const weight = weights.vector(norm.weight);
  if (norm.kind == NormKind::kLayer) {
    ops.layer_norm(pool, x, tokens, config_.hidden_size, weight, weights.vector(norm.bias), norm.eps, out);
  } else {
    ops.rms_norm(pool, x, tokens, config_.hidden_size, weight, norm.eps, out);
  }
}

// Adds the block's branch in branch_ to the stream, or keeps it for the next block's.
void Decoder::AddBranch(const Pass& pass, const LayerBlock& b) {
  const Ops& ops = *options_.ops;
  const LayerWeights& w = weights_.layers[pass.layer];
  const int64_t elements = pass.tokens * config_.hidden_size;
  if (b.post.exists()) Norm(pass.pool, b.post, w, branch_, pass.tokens, branch_);
  if (b.joint.exists()) {
    ops.add(pass.pool, branch_, input_, 1.0f, elements);
    Norm(pass.pool, b.joint, w, branch_, pass.tokens, branch_);
  }
  if (pass.waits) {
    CopyRows(pass.pool, pass.tokens, config_.hidden_size, branch_, config_.hidden_size, input_);
  } else if (b.to_others) {
    AddToOthers(pass);
  } else {
    ops.add(pass.pool, hidden_, branch_, b.multiplier, elements);
  }
}

void Decoder::ScaleStream(const Pass& pass, const LayerBlock& b) {
  const float* const weight = weights_.layers[pass.layer].vector(b.scale);
  const float scale = b.factor * (weight != nullptr ? *weight : 1.0f);
  if (scale != 1.0f) options_.ops->scale(pass.pool, hidden_, scale, 0.0f, pass.tokens * config_.hidden_size);
}

// The norm of q and, where they are stored, k over all heads.
void Decoder::NormQk(const Pass& pass, const AttentionBlock& a) {
  const Ops& ops = *options_.ops;
  const LayerWeights& w = weights_.layers[pass.layer];
  ops.rms_norm(pass.pool, q_, pass.tokens, a.q_width(), w.vector(Role::kQNorm), a.norm_eps, q_);
  if (a.stores_kv()) ops.rms_norm(pass.pool, k_, pass.tokens, a.kv_width(), w.vector(Role::kKNorm), a.norm_eps, k_);
}

RopeTable Decoder::RopeOf(const AttentionBlock& a) const {
  switch (a.rope) {
    case RopeChoice::kMain:
      return rope_.table();
    case RopeChoice::kLocal:
      if (local_rope_.has_value()) return local_rope_->table();
      break;  // ValidateConfig refuses such a layer
    case RopeChoice::kNone:
      break;
  }
  return {};
}

AttentionSpec Decoder::SpecOf(const AttentionBlock& a, size_t layer) const {
  AttentionSpec spec;
  spec.scale = a.scale > 0.0f ? a.scale : 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  spec.window = a.window;
  spec.chunk = a.chunk;
  spec.softcap = a.softcap;
  spec.slopes = a.alibi != 0.0f ? slopes_[layer].data() : nullptr;
  spec.sinks = weights_.layers[layer].vector(Role::kSinks);
  return spec;
}

}  // namespace tactus::compute
