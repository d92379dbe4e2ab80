#include "cost/scaled_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include "base/printable.h"

namespace tactus::cost {
namespace {

constexpr double kLeast = 0.01, kMost = 100;

struct Kind {
  std::string_view name;
  double OperatorScale::* factor;
};
constexpr Kind kKinds[] = {
    {"products", &OperatorScale::products},
    {"prompt-attention", &OperatorScale::prompt_attention},
    {"decode-attention", &OperatorScale::decode_attention},
    {"beside-chunk", &OperatorScale::beside_chunk},
    {"small", &OperatorScale::small},
    {"network", &OperatorScale::network},
};

std::string KnownKinds() {
  std::string names;
  for (const Kind& kind : kKinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  return names;
}

Status Wrong(std::string_view part, std::string_view why) {
  return InvalidArgument(fmt::format("--cost-scale: '{}' {}; write it as products=1.1,network=2; known are {}",
                                     Printable(part), why, KnownKinds()),
                         "cost-scale");
}

class ScaledOperators : public OperatorTimes {
 public:
  ScaledOperators(const OperatorScale& scale, std::unique_ptr<OperatorTimes> times)
      : scale_(scale), times_(std::move(times)) {}

  std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const override {
    return [ns = times_->Gemm(format, n, k), factor = scale_.products](int64_t m) { return factor * ns(m); };
  }
  std::function<double(int64_t)> Experts(const WeightFormat& format, const ExpertsShape& shape) const override {
    return [ns = times_->Experts(format, shape), factor = scale_.products](int64_t m) { return factor * ns(m); };
  }
  double PrefillBaseNs(const AttentionShape& shape) const override {
    return scale_.prompt_attention * times_->PrefillBaseNs(shape);
  }
  double PrefillAddsNs(const AttentionShape& shape, double tokens, double context) const override {
    return scale_.prompt_attention * times_->PrefillAddsNs(shape, tokens, context);
  }
  double PrefillAloneNs(const AttentionShape& shape, double tokens, double context) const override {
    return scale_.prompt_attention * times_->PrefillAloneNs(shape, tokens, context);
  }
  double DecodeNs(const AttentionShape& shape, double batch, double mean_context) const override {
    return scale_.decode_attention * times_->DecodeNs(shape, batch, mean_context);
  }
  double DecodeBesideChunkNs(const AttentionShape& shape, double batch, double mean_context) const override {
    return scale_.decode_attention * scale_.beside_chunk * times_->DecodeBesideChunkNs(shape, batch, mean_context);
  }
  double ElementwiseNs(Elementwise op, double bytes) const override {
    return scale_.small * times_->ElementwiseNs(op, bytes);
  }
  double AllReduceNs(double bytes, int32_t gpus) const override {
    return scale_.network * times_->AllReduceNs(bytes, gpus);
  }
  double ExchangeNs(double bytes, int32_t gpus, int32_t tp) const override {
    return scale_.network * times_->ExchangeNs(bytes, gpus, tp);
  }
  double SendNs(double bytes, int32_t among) const override { return scale_.network * times_->SendNs(bytes, among); }

 private:
  const OperatorScale scale_;
  const std::unique_ptr<OperatorTimes> times_;
};

}  // namespace

Result<OperatorScale> ParseOperatorScale(std::string_view text) {
  OperatorScale scale;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return Wrong(part, "has no factor");
    const std::string_view name = part.substr(0, equals), number = part.substr(equals + 1);
    const Kind* kind =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == name; });
    if (kind == std::end(kKinds)) return Wrong(part, "names an unknown kind of operator");
    if (!seen.insert(kind->name).second) return Wrong(part, "names a kind again");
    double factor = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), factor);
    if (error != std::errc() || end != number.data() + number.size() || !(factor >= kLeast && factor <= kMost))
      return Wrong(part, fmt::format("needs a factor from {:g} to {:g}", kLeast, kMost));
    scale.*(kind->factor) = factor;
  }
  return scale;
}

std::string Describe(const OperatorScale& scale) {
  std::string text;
  for (const Kind& kind : kKinds) {
    if (scale.*(kind.factor) != 1)
      text += fmt::format("{}{} x {:g}", text.empty() ? "" : ", ", kind.name, scale.*(kind.factor));
  }
  return text;
}

std::unique_ptr<OperatorTimes> MakeScaled(const OperatorScale& scale, std::unique_ptr<OperatorTimes> times) {
  if (scale == OperatorScale()) return times;
  return std::make_unique<ScaledOperators>(scale, std::move(times));
}

}  // namespace tactus::cost
