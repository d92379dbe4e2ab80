#include "compute/config/block_text.h"

namespace tactus::compute {
namespace {

std::string NameOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluErf:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu2:
      return "relu2";
    case Activation::kClampedSwiglu:
      return "clamped_swiglu";
  }
  return "unknown";
}

std::string Text(const AttentionBlock& a) {
  std::string text = "attention " + std::to_string(a.heads) + " heads, " + std::to_string(a.kv_heads) +
                     " KV heads, head_dim " + std::to_string(a.head_dim);
  if (a.window > 0) text += ", window " + std::to_string(a.window);
  if (a.chunk > 0) text += ", chunks of " + std::to_string(a.chunk);
  if (a.qkv_bias || a.o_bias) text += ", biases";
  if (a.qk_norm != QkNorm::kNone) text += ", q and k norms";
  if (a.rope == RopeChoice::kNone) text += a.alibi != 0 ? ", ALiBi" : ", no rotary positions";
  if (a.rope == RopeChoice::kLocal) text += ", local rotary base";
  if (a.softcap != 0) text += ", capped scores";
  if (a.sinks) text += ", sinks";
  if (a.k_is_v) text += ", K = V";
  if (!a.stores_kv()) text += ", KV of layer " + std::to_string(a.kv_layer);
  return text;
}

std::string InnerText(const GatedFeedForwardBlock& f) {
  return NameOf(f.activation) + " gated" + (f.bias ? ", biases" : "") + (f.cuts() ? ", sparse" : "");
}

std::string Text(const GatedFeedForwardBlock& f) {
  return "feed-forward " + std::to_string(f.inner) + " " + InnerText(f);
}

std::string Text(const FeedForwardBlock& f) {
  return "feed-forward " + std::to_string(f.inner) + " " + NameOf(f.activation) + (f.bias ? ", biases" : "");
}

std::string Text(const LayerInputBlock& f) {
  return "layer input " + std::to_string(f.inner) + " " + NameOf(f.activation) + " gated";
}

std::string Text(const LowRankBlock& b) {
  return "low-rank residual " + std::to_string(b.rank);
}

std::string Text(const StreamsBlock& b) {
  return (b.step == StreamStep::kPredict ? "predict " : "correct ") + std::to_string(b.streams) + " streams";
}

std::string Text(const ExpertsBlock& e) {
  return std::to_string(e.experts) + " experts, " + std::to_string(e.router.chosen) + " per token, " +
         std::to_string(e.expert.inner) + " wide " + InnerText(e.expert) +
         (e.shared_inner > 0 ? ", shared " + std::to_string(e.shared_inner) : "");
}

std::vector<BlockField> Fields(const AttentionBlock& a) {
  return {{"block", "attention"},
          {"heads", a.heads},
          {"kv_heads", a.kv_heads},
          {"head_dim", a.head_dim},
          {"window", int64_t{a.window}},
          {"chunk", int64_t{a.chunk}},
          {"qkv_bias", a.qkv_bias},
          {"o_bias", a.o_bias},
          {"qk_norm", a.qk_norm != QkNorm::kNone},
          {"rope", a.rope != RopeChoice::kNone},
          {"sinks", a.sinks}};
}
std::vector<BlockField> Fields(const GatedFeedForwardBlock& f) {
  return {{"block", "feed_forward"},
          {"inner", f.inner},
          {"activation", NameOf(f.activation)},
          {"gated", true},
          {"bias", f.bias}};
}
std::vector<BlockField> Fields(const FeedForwardBlock& f) {
  return {{"block", "feed_forward"},
          {"inner", f.inner},
          {"activation", NameOf(f.activation)},
          {"gated", false},
          {"bias", f.bias}};
}
std::vector<BlockField> Fields(const LayerInputBlock& f) {
  return {{"block", "layer_input"}, {"inner", f.inner}, {"activation", NameOf(f.activation)}, {"gated", true}};
}
std::vector<BlockField> Fields(const LowRankBlock& b) {
  return {{"block", "low_rank"}, {"rank", b.rank}};
}
std::vector<BlockField> Fields(const StreamsBlock& b) {
  return {{"block", b.step == StreamStep::kPredict ? "predict_streams" : "correct_streams"}, {"streams", b.streams}};
}
std::vector<BlockField> Fields(const ExpertsBlock& e) {
  return {{"block", "experts"},
          {"experts", e.experts},
          {"per_token", int64_t{e.router.chosen}},
          {"inner", e.expert.inner},
          {"activation", NameOf(e.expert.activation)},
          {"gated", true},
          {"bias", e.expert.bias},
          {"shared_inner", e.shared_inner}};
}

// The last index of the longest run from `first` whose neighbours differ by `step`.
size_t RunEnd(const std::vector<int64_t>& numbers, size_t first, int64_t step) {
  size_t last = first;
  while (last + 1 < numbers.size() && numbers[last + 1] - numbers[last] == step) ++last;
  return last;
}

}  // namespace

std::string TextOf(const Block& block) {
  return std::visit([](const auto& b) { return Text(b); }, block);
}

std::string TextOf(const Layer& layer) {
  std::string text;
  for (const LayerBlock& b : layer) {
    const bool beside = b.parallel || b.joint.exists();
    text += (text.empty() ? "" : beside ? " beside " : "; ") + TextOf(b.block);
  }
  return text;
}

std::vector<BlockField> FieldsOf(const Block& block) {
  return std::visit([](const auto& b) { return Fields(b); }, block);
}

std::string RangesText(const std::vector<int64_t>& numbers) {
  constexpr size_t kLongest = 3;  // numbers that are written out
  const int64_t step = numbers.size() > kLongest ? numbers[1] - numbers[0] : 1;
  if (step > 1 && RunEnd(numbers, 0, step) + 1 == numbers.size()) {
    return std::to_string(numbers[0]) + ", " + std::to_string(numbers[1]) + " ... " + std::to_string(numbers.back());
  }
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    const size_t last = RunEnd(numbers, first, 1);
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace tactus::compute
