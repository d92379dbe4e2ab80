// Mixtures of experts in both passes. The tokens of a step are grouped by expert, and each expert's weights are read
// once for all of its tokens. A token's experts are added in the order of their numbers, after the shared expert, so
// that neither the batch nor the threads change a bit.
#include <algorithm>

#include "compute/model/decoder.h"
#include "compute/model/for_tokens.h"
#include "compute/model/router.h"

namespace tactus::compute {

void Decoder::ChooseExperts(const Pass& pass, const ExpertsBlock& e) {
  const LayerWeights& w = weights_.layers[pass.layer];
  const float *const choice_bias = w.vector(Role::kChoiceBias), *const scale = w.vector(Role::kExpertScale);
  const int64_t chosen = e.router.chosen;
  if (e.router.logit_scale != 1.0f) {
    options_.ops->scale(pass.pool, router_, e.router.logit_scale, 0.0f, pass.tokens * e.experts);
  }
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    float scratch[2 * kMaxExperts];
    Route(e.router, e.experts, router_ + t * e.experts, choice_bias, scale, scratch, experts_.chosen() + t * chosen,
          experts_.weights() + t * chosen);
    shared_weight_[t] = e.shared_weight ? Sigmoid(shared_weight_[t]) : 1.0f;
  });
  experts_.Group(e, pass.tokens);
}

void Decoder::WeighInputs(const Pass& pass, const float* x) {
  const int64_t dim = config_.hidden_size;
  ForTokens(pass.pool, experts_.rows(), [&](int64_t r) {
    const float* from = x + experts_.token(r) * dim;
    for (int64_t i = 0; i < dim; ++i) expert_out_[r * dim + i] = from[i] * experts_.weight_of_row(r);
  });
}

bool Decoder::ExpertsWholePacked(const Pass& pass, const ExpertsBlock& e, const PackedInput& in) {
  if (!WholeExperts::Compute(e)) return false;
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const TokenRoundings& roundings = weights_.packed->roundings;
  const TokenFormat format = TokensFor(w.experts[0][Role::kExpertGate], roundings.others);
  const auto takes = [&](const PackedMatrix& m) { return TokensFor(m, roundings.others) == format; };
  if (!takes(w.experts[0][Role::kExpertUp])) return false;
  const bool shares = e.shared_inner > 0;
  if (shares && (!takes(w[Role::kSharedGate]) || !takes(w[Role::kSharedUp]))) return false;

  const int64_t dim = config_.hidden_size;
  const PackedTokens x = PlaceTokens(packed_x_, format, pass.tokens, dim);
  whole_experts_.Clear();
  if (shares) {
    const PackedMatrix& down = w[Role::kSharedDown];
    whole_experts_.Add({.x = x,
                        .count = pass.tokens,
                        .gate = &w[Role::kSharedGate],
                        .up = &w[Role::kSharedUp],
                        .down = &down,
                        .inner = TokensFor(down, roundings.down),
                        .y = expert_out_ + experts_.rows() * dim});
  }
  for (const int32_t expert : experts_.active()) {
    const auto i = static_cast<size_t>(expert);
    const PackedMatrix& down = w.experts[i][Role::kExpertDown];
    whole_experts_.Add({.x = x,
                        .tokens = experts_.tokens(expert),
                        .count = experts_.count(expert),
                        .gate = &w.experts[i][Role::kExpertGate],
                        .up = &w.experts[i][Role::kExpertUp],
                        .down = &down,
                        .gate_bias = layer.experts[i].vector(Role::kExpertGateBias),
                        .up_bias = layer.experts[i].vector(Role::kExpertUpBias),
                        .down_bias = layer.experts[i].vector(Role::kExpertDownBias),
                        .inner = TokensFor(down, roundings.down),
                        .y = expert_out_ + experts_.first(expert) * dim});
  }
  if (!whole_experts_.Occupies(pass.pool.threads())) return false;
  Round(pass.pool, in, x);
  Timed(
      DecoderOperator::kExperts, [&] { whole_experts_.Run(*options_.ops, pass.pool, expert_workspace_); },
      [&] { return whole_experts_.CostOfLastRun(); });
  return true;
}

// out (+)= the shared expert's and the chosen experts' outputs in expert_out_, each times its weight.
void Decoder::AddExperts(const Pass& pass, const ExpertsBlock& e, const BlockOutput& out) {
  const int64_t dim = config_.hidden_size;
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    float* const y = out.y + t * dim;
    if (!out.adds) std::fill(y, y + dim, 0.0f);
    const auto add = [&](int64_t row, float weight) {
      options_.ops->add(inline_, y, expert_out_ + row * dim, weight, dim);
    };
    if (e.shared_inner > 0) add(experts_.rows() + t, shared_weight_[t]);
    for (int32_t n = 0; n < e.router.chosen; ++n) {
      add(experts_.row(t, n), e.router.weighs_input ? 1.0f : experts_.weight(t, n));
    }
  });
}

// Adds the products of gate or up of every row: y = w(x).
void Decoder::AddExpertInputs(const Pass& pass, const ExpertsBlock& e, const PackedInput& in, const ExpertInput& part) {
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const int64_t dim = config_.hidden_size, rows = experts_.rows(), inner = e.expert.inner;
  const Rounding rounding = weights_.packed->roundings.others;
  const TokenFormat format = TokensFor(w.experts[0][part.role], rounding);
  const PackedTokens gathered = PlaceTokens(packed_rows_, format, rows, dim);
  if (part.rounds) {
    if (e.router.weighs_input) {
      WeighInputs(pass, in.x);
      Round(pass.pool, {expert_out_}, gathered);
    } else {
      const PackedTokens tokens = PlaceTokens(packed_x_, format, pass.tokens, dim);
      Round(pass.pool, in, tokens);
      GatherTokens(pass.pool, tokens, gathered, [&](int64_t row) { return experts_.token(row); });
    }
  }
  for (const int32_t expert : experts_.active()) {
    const auto at = static_cast<size_t>(expert);
    const int64_t first = experts_.first(expert);
    products_.Add(TokenSlice(gathered, first, experts_.count(expert)),
                  {&w.experts[at][part.role], layer.experts[at].vector(part.bias), part.y + first * inner, inner});
  }
  if (e.shared_inner == 0) return;
  const TokenFormat shared_format = TokensFor(w[part.shared], rounding);
  const PackedTokens tokens = PlaceTokens(packed_x_, shared_format, pass.tokens, dim);
  if (part.rounds && (e.router.weighs_input || shared_format != format)) Round(pass.pool, in, tokens);
  products_.Add(tokens, {&w[part.shared], nullptr, part.y + rows * inner, e.shared_inner});
}

// gate_ = act(gate(x)) * up(x) of every row. Files may have gate and up in formats for which tokens are rounded
// differently.
void Decoder::ExpertsUpPacked(const Pass& pass, const ExpertsBlock& e, const PackedInput& in) {
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const Rounding rounding = weights_.packed->roundings.others;
  const auto alike = [&](const PackedMatrix& a, const PackedMatrix& b) {
    return TokensFor(a, rounding) == TokensFor(b, rounding);
  };
  const bool together = alike(w.experts[0][Role::kExpertGate], w.experts[0][Role::kExpertUp]) &&
                        (e.shared_inner == 0 || alike(w[Role::kSharedGate], w[Role::kSharedUp]));
  const auto run = [&] {
    Timed(
        DecoderOperator::kGated, [&] { products_.Run(*options_.ops, pass.pool, expert_workspace_); },
        [&] { return products_.CostOfLastRun(); });
  };
  AddExpertInputs(pass, e, in, {Role::kExpertGate, Role::kExpertGateBias, Role::kSharedGate, gate_, true});
  if (!together) run();
  AddExpertInputs(pass, e, in, {Role::kExpertUp, Role::kExpertUpBias, Role::kSharedUp, up_, !together});
  run();
  const int64_t elements = experts_.rows() * e.expert.inner + pass.tokens * e.shared_inner;
  options_.ops->activate(pass.pool, e.expert.activation, gate_, up_, elements, gate_);
}

// expert_out_ = down(gate_) of every row.
void Decoder::ExpertsDownPacked(const Pass& pass, const ExpertsBlock& e) {
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const Rounding rounding = weights_.packed->roundings.down;
  const int64_t dim = config_.hidden_size, rows = experts_.rows(), inner = e.expert.inner;
  const PackedTokens x = PlaceTokens(packed_inner_, TokensFor(w.experts[0][Role::kExpertDown], rounding), rows, inner);
  Round(pass.pool, {gate_}, x);
  if (e.shared_inner > 0) {
    const PackedTokens shared = PlaceTokens(packed_inner_ + PackedTokenBytes(rows, inner),
                                            TokensFor(w[Role::kSharedDown], rounding), pass.tokens, e.shared_inner);
    Round(pass.pool, {gate_ + rows * inner}, shared);
    products_.Add(shared, {&w[Role::kSharedDown], nullptr, expert_out_ + rows * dim, dim});
  }
  for (const int32_t expert : experts_.active()) {
    const auto i = static_cast<size_t>(expert);
    const int64_t first = experts_.first(expert);
    products_.Add(TokenSlice(x, first, experts_.count(expert)),
                  {&w.experts[i][Role::kExpertDown], layer.experts[i].vector(Role::kExpertDownBias),
                   expert_out_ + first * dim, dim});
  }
  Timed(
      DecoderOperator::kDown, [&] { products_.Run(*options_.ops, pass.pool, expert_workspace_); },
      [&] { return products_.CostOfLastRun(); });
}

// out = the mixture of norm(in). The router reads unrounded tokens.
void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const ExpertsBlock& e) {
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  PackedInput in{pass.in};
  if (norm.exists()) {
    Norm(pass.pool, norm, layer, pass.in, pass.tokens, normed_);
    in.x = normed_;
  }
  const LinearOutput routing[] = {{&w[Role::kRouter], layer.vector(Role::kRouterBias), router_, e.experts},
                                  {&w[Role::kSharedWeight], nullptr, shared_weight_, 1}};
  std::span<const LinearOutput> products = std::span(routing).first(e.shared_weight ? 2 : 1);
  if (e.router_norm.exists()) {
    Norm(pass.pool, e.router_norm, layer, pass.in, pass.tokens, branch_);
    PackedLinear(pass.pool, DecoderOperator::kRouter, {branch_}, pass.tokens, config_.hidden_size, products.first(1),
                 Rounding::kNone);
    products = products.subspan(1);
  }
  PackedLinear(pass.pool, DecoderOperator::kRouter, in, pass.tokens, config_.hidden_size, products, Rounding::kNone);
  ChooseExperts(pass, e);
  if (!ExpertsWholePacked(pass, e, in)) {
    ExpertsUpPacked(pass, e, in);
    ExpertsDownPacked(pass, e);
  }
  AddExperts(pass, e, out);
}

// branch_ = the mixture of normed_
void Decoder::Reference(const Pass& pass, const ExpertsBlock& e) {
  const LayerWeights& w = weights_.layers[pass.layer];
  ThreadPool& pool = pass.pool;
  const int64_t tokens = pass.tokens, dim = config_.hidden_size, inner = e.expert.inner;
  const float* router_x = normed_;
  if (e.router_norm.exists()) {
    Norm(pool, e.router_norm, w, pass.in, tokens, branch_);
    router_x = branch_;
  }
  Linear(pool, router_x, tokens, w[Role::kRouter], w.vector(Role::kRouterBias), router_);
  if (e.shared_weight) Linear(pool, normed_, tokens, w[Role::kSharedWeight], nullptr, shared_weight_);
  ChooseExperts(pass, e);
  const int64_t rows = experts_.rows();
  auto* const x = reinterpret_cast<float*>(packed_rows_);  // [rows, hidden]
  for (int64_t r = 0; r < rows; ++r) {
    const float weight = e.router.weighs_input ? experts_.weight_of_row(r) : 1.0f;
    for (int64_t i = 0; i < dim; ++i) x[r * dim + i] = weight * normed_[experts_.token(r) * dim + i];
  }
  const auto gated = [&](const float* in, int64_t count, const LayerWeights& own, Role gate, Role up, int64_t width) {
    Linear(pool, in, count, own[gate], own.vector(Role::kExpertGateBias), gate_);
    Linear(pool, in, count, own[up], own.vector(Role::kExpertUpBias), up_);
    options_.ops->activate(pool, e.expert.activation, gate_, up_, count * width, gate_);
  };
  for (int64_t expert = 0; expert < e.experts; ++expert) {
    const LayerWeights& own = w.experts[static_cast<size_t>(expert)];
    const int64_t first = experts_.first(expert), count = experts_.count(expert);
    if (count == 0) continue;
    gated(x + first * dim, count, own, Role::kExpertGate, Role::kExpertUp, inner);
    Linear(pool, gate_, count, own[Role::kExpertDown], own.vector(Role::kExpertDownBias), expert_out_ + first * dim);
  }
  if (e.shared_inner > 0) {
    gated(normed_, tokens, w, Role::kSharedGate, Role::kSharedUp, e.shared_inner);
    Linear(pool, gate_, tokens, w[Role::kSharedDown], nullptr, expert_out_ + rows * dim);
  }
  AddExperts(pass, e, {branch_, false});
}

}  // namespace tactus::compute
