// The blocks of a pass on the device (config/blocks.h has their definitions).
#include <cmath>
#include <utility>

#include "compute/cuda/decoder.h"
#include "compute/cuda/kernels/rows.h"
#include "compute/cuda/kernels/streams.h"

namespace tactus::compute::cuda {

namespace {

void* ValuesAt(void* base, int64_t values, Real type) {
  return static_cast<std::byte*>(base) + values * SizeOf(type);
}

}  // namespace

// q, and k and v where the layer stores them, of x: one product where their matrices are fused.
Decoder::Heads Decoder::MultiplyHeads(const Pass& pass, const AttentionBlock& a, const void* x) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const Real type = options_.type;
  Heads h;
  h.q = qkv_;
  if (const FusedProduct* const fused = w.FusedOf(Fusion::kQkv); fused != nullptr) {
    Multiply(pass, {.x = x, .w = &fused->matrix, .bias = fused->bias, .y = qkv_, .y_type = type});
    h.k = ValuesAt(h.q, a.q_width(), type);
    h.v = a.k_is_v ? h.k : ValuesAt(h.k, a.kv_width(), type);
    h.q_stride = h.kv_stride = fused->matrix.rows;
    return h;
  }
  h.q_stride = a.q_width();
  h.kv_stride = a.kv_width();
  Multiply(pass, {.x = x, .w = &w[Role::kQ], .bias = w.vector(Role::kQBias), .y = h.q, .y_type = type});
  if (!a.stores_kv()) return h;
  h.k = ValuesAt(h.q, options_.max_tokens * h.q_stride, type);
  Multiply(pass, {.x = x, .w = &w[Role::kK], .bias = w.vector(Role::kKBias), .y = h.k, .y_type = type});
  h.v = h.k;
  if (a.k_is_v) return h;
  h.v = ValuesAt(h.k, options_.max_tokens * h.kv_stride, type);
  Multiply(pass, {.x = x, .w = &w[Role::kV], .bias = w.vector(Role::kVBias), .y = h.v, .y_type = type});
  return h;
}

// q, k, v of norm(in); k and v are stored.
void Decoder::StartAttention(Pass& pass, const NormSpec& norm, const AttentionBlock& a) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const KvPages& kv = pass.kv[a.stores_kv() ? pass.layer : static_cast<size_t>(a.kv_layer)];
  const int64_t tokens = pass.count();
  const Real type = options_.type;
  const Heads h = MultiplyHeads(pass, a, Round(pass, norm, w, pass.in, tokens));
  q_now_ = h.q;
  q_stride_now_ = h.q_stride;
  if (a.qk_norm == QkNorm::kWidth) {
    NormTyped(pass.s, h.q, type, tokens, a.q_width(), w.vector(Role::kQNorm), a.norm_eps);
    if (a.stores_kv()) NormTyped(pass.s, h.k, type, tokens, a.kv_width(), w.vector(Role::kKNorm), a.norm_eps);
  }
  const Rope* const rope = a.rope == RopeChoice::kMain    ? &*rope_
                           : a.rope == RopeChoice::kLocal ? &*local_rope_
                                                          : nullptr;
  RopeStore call;
  call.q = h.q;
  call.k = pass.attends ? h.k : nullptr;
  call.v = h.v;
  call.q_stride = h.q_stride;
  call.k_stride = call.v_stride = h.kv_stride;
  call.type = type;
  call.positions = pass.tokens->positions;
  call.slots = pass.batch.kv_slots;
  call.tokens = tokens;
  call.heads = static_cast<int32_t>(a.heads);
  if (rope != nullptr) {
    const RopeTable table = rope->table();
    call.inv_freq = a.rope == RopeChoice::kMain ? inv_freq_ : local_inv_freq_;
    call.attention_scale = table.attention_scale;
    call.rotary_dim = table.rotary_dim;
    call.interleaved = table.interleaved;
  }
  call.qk_norm = a.norms_heads();
  if (call.qk_norm) {
    call.q_norm = w.vector(Role::kQNorm);
    call.k_norm = w.vector(Role::kKNorm);
  }
  call.norms_last = a.norms_last;
  call.v_norm = a.v_norm;
  call.eps = a.norm_eps;
  call.query_beta = a.query_beta;
  call.query_length = a.query_length;
  call.query_offset = a.query_offset;
  RopeAndStore(pass.s, call, kv);
  // K and V of every token are stored. After this only the rows with logits are used.
  if (pass.layer == last_stored_) KeepLogitRows(pass, a.q_width());
}

// out = o(attention), which is in mixed_
void Decoder::Run(Pass& pass, const NormSpec& /*norm*/, const Output& out, const AttentionBlock& /*a*/) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  Multiply(pass, {.x = mixed_, .w = &w[Role::kO], .bias = w.vector(Role::kOBias), .y = out.y, .adds = out.adds});
}

void Decoder::Attend(const Pass& pass, const AttentionBlock& a, const KvPages& kv) {
  const DeviceUnits& units = pass.tokens->units[shape_of_layer_[pass.layer]];
  AttentionCall call;
  call.q = q_now_;
  call.out = mixed_;
  call.q_stride = q_stride_now_;
  call.out_stride = a.q_width();
  call.type = options_.type;
  call.heads = static_cast<int32_t>(a.heads);
  call.rows = pass.tokens->rows;
  call.tables = pass.batch.tables;
  call.decodes = units.decodes;
  call.num_decodes = units.num_decodes;
  call.chunks = units.chunks;
  call.num_chunks = units.num_chunks;
  call.members = units.members;
  call.merges = units.merges;
  call.num_merges = units.num_merges;
  call.partials = partials_;
  call.scale = a.scale > 0.0f ? a.scale : 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  call.window = a.window;
  call.chunk = a.chunk;
  call.softcap = a.softcap;
  const int64_t slope = slope_of_layer_[pass.layer];
  call.slopes = slope >= 0 ? slopes_ + slope : nullptr;
  call.sinks = weights_.layers[pass.layer].vector(Role::kSinks);
  Attention(pass.s, call, kv);
}

// Moves the rows that get logits to the spare buffers, which the pass uses from here on.
void Decoder::KeepLogitRows(Pass& pass, int64_t q_width) {
  const int64_t rows = pass.batch.last.tokens, dim = config_.hidden_size;
  pass.tokens = &pass.batch.last;
  if (rows == 0) return;
  const auto move = [&](const void* from, int64_t width, int32_t bytes, void* to) {
    CopyRows(pass.s, from, width, pass.batch.logit_rows, rows, width, bytes, to, width);
  };
  CopyRows(pass.s, q_now_, q_stride_now_, pass.batch.logit_rows, rows, q_width, SizeOf(options_.type), spare_q_,
           q_width);
  q_now_ = spare_q_;
  q_stride_now_ = q_width;
  move(hidden_, dim, 4, spare_hidden_);
  hidden_now_ = spare_hidden_;
  if (pass.keeps_input) {
    move(input_, dim, 4, spare_input_);
    input_now_ = spare_input_;
    if (pass.in == input_) pass.in = input_now_;
  }
  if (config_.layer_inputs.size > 0) {
    move(layer_inputs_, config_.layer_inputs_width(), 4, spare_layer_inputs_);
    layer_inputs_now_ = spare_layer_inputs_;
  }
  if (config_.streams > 1) {
    move(streams_, config_.streams * dim, 4, spare_streams_);
    streams_now_ = spare_streams_;
  }
}

// f(gate(x)) * up(x) in x_, where gate and up are those of `fusion`. gate_up: [tokens, 2 * inner]. x may be x_.
const void* Decoder::MultiplyGated(const Pass& pass, Fusion fusion, const GatedFeedForwardBlock& f, const void* x,
                                   void* gate_up) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const FusedRoles& roles = RolesOf(fusion);
  const Real type = options_.type;
  ActivateCall call{
      .f = f.activation, .gate = gate_up, .type = type, .tokens = pass.count(), .dim = f.inner, .out = x_};
  if (const FusedProduct* const fused = w.FusedOf(fusion); fused != nullptr) {
    Multiply(pass, {.x = x, .w = &fused->matrix, .bias = fused->bias, .y = gate_up, .y_type = type});
    call.up = ValuesAt(gate_up, f.inner, type);
    call.stride = 2 * f.inner;
  } else {
    void* const up = ValuesAt(gate_up, options_.max_tokens * f.inner, type);
    const auto multiply = [&](size_t i, void* y) {
      Multiply(pass, {.x = x, .w = &w[roles.matrices[i]], .bias = w.vector(roles.biases[i]), .y = y, .y_type = type});
    };
    multiply(0, gate_up);
    multiply(1, up);
    if (f.cuts()) CutGate(pass.s, gate_up, type, pass.count(), f.inner, f.cutoff);
    call.up = up;
  }
  Activate(pass.s, call);
  return x_;
}

// out = down(f(gate(norm(in))) * up(norm(in)))
void Decoder::Run(Pass& pass, const NormSpec& norm, const Output& out, const GatedFeedForwardBlock& f) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const void* const x = Round(pass, norm, w, pass.in, pass.count());
  const void* const inner = MultiplyGated(pass, Fusion::kGateUp, f, x, gate_up_);
  Multiply(pass, {.x = inner, .w = &w[Role::kDown], .bias = w.vector(Role::kDownBias), .y = out.y, .adds = out.adds});
}

// out = down(f(up(norm(in))))
void Decoder::Run(Pass& pass, const NormSpec& norm, const Output& out, const FeedForwardBlock& f) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const Real type = options_.type;
  const void* const x = Round(pass, norm, w, pass.in, pass.count());
  Multiply(pass, {.x = x, .w = &w[Role::kUp], .bias = w.vector(Role::kUpBias), .y = gate_up_, .y_type = type});
  Activate(
      pass.s,
      {.f = f.activation, .gate = gate_up_, .type = type, .tokens = pass.count(), .dim = f.inner, .out = gate_up_});
  Multiply(pass,
           {.x = gate_up_, .w = &w[Role::kDown], .bias = w.vector(Role::kDownBias), .y = out.y, .adds = out.adds});
}

// out = down(f(gate(norm(in))) * the layer's input)
void Decoder::Run(Pass& pass, const NormSpec& norm, const Output& out, const LayerInputBlock& f) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const Real type = options_.type;
  const void* const x = Round(pass, norm, w, pass.in, pass.count());
  Multiply(pass, {.x = x, .w = &w[Role::kInputGate], .y = gate_up_, .y_type = type});
  const int64_t first = static_cast<int64_t>(pass.layer) * f.inner;
  CopyRows(pass.s, layer_inputs_now_ + first, config_.layer_inputs_width(), nullptr, pass.count(), f.inner, 4,
           layer_input_, f.inner);
  Activate(pass.s, {.f = f.activation,
                    .gate = gate_up_,
                    .up = layer_input_,
                    .up_f32 = true,
                    .type = type,
                    .tokens = pass.count(),
                    .dim = f.inner,
                    .out = gate_up_});
  Multiply(pass, {.x = gate_up_, .w = &w[Role::kInputDown], .y = out.y, .adds = out.adds});
}

// out = x + norm(right(left(x))), x = norm(in)
void Decoder::Run(Pass& pass, const NormSpec& norm, const Output& out, const LowRankBlock& b) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const int64_t tokens = pass.count(), values = tokens * config_.hidden_size;
  Norm(pass, norm, w, pass.in, tokens, normed_, Real::kF32);
  ConvertRows(pass.s, normed_, values, options_.type, x_);
  Multiply(pass, {.x = x_, .w = &w[Role::kLowRankLeft], .y = gate_up_, .y_type = options_.type});
  Multiply(pass, {.x = gate_up_, .w = &w[Role::kLowRankRight], .y = branch_});
  Norm(pass, b.norm, w, branch_, tokens, branch_, Real::kF32);
  AddRows(pass.s, branch_, normed_, 1.0f, values);
  if (out.adds) AddRows(pass.s, out.y, branch_, 1.0f, values);
}

// out = the mixture of norm(in). The router reads unrounded tokens.
void Decoder::Run(Pass& pass, const NormSpec& norm, const Output& out, const ExpertsBlock& e) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const int64_t tokens = pass.count();
  const float* x = pass.in;
  if (norm.exists()) {
    Norm(pass, norm, w, pass.in, tokens, normed_, Real::kF32);
    x = normed_;
  }
  const float* router_x = x;
  if (e.router_norm.exists()) {
    Norm(pass, e.router_norm, w, pass.in, tokens, expert_out_, Real::kF32);
    router_x = expert_out_;
  }
  Multiply(pass, {.x = router_x, .w = &w[Role::kRouter], .bias = w.vector(Role::kRouterBias), .y = router_});
  if (e.router.logit_scale != 1.0f) ScaleRows(pass.s, router_, e.router.logit_scale, 0.0f, tokens * e.experts);
  if (e.shared_weight) Multiply(pass, {.x = x, .w = &w[Role::kSharedWeight], .y = shared_logits_});
  RouteTokens(pass.s, e.router, e.experts, router_, w.vector(Role::kChoiceBias), w.vector(Role::kExpertScale), tokens,
              expert_rows_);
  ConvertRows(pass.s, x, tokens * config_.hidden_size, options_.type, x_);
  ExpertProducts(pass, e, x_);
  const bool shares = e.shared_inner > 0;
  if (shares) {
    GatedFeedForwardBlock shared = e.expert;
    shared.inner = e.shared_inner;
    const void* const inner = MultiplyGated(pass, Fusion::kSharedGateUp, shared, x_, shared_gate_up_);
    Multiply(pass, {.x = inner, .w = &w[Role::kSharedDown], .y = shared_out_});
  }
  CombineExperts(pass.s, {.y = expert_out_,
                          .shared = shares ? shared_out_ : nullptr,
                          .shared_logits = e.shared_weight ? shared_logits_ : nullptr,
                          .tokens = tokens,
                          .dim = config_.hidden_size,
                          .chosen = e.router.chosen,
                          .weighs_input = e.router.weighs_input,
                          .rows = &expert_rows_,
                          .out = out.y,
                          .adds = out.adds});
}

// expert_out_ [rows, hidden] = down(f(gate(x)) * up(x)) of each row's expert.
void Decoder::ExpertProducts(const Pass& pass, const ExpertsBlock& e, const void* x) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  const DeviceLayer& expert = w.experts[0];
  GroupedProduct call;
  call.x = x;
  call.type = call.y_type = options_.type;
  call.experts = e.experts;
  call.max_rows = pass.count() * e.router.chosen;
  call.rows = &expert_rows_;
  call.weigh_inputs = e.router.weighs_input ? expert_rows_.row_weights : nullptr;
  const auto multiply = [&](Role role, Role bias, void* y) {
    call.w = w.stacked(role);
    call.shape = expert[role];
    call.shape.data = call.shape.scales = call.shape.offsets = nullptr;
    call.biases = expert.vector(bias);
    call.y = y;
    MultiplyGrouped(pass.s, call);
  };
  void* const up = ValuesAt(gate_up_, options_.max_tokens * e.router.chosen * e.expert.inner, options_.type);
  multiply(Role::kExpertGate, Role::kExpertGateBias, gate_up_);
  multiply(Role::kExpertUp, Role::kExpertUpBias, up);
  Activate(pass.s, {.f = e.expert.activation,
                    .gate = gate_up_,
                    .up = up,
                    .type = options_.type,
                    .tokens = call.max_rows,
                    .dim = e.expert.inner,
                    .out = gate_up_});
  call.x = gate_up_;
  call.gathered = true;
  call.weigh_inputs = nullptr;
  call.y_type = Real::kF32;
  multiply(Role::kExpertDown, Role::kExpertDownBias, expert_out_);
}

// ---- parallel streams (compute/model/streams_forward.cc) ----

// streams_ = hidden_, and its projections with the magnitude of hidden_
void Decoder::SplitStreams(const Pass& pass) {
  const int64_t dim = config_.hidden_size, width = config_.streams * dim, tokens = pass.count();
  CopyRows(pass.s, hidden_, dim, nullptr, tokens, dim, 4, streams_, width);
  for (int64_t k = 1; k < config_.streams; ++k) {
    const DeviceMatrix& w = weights_.outside.experts[static_cast<size_t>(k - 1)][Role::kStreamIn];
    Multiply(pass, {.x = Round(pass, {}, weights_.outside, hidden_, tokens), .w = &w, .y = branch_});
    MatchMagnitude(pass.s, {.like = hidden_,
                            .like_stride = dim,
                            .x = branch_,
                            .tokens = tokens,
                            .dim = dim,
                            .out = streams_ + k * dim,
                            .out_stride = width});
  }
}

// hidden = the mean of stream 0 and of the other streams' projections with its magnitude
void Decoder::MergeStreams(const Pass& pass) {
  const int64_t dim = config_.hidden_size, width = config_.streams * dim, tokens = pass.count();
  CopyRows(pass.s, streams_now_, width, nullptr, tokens, dim, 4, hidden_now_, dim);
  for (int64_t k = 1; k < config_.streams; ++k) {
    const DeviceMatrix& w = weights_.outside.experts[static_cast<size_t>(k - 1)][Role::kStreamOut];
    CopyRows(pass.s, streams_now_ + k * dim, width, nullptr, tokens, dim, 4, normed_, dim);
    Multiply(pass, {.x = Round(pass, {}, weights_.outside, normed_, tokens), .w = &w, .y = branch_});
    MatchMagnitude(pass.s, {.like = streams_now_,
                            .like_stride = width,
                            .x = branch_,
                            .tokens = tokens,
                            .dim = dim,
                            .out = hidden_now_,
                            .out_stride = dim,
                            .adds = true});
  }
  ScaleRows(pass.s, hidden_now_, 1.0f / static_cast<float>(config_.streams), 0.0f, tokens * dim);
}

// coefficients_ = the matrix `role` times tanh(router(norm(hidden)) / hidden's size)
void Decoder::StreamCoefficients(const Pass& pass, const StreamsBlock& b, Role role) {
  const DeviceLayer& w = weights_.layers[pass.layer];
  Norm(pass, b.norm, w, hidden_now_, pass.count(), normed_, Real::kF32);
  Multiply(pass, {.x = normed_, .w = &w[Role::kStreamRouter], .y = modalities_});
  TanhRows(pass.s, modalities_, 1.0f / static_cast<float>(config_.hidden_size), pass.count() * b.streams);
  Multiply(pass, {.x = modalities_, .w = &w[role], .y = coefficients_});
}

void Decoder::Change(const Pass& pass, const StreamsBlock& b) {
  const int64_t dim = config_.hidden_size;
  const bool predicts = b.step == StreamStep::kPredict;
  if (predicts) CopyRows(pass.s, streams_now_, b.streams * dim, nullptr, pass.count(), dim, 4, hidden_now_, dim);
  StreamCoefficients(pass, b, predicts ? Role::kPredict : Role::kCorrect);
  StreamsCall call{.streams = streams_now_,
                   .active = hidden_now_,
                   .coefficients = coefficients_,
                   .tokens = pass.count(),
                   .n = b.streams,
                   .dim = dim};
  if (!predicts) call.scale = weights_.layers[pass.layer].vector(Role::kStreamScale);
  predicts ? PredictStreams(pass.s, call) : CorrectStreams(pass.s, call);
}

}  // namespace tactus::compute::cuda
