// Times of a model's dense products on a device, with batch invariance (one algorithm for every number of tokens) and
// without (the library's choice for each). Prints one JSON object; times are in microseconds.
//
//   product_cells CONFIG [SHRINK]     CONFIG: config.json of a model of Llama's form; SHRINK divides the tokens
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "compute/cuda/gemm.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kRotatedBytes = int64_t{256} << 20;  // of weights in turns, more than a cache holds
constexpr int kSamples = 5, kMostRepeats = 20;
constexpr double kSampleFlops = 2e11;  // enough for a sample

template <class T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "product_cells: %s\n", result.status().message().c_str());
  std::exit(1);
}
void Must(const Status& status) {
  if (!status.ok()) Must(Result<int>(status));
}

struct Shape {
  const char* name;
  int64_t rows, cols;
  Real y_type;
};

std::vector<Shape> ShapesOf(const nlohmann::json& c) {
  const auto at = [&c](const char* key) { return c.at(key).get<int64_t>(); };
  const int64_t hidden = at("hidden_size"), inner = at("intermediate_size"), heads = at("num_attention_heads");
  const int64_t head = c.contains("head_dim") ? at("head_dim") : hidden / heads;
  return {{"qkv", head * (heads + 2 * at("num_key_value_heads")), hidden, Real::kBF16},
          {"attention_out", hidden, head * heads, Real::kF32},
          {"gate_up", 2 * inner, hidden, Real::kBF16},
          {"down", hidden, inner, Real::kF32},
          {"lm_head", at("vocab_size"), hidden, Real::kF32}};
}

// bf16 values in [-1, 1): zeros would need less power than a model's values.
DeviceMemory RandomValues(Stream& stream, int64_t n) {
  DeviceMemory memory = Must(DeviceMemory::Allocate(2 * n, "values"));
  std::vector<uint16_t> values(static_cast<size_t>(std::min<int64_t>(n, 1 << 22)));
  uint32_t state = 1;
  for (uint16_t& v : values) {
    state = state * 1664525u + 1013904223u;
    // A sign, an exponent from -8 to -1, and the mantissa.
    v = static_cast<uint16_t>((state >> 31) << 15 | (119 + (state >> 28) % 8) << 7 | (state >> 20 & 127));
  }
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t first = 0; first < n; first += size) {
    stream.CopyToDevice(memory.as<uint16_t>() + first, values.data(), 2 * std::min(size, n - first));
  }
  return memory;
}

class Products {
 public:
  Products(Stream& stream, const Shape& shape, int64_t most_tokens)
      : stream_(stream),
        shape_(shape),
        copies_(std::clamp<int64_t>(kRotatedBytes / (2 * shape.rows * shape.cols), 1, kMostRepeats)),
        w_(RandomValues(stream, copies_ * shape.rows * shape.cols)),
        x_(RandomValues(stream, most_tokens * shape.cols)),
        y_(Must(DeviceMemory::Allocate(most_tokens * shape.rows * SizeOf(shape.y_type), "y"))),
        start_(Must(Event::Create())),
        end_(Must(Event::Create())) {}

  double MedianUs(Gemm& gemm, int64_t tokens) {
    Must(gemm.Prepare(shape_.rows, shape_.cols, tokens, Real::kBF16, shape_.y_type));
    const double flops = 2.0 * static_cast<double>(tokens * shape_.rows * shape_.cols);
    const int repeats = static_cast<int>(std::clamp(kSampleFlops / flops, 2.0, double{kMostRepeats}));
    std::vector<double> us;
    for (int sample = 0; sample <= kSamples; ++sample) {
      start_->Record(stream_);
      for (int i = 0; i < repeats; ++i) Multiply(gemm, tokens);
      end_->Record(stream_);
      end_->Synchronize();
      if (sample > 0) us.push_back(end_->SecondsSince(*start_) * 1e6 / repeats);
    }
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }

 private:
  void Multiply(Gemm& gemm, int64_t tokens) {
    GemmCall call;
    call.x = x_.as<>();
    call.w = w_.as<uint16_t>() + turn_++ % copies_ * shape_.rows * shape_.cols;
    call.tokens = tokens, call.rows = shape_.rows, call.cols = shape_.cols;
    call.y = y_.as<>(), call.y_type = shape_.y_type, call.y_stride = shape_.rows;
    gemm.Multiply(stream_, call);
  }

  Stream& stream_;
  const Shape shape_;
  const int64_t copies_;
  const DeviceMemory w_, x_, y_;
  const std::unique_ptr<Event> start_, end_;
  int64_t turn_ = 0;
};

int Run(const char* path, int64_t shrink) {
  std::ifstream file(path);
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
  if (config.is_discarded()) {
    std::fprintf(stderr, "product_cells: %s is no JSON\n", path);
    return 1;
  }
  const DeviceInfo device = Must(OpenDevice(0));
  const auto stream = Must(Stream::Create());
  const auto invariant = Must(Gemm::Create(true)), chosen = Must(Gemm::Create(false));
  nlohmann::ordered_json result = {{"device", device.name}, {"cells", nlohmann::ordered_json::array()}};
  for (const Shape& shape : ShapesOf(config)) {
    const int64_t most = std::max<int64_t>(1, 8192 / shrink);
    Products products(*stream, shape, shape.name == std::string("lm_head") ? std::min<int64_t>(most, 256) : most);
    for (const int64_t size : {1, 8, 32, 128, 256, 512, 2048, 8192}) {
      if (shape.name == std::string("lm_head") && size > 256) break;  // of sampled rows alone
      const int64_t tokens = std::max<int64_t>(1, size / shrink);
      result["cells"].push_back({{"product", shape.name},
                                 {"rows", shape.rows},
                                 {"cols", shape.cols},
                                 {"tokens", tokens},
                                 {"chosen_us", products.MedianUs(*chosen, tokens)},
                                 {"invariant_us", products.MedianUs(*invariant, tokens)}});
    }
    Must(DeviceStatus());
  }
  std::printf("%s\n", result.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tactus::compute::cuda

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: product_cells CONFIG [SHRINK]\n");
    return 2;
  }
  return tactus::compute::cuda::Run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 1);
}
