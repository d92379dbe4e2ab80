// Parallel streams of the residual (StreamsBlock) and low-rank residuals, in both passes. streams_ has a token's
// streams one after another. The blocks between the two steps of a layer read and change hidden_.
#include <algorithm>
#include <cmath>

#include "compute/model/decoder.h"
#include "compute/model/for_tokens.h"

namespace tactus::compute {
namespace {

constexpr float kLeastMeanSquare = 1e-5f;  // of a stream that is scaled to another's magnitude

float MeanSquare(const float* x, int64_t size) {
  float sum = 0.0f;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(size);
}

// The factor that gives `x` the magnitude of `like`.
float ScaleTo(const float* like, const float* x, int64_t size) {
  return std::sqrt(MeanSquare(like, size)) / std::sqrt(std::max(MeanSquare(x, size), kLeastMeanSquare));
}

}  // namespace

void Decoder::Product(const Pass& pass, const ProductMatrix& at, const float* x, float* y) {
  ModelTensor tensor;
  tensor.role = at.role, tensor.layer = at.layer, tensor.expert = at.number;
  if (weights_.packed == nullptr) return Linear(pass.pool, x, pass.tokens, MatrixAt(weights_, tensor), nullptr, y);
  const PackedMatrix& w = MatrixAt(*weights_.packed, tensor);
  const LinearOutput out{&w, nullptr, y, w.rows};
  const bool exact = IsRouting(at.role);
  PackedLinear(pass.pool, exact ? DecoderOperator::kRouter : DecoderOperator::kGated, {x}, pass.tokens, w.cols,
               {&out, 1}, exact ? Rounding::kNone : weights_.packed->roundings.others);
}

// streams_ = hidden_, and its projections with the magnitude of hidden_
void Decoder::SplitStreams(const Pass& pass) {
  const int64_t dim = config_.hidden_size, width = config_.streams * dim;
  for (int64_t s = 0; s < config_.streams; ++s) {
    if (s > 0) Product(pass, {Role::kStreamIn, -1, s - 1}, hidden_, branch_);
    ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
      const float *const like = hidden_ + t * dim, *const x = s > 0 ? branch_ + t * dim : like;
      const float scale = s > 0 ? ScaleTo(like, x, dim) : 1.0f;
      for (int64_t i = 0; i < dim; ++i) streams_[t * width + s * dim + i] = x[i] * scale;
    });
  }
}

// hidden_ = the mean of stream 0 and of the other streams' projections with its magnitude
void Decoder::MergeStreams(const Pass& pass) {
  const int64_t dim = config_.hidden_size;
  TakeStream(pass, 0, hidden_);
  for (int64_t s = 1; s < config_.streams; ++s) {
    TakeStream(pass, s, normed_);
    Product(pass, {Role::kStreamOut, -1, s - 1}, normed_, branch_);
    ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
      const float* const x = branch_ + t * dim;
      const float scale = ScaleTo(streams_ + t * config_.streams * dim, x, dim);
      for (int64_t i = 0; i < dim; ++i) hidden_[t * dim + i] += x[i] * scale;
    });
  }
  options_.ops->scale(pass.pool, hidden_, 1.0f / static_cast<float>(config_.streams), 0.0f, pass.tokens * dim);
}

// out [tokens, hidden] = stream s
void Decoder::TakeStream(const Pass& pass, int64_t s, float* out) const {
  const int64_t dim = config_.hidden_size;
  CopyRows(pass.pool, pass.tokens, dim, streams_ + s * dim, config_.streams * dim, out);
}

// coefficients_ = the matrix `role` times tanh(router(norm(hidden_)) / hidden)
void Decoder::StreamCoefficients(const Pass& pass, const StreamsBlock& b, Role role) {
  const auto layer = static_cast<int64_t>(pass.layer);
  Norm(pass.pool, b.norm, weights_.layers[pass.layer], hidden_, pass.tokens, normed_);
  Product(pass, {Role::kStreamRouter, layer, -1}, normed_, modalities_);
  const auto size = static_cast<float>(config_.hidden_size);
  for (int64_t i = 0; i < pass.tokens * b.streams; ++i) modalities_[i] = std::tanh(modalities_[i] / size);
  Product(pass, {role, layer, -1}, modalities_, coefficients_);
}

void Decoder::Predict(const Pass& pass, const StreamsBlock& b) {
  const int64_t n = b.streams, dim = config_.hidden_size;
  TakeStream(pass, 0, hidden_);
  StreamCoefficients(pass, b, Role::kPredict);
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    float* const streams = streams_ + t * n * dim;
    const float* const c = coefficients_ + t * n * n;
    for (int64_t d = 0; d < dim; ++d) {
      float before[kMaxStreams];
      for (int64_t k = 0; k < n; ++k) before[k] = streams[k * dim + d];
      for (int64_t i = 0; i < n; ++i) {
        float sum = 0.0f;
        for (int64_t k = 0; k < n; ++k) sum += c[i * n + k] * before[k];
        streams[i * dim + d] = before[i] + sum;
      }
      hidden_[t * dim + d] = streams[d];
    }
  });
}

void Decoder::Correct(const Pass& pass, const StreamsBlock& b) {
  const int64_t n = b.streams, dim = config_.hidden_size;
  const float* const scale = weights_.layers[pass.layer].vector(Role::kStreamScale);
  StreamCoefficients(pass, b, Role::kCorrect);
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    float* const streams = streams_ + t * n * dim;
    const float* const c = coefficients_ + t * n;
    for (int64_t d = 0; d < dim; ++d) {
      float& active = hidden_[t * dim + d];
      const float change = active - streams[d];
      for (int64_t i = 0; i < n; ++i) streams[i * dim + d] += change * (c[i] + 1.0f);
      active = streams[d] * scale[d];
    }
  });
}

// Every stream but the first += branch_
void Decoder::AddToOthers(const Pass& pass) {
  const int64_t n = config_.streams, dim = config_.hidden_size;
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    for (int64_t s = 1; s < n; ++s) {
      float* const to = streams_ + (t * n + s) * dim;
      for (int64_t i = 0; i < dim; ++i) to[i] += branch_[t * dim + i];
    }
  });
}

// branch_ = x + norm(right(left(x)))
void Decoder::LowRank(const Pass& pass, const LowRankBlock& b, const float* x) {
  const auto layer = static_cast<int64_t>(pass.layer);
  Product(pass, {Role::kLowRankLeft, layer, -1}, x, gate_);
  Product(pass, {Role::kLowRankRight, layer, -1}, gate_, branch_);
  Norm(pass.pool, b.norm, weights_.layers[pass.layer], branch_, pass.tokens, branch_);
  options_.ops->add(pass.pool, branch_, x, 1.0f, pass.tokens * config_.hidden_size);
}

void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const LowRankBlock& b) {
  Norm(pass.pool, norm, weights_.layers[pass.layer], pass.in, pass.tokens, normed_);
  LowRank(pass, b, normed_);
  if (out.adds) options_.ops->add(pass.pool, out.y, branch_, 1.0f, pass.tokens * config_.hidden_size);
}

void Decoder::Reference(const Pass& pass, const LowRankBlock& b) {
  LowRank(pass, b, normed_);
}

// gate_ = the gate less its mean and `cutoff` deviations of each token, at least 0
void Decoder::CutGate(const Pass& pass, const GatedFeedForwardBlock& f) {
  if (!f.cuts()) return;
  ForTokens(pass.pool, pass.tokens, [&](int64_t t) {
    float* const gate = gate_ + t * f.inner;
    const auto size = static_cast<double>(f.inner);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < f.inner; ++i) sum += static_cast<double>(gate[i]);
    const double mean = sum / size;
    for (int64_t i = 0; i < f.inner; ++i) {
      squares += (static_cast<double>(gate[i]) - mean) * (static_cast<double>(gate[i]) - mean);
    }
    const auto least = static_cast<float>(mean + std::sqrt(squares / size) * static_cast<double>(f.cutoff));
    for (int64_t i = 0; i < f.inner; ++i) gate[i] = std::max(gate[i] - least, 0.0f);
  });
}

}  // namespace tactus::compute
