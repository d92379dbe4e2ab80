// gemm.h by cuBLASLt. A row-major matrix is a column-major matrix transposed, so y = x w^T is computed as
// Y = W^T X with Y [rows, tokens], W [cols, rows] and X [cols, tokens] column by column: both factors run along cols,
// which is the one form that e4m3 has.
//
// Algorithms are chosen by the library's heuristic and kept, per shape and bucket of tokens (powers of two; a bucket's
// algorithm is chosen at its upper end). With batch invariance one algorithm, which adds along cols without splitting
// them, is kept for all numbers of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compute/cuda/cublaslt.h"
#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels/dense.h"
#include "compute/cuda/runtime_cuda.h"

namespace tactus::compute::cuda {

namespace {

constexpr int64_t kInvariantTokens = 256;  // with batch invariance the algorithm is chosen for these
constexpr int64_t kMostTokens = 65536;     // and must compute 1 to these
constexpr int kCandidates = 16;
constexpr int64_t kAlignment = 16;  // bytes, of full vectors

int LtType(Real type) {
  return type == Real::kF32 ? Lt::kF32 : type == Real::kBF16 ? Lt::kBF16 : Lt::kF16;
}

int64_t SizeOfLt(int type) {
  return type == Lt::kF32 ? 4 : type == Lt::kE4M3 ? 1 : 2;
}

// What an algorithm is chosen for, besides the tokens.
struct Shape {
  int64_t rows = 0, cols = 0;
  int type = 0, y_type = 0;        // Lt's
  int64_t alignment = kAlignment;  // of the operands' addresses and rows, in bytes, at most kAlignment
  bool operator==(const Shape&) const = default;
};

// cuBLASLt's objects, which are freed by a function.
template <class T>
struct Owned {
  T object = nullptr;
  int (*destroy)(T) = nullptr;
  Owned() = default;
  Owned(Owned&& other) noexcept : object(std::exchange(other.object, nullptr)), destroy(other.destroy) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (object != nullptr) destroy(object);
  }
};

struct Product {
  Shape shape;
  Owned<Lt::Operation> operation;
  Owned<Lt::Layout> w, x, y;
  Owned<Lt::Preference> preference;
  std::vector<std::optional<Lt::Algorithm>> algorithms;  // by bucket
};

int BucketOf(int64_t tokens) {
  return std::bit_width(static_cast<uint64_t>(tokens - 1));
}
int64_t EndOf(int bucket) {
  return int64_t{1} << bucket;
}

int64_t AlignmentOf(const Shape& shape, const GemmCall& call) {
  uint64_t places = kAlignment;
  for (const void* p : {call.x, call.w, static_cast<const void*>(call.y)}) places |= reinterpret_cast<uint64_t>(p);
  places |= static_cast<uint64_t>(shape.cols * SizeOfLt(shape.type));
  places |= static_cast<uint64_t>(call.y_stride * SizeOfLt(shape.y_type));
  return int64_t{1} << std::countr_zero(places);
}

std::string ShapeText(const Shape& shape) {
  return fmt::format("product of [tokens, {}] and [{}, {}]", shape.cols, shape.rows, shape.cols);
}

class LtGemm final : public Gemm {
 public:
  LtGemm(const Lt& lt, Lt::Handle handle, bool batch_invariant)
      : lt_(lt), handle_(handle), batch_invariant_(batch_invariant) {}
  ~LtGemm() override {
    products_.clear();
    lt_.Destroy(handle_);
  }

  Status Prepare(int64_t rows, int64_t cols, int64_t max_tokens, Real type, Real y_type) override {
    if (y_type != type && y_type != Real::kF32)
      return Unimplemented("a product's output is of its inputs' type or f32");
    TACTUS_RETURN_IF_ERROR(AllocateWorkspace());
    return PrepareShape({rows, cols, LtType(type), LtType(y_type)}, max_tokens);
  }

  Status PrepareFp8(int64_t rows, int64_t cols, int64_t max_tokens) override {
    if (rows % 16 != 0 || cols % 16 != 0) {
      return Unimplemented(fmt::format("products of FP8 values: {} x {} is no multiple of 16", rows, cols));
    }
    TACTUS_RETURN_IF_ERROR(AllocateWorkspace());
    const int64_t tokens = std::min(max_tokens, TokensOfPiece(rows));
    if (sums_.bytes() < tokens * rows * 4) {
      TACTUS_ASSIGN_OR_RETURN(sums_, DeviceMemory::Allocate(tokens * rows * 4, "sums of FP8 products"));
    }
    return PrepareShape({rows, cols, Lt::kE4M3, Lt::kF32}, tokens);
  }

  void Multiply(Stream& s, const GemmCall& call) override {
    if (call.tokens == 0 || call.rows == 0 || !DeviceStatus().ok()) return;
    Status status = call.x_scales != nullptr ? MultiplyFp8(s, call) : MultiplyReal(s, call);
    if (!status.ok()) FailDevice(std::move(status));
  }

 private:
  static int64_t TokensOfPiece(int64_t rows) { return std::max<int64_t>(1, kFp8SumBytes / (4 * rows)); }

  Status AllocateWorkspace() {
    if (workspace_.bytes() > 0) return Status();
    TACTUS_ASSIGN_OR_RETURN(workspace_, DeviceMemory::Allocate(kGemmScratchBytes, "scratch of products"));
    return Status();
  }

  Status PrepareShape(Shape shape, int64_t max_tokens) {
    GemmCall call;
    call.y_stride = shape.rows;
    shape.alignment = AlignmentOf(shape, call);
    for (int bucket = 0; bucket <= BucketOf(std::max<int64_t>(1, max_tokens)); ++bucket) {
      TACTUS_RETURN_IF_ERROR(AlgorithmFor(shape, EndOf(bucket)).status());
    }
    return Status();
  }

  Status MultiplyReal(Stream& s, const GemmCall& call) {
    Shape shape{call.rows, call.cols, LtType(call.type), LtType(call.y_type)};
    shape.alignment = AlignmentOf(shape, call);
    if (call.bias != nullptr) {
      SpreadBias(s, call.bias, call.tokens, call.rows, call.y, call.y_type, call.y_stride, call.adds);
    }
    return Run(s, shape, call, call.adds || call.bias != nullptr);
  }

  // In pieces of tokens that the sums have memory for.
  Status MultiplyFp8(Stream& s, const GemmCall& call) {
    const int64_t piece = std::min(call.tokens, sums_.bytes() / (4 * call.rows));
    if (piece == 0) return Internal("a product of FP8 values without PrepareFp8");
    const Shape shape{call.rows, call.cols, Lt::kE4M3, Lt::kF32};
    for (int64_t first = 0; first < call.tokens; first += piece) {
      GemmCall part = call;
      part.tokens = std::min(piece, call.tokens - first);
      part.x = static_cast<const std::byte*>(call.x) + first * call.cols;
      part.y = sums_.as<float>();
      part.y_stride = call.rows;
      TACTUS_RETURN_IF_ERROR(Run(s, shape, part, false));
      ScaleCall scale;
      scale.sums = sums_.as<float>();
      scale.tokens = part.tokens;
      scale.rows = call.rows;
      scale.x_scales = call.x_scales + first;
      scale.w_scales = call.w_scales;
      scale.one_w_scale = call.one_w_scale;
      scale.bias = call.bias;
      scale.y = static_cast<std::byte*>(call.y) + first * call.y_stride * SizeOf(call.y_type);
      scale.y_type = call.y_type;
      scale.y_stride = call.y_stride;
      scale.adds = call.adds;
      ScaleSums(s, scale);
    }
    return Status();
  }

  Status Run(Stream& s, const Shape& shape, const GemmCall& call, bool adds) {
    TACTUS_ASSIGN_OR_RETURN(const Lt::Algorithm* algorithm, AlgorithmFor(shape, call.tokens));
    Product& product = *Find(shape);
    TACTUS_RETURN_IF_ERROR(SetTokens(product, call.tokens, call.y_stride));
    const float one = 1.0f, old = adds ? 1.0f : 0.0f;
    return Checked(lt_.Matmul(handle_, product.operation.object, &one, call.w, product.w.object, call.x,
                              product.x.object, &old, call.y, product.y.object, call.y, product.y.object, algorithm,
                              workspace_.as(), static_cast<size_t>(workspace_.bytes()), NativeStream(s)),
                   shape);
  }

  Product* Find(const Shape& shape) {
    for (const auto& product : products_) {
      if (product->shape == shape) return product.get();
    }
    return nullptr;
  }

  // Chooses at first use. Neither memory of the device nor a synchronisation is needed for it.
  Result<const Lt::Algorithm*> AlgorithmFor(const Shape& shape, int64_t tokens) {
    if (Find(shape) == nullptr) {
      TACTUS_ASSIGN_OR_RETURN(auto made, Describe(shape));
      products_.push_back(std::move(made));
    }
    Product& product = *Find(shape);
    const auto bucket = static_cast<size_t>(batch_invariant_ ? 0 : BucketOf(tokens));
    if (product.algorithms.size() <= bucket) product.algorithms.resize(bucket + 1);
    std::optional<Lt::Algorithm>& algorithm = product.algorithms[bucket];
    if (!algorithm) {
      const int64_t end = EndOf(static_cast<int>(bucket));
      TACTUS_ASSIGN_OR_RETURN(algorithm, batch_invariant_ ? Choose(product, kInvariantTokens, 1, kMostTokens)
                                                          : Choose(product, end, end / 2 + 1, end));
    }
    return &*algorithm;
  }

  // The first algorithm of the heuristic's list for `tokens` that also computes `least` and `most`.
  Result<Lt::Algorithm> Choose(Product& product, int64_t tokens, int64_t least, int64_t most) {
    const Shape& shape = product.shape;
    TACTUS_RETURN_IF_ERROR(SetTokens(product, tokens, shape.rows));
    Lt::Found found[kCandidates] = {};
    int count = 0;
    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatmulAlgoGetHeuristic(handle_, product.operation.object, product.w.object,
                                                              product.x.object, product.y.object, product.y.object,
                                                              product.preference.object, kCandidates, found, &count),
                                   shape));
    for (int i = 0; i < count; ++i) {
      if (found[i].status != Lt::kSuccess) continue;
      TACTUS_ASSIGN_OR_RETURN(const bool fits, Computes(product, found[i].algorithm, least, most));
      if (fits) return found[i].algorithm;
    }
    return Unimplemented(fmt::format("cuBLASLt has no algorithm for the {} with {} to {} tokens on this device{}",
                                     ShapeText(shape), least, most,
                                     batch_invariant_ ? ": --batch-invariant off uses several" : ""));
  }

  // Whether it computes `least` tokens, `most`, and some between.
  Result<bool> Computes(Product& product, const Lt::Algorithm& algorithm, int64_t least, int64_t most) {
    for (int64_t tokens = least; tokens <= most; tokens = tokens < most ? std::min(2 * tokens, most) : most + 1) {
      TACTUS_RETURN_IF_ERROR(SetTokens(product, tokens, product.shape.rows));
      Lt::Found checked{};
      if (lt_.MatmulAlgoCheck(handle_, product.operation.object, product.w.object, product.x.object, product.y.object,
                              product.y.object, &algorithm, &checked) != Lt::kSuccess ||
          checked.workspace_bytes > static_cast<size_t>(kGemmScratchBytes)) {
        return false;
      }
    }
    return true;
  }

  Status SetTokens(Product& product, int64_t tokens, int64_t y_stride) {
    for (const auto layout : {product.x.object, product.y.object}) {
      TACTUS_RETURN_IF_ERROR(
          Checked(lt_.MatrixLayoutSetAttribute(layout, Lt::kLayoutColumns, &tokens, sizeof tokens), product.shape));
    }
    return Checked(lt_.MatrixLayoutSetAttribute(product.y.object, Lt::kLayoutStride, &y_stride, sizeof y_stride),
                   product.shape);
  }

  Result<std::unique_ptr<Product>> Describe(const Shape& shape) {
    auto p = std::make_unique<Product>();
    p->shape = shape;
    p->operation.destroy = lt_.MatmulDescDestroy;
    p->preference.destroy = lt_.MatmulPreferenceDestroy;
    for (Owned<Lt::Layout>* layout : {&p->w, &p->x, &p->y}) layout->destroy = lt_.MatrixLayoutDestroy;

    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatmulDescCreate(&p->operation.object, Lt::kCompute32F, Lt::kF32), shape));
    const int transpose = Lt::kTranspose;
    TACTUS_RETURN_IF_ERROR(Checked(
        lt_.MatmulDescSetAttribute(p->operation.object, Lt::kOperationTransA, &transpose, sizeof transpose), shape));
    const auto rows = static_cast<uint64_t>(shape.rows), cols = static_cast<uint64_t>(shape.cols);
    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatrixLayoutCreate(&p->w.object, shape.type, cols, rows, shape.cols), shape));
    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatrixLayoutCreate(&p->x.object, shape.type, cols, 1, shape.cols), shape));
    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatrixLayoutCreate(&p->y.object, shape.y_type, rows, 1, shape.rows), shape));

    TACTUS_RETURN_IF_ERROR(Checked(lt_.MatmulPreferenceCreate(&p->preference.object), shape));
    TACTUS_RETURN_IF_ERROR(Prefer(*p, Lt::kMaxWorkspace, static_cast<uint64_t>(kGemmScratchBytes)));
    const auto alignment = static_cast<uint32_t>(shape.alignment);
    for (int operand = 0; operand < 4; ++operand) {
      TACTUS_RETURN_IF_ERROR(Prefer(*p, Lt::kMinAlignmentA + operand, alignment));
    }
    if (batch_invariant_) TACTUS_RETURN_IF_ERROR(Prefer(*p, Lt::kReductions, Lt::kNoReduction));
    return p;
  }

  template <class T>
  Status Prefer(Product& product, int attribute, T value) {
    return Checked(lt_.MatmulPreferenceSetAttribute(product.preference.object, attribute, &value, sizeof value),
                   product.shape);
  }

  Status Checked(int status, const Shape& shape) const {
    if (status == Lt::kSuccess) return Status();
    return Internal(fmt::format("cuBLASLt, {}: {}", ShapeText(shape), lt_.GetStatusName(status)));
  }

  const Lt& lt_;
  const Lt::Handle handle_;
  const bool batch_invariant_;
  DeviceMemory workspace_;
  DeviceMemory sums_;
  std::vector<std::unique_ptr<Product>> products_;  // few
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(bool batch_invariant) {
  TACTUS_ASSIGN_OR_RETURN(const Lt* lt, Lt::Load());
  Lt::Handle handle = nullptr;
  if (const int status = lt->Create(&handle); status != Lt::kSuccess) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("cuBLASLt ({}) cannot be used: {}", lt->path, lt->GetStatusName(status)));
  }
  return std::unique_ptr<Gemm>(std::make_unique<LtGemm>(*lt, handle, batch_invariant));
}

}  // namespace tactus::compute::cuda
