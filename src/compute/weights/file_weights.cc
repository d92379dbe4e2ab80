#include "compute/weights/file_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <sys/mman.h>
#include <unistd.h>

#include "base/printable.h"
#include "compute/tensor/dequantize.h"
#include "compute/weights/weight_storage.h"

namespace tactus::compute {
namespace {

// Most block formats hold f16 scales; the blocks of mxfp4 have an odd size.
size_t AlignmentOf(DType dtype) {
  return dtype == DType::kF32 ? 4 : InfoOf(dtype).block_bytes % 2 == 0 ? 2 : 1;
}

bool IsAligned(const void* data, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % AlignmentOf(dtype) == 0;
}

Status NoMemory(const std::string& name, int64_t bytes) {
  return Status(StatusCode::kResourceExhausted,
                "no memory for tensor '" + Printable(name) + "' (" + std::to_string(bytes) + " bytes)");
}

// madvise over the pages of rows [first, first + count): all pages that they touch, or only those with no other data.
void Advise(const MatrixView& m, int64_t first, int64_t count, int advice, bool whole_pages_only) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(m.data) + static_cast<uintptr_t>(first * m.row_bytes);
  auto end = begin + static_cast<uintptr_t>(count * m.row_bytes);
  if (whole_pages_only) {
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
  } else {
    begin = begin / page * page;
  }
  if (begin < end)
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);  // refusal is harmless
                                                                         // harmless
}

class FileSource final : public WeightSource {
 public:
  FileSource(const TensorSet& tensors, const TensorNames& names, const std::string& path, const ModelConfig& config,
             MatrixUse use)
      : tensors_(tensors),
        names_(names),
        path_(path),
        tied_(config.tie_embeddings),
        use_(use),
        storage_(std::make_shared<WeightStorage>()) {
    if (use != MatrixUse::kViews) return;  // kept data are copies: the mapping may end
    for (const auto& file : tensors.files) storage_->Keep(file);
  }

  Result<MatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols) override {
    const int64_t shape[] = {rows, cols};
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(name, shape));
    MatrixView view{t->data, t->dtype, rows, cols, RowBytes(t->dtype, cols)};
    if (use_ == MatrixUse::kRows) return view;
    if (use_ == MatrixUse::kF32) {
      TACTUS_ASSIGN_OR_RETURN(float* const values, ToF32(name, *t, rows * cols));
      view = {values, DType::kF32, rows, cols, cols * 4};
    } else if (!IsAligned(t->data, t->dtype)) {
      std::byte* copy = storage_->Allocate(t->bytes);  // safetensors promises no alignment
      if (copy == nullptr) return NoMemory(name, t->bytes);
      std::memcpy(copy, t->data, static_cast<size_t>(t->bytes));
      view.data = copy;
    }
    bytes_ += rows * view.row_bytes;
    return view;
  }

  Result<const float*> Vector(const std::string& name, int64_t size, bool) override {
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(name, {&size, 1}));
    if (InfoOf(t->dtype).block_elements != 1) {
      return DataLoss(t->file + ": tensor '" + name + "' is " + InfoOf(t->dtype).name +
                      "; norms and biases are f32, f16 or bf16");
    }
    TACTUS_ASSIGN_OR_RETURN(float* const values, ToF32(name, *t, size));
    bytes_ += size * 4;
    return static_cast<const float*>(values);
  }

  // An unused tensor means that the model differs from its config: ignoring it would give wrong answers.
  Status Finish(ModelWeights* weights) override {
    for (const auto& [name, tensor] : tensors_.tensors) {
      if (used_.contains(name) || (tied_ && name == names_.lm_head)) continue;
      const bool ignored = std::any_of(names_.ignored.begin(), names_.ignored.end(), [&](std::string_view suffix) {
        return std::string_view(name).ends_with(suffix);
      });
      if (ignored) continue;
      return DataLoss(tensor.file + ": tensor '" + Printable(name) + "' " + ShapeText(tensor.shape) +
                      " has no place in the architecture and shape that the configuration describes");
    }
    weights->bytes = bytes_;
    weights->format = FormatText({counts_.begin(), counts_.end()});
    if (use_ == MatrixUse::kF32) weights->format = "f32 from " + weights->format;
    weights->storage = storage_;
    return Status();
  }

  const std::byte* Rows(const std::string&, const MatrixView& m, int64_t first, int64_t count,
                        std::byte* scratch) override {
    const std::byte* data = static_cast<const std::byte*>(m.data) + first * m.row_bytes;
    if (IsAligned(data, m.dtype)) return data;
    std::memcpy(scratch, data, static_cast<size_t>(count * m.row_bytes));
    return scratch;
  }

  void Prefetch(const MatrixView& m, int64_t first, int64_t count) override {
    Advise(m, first, count, MADV_WILLNEED, false);
  }
  void Release(const MatrixView& m, int64_t first, int64_t count) override {
    Advise(m, first, count, MADV_DONTNEED, true);
  }

 private:
  Result<const TensorEntry*> Take(const std::string& name, std::span<const int64_t> shape) {
    const TensorEntry* t = tensors_.Find(name);
    if (t == nullptr) {
      return DataLoss(path_ + ": tensor '" + name + "' " + ShapeText(shape) + " is missing");
    }
    if (!std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end())) {
      return DataLoss(t->file + ": tensor '" + name + "' is " + InfoOf(t->dtype).name + " " + ShapeText(t->shape) +
                      ", the configuration expects " + ShapeText(shape));
    }
    if (used_.insert(name).second) ++counts_[t->dtype];
    return t;
  }

  Result<float*> ToF32(const std::string& name, const TensorEntry& t, int64_t elements) {
    auto* values = reinterpret_cast<float*>(storage_->Allocate(elements * 4));
    if (values == nullptr) return NoMemory(name, elements * 4);
    Dequantize(t.dtype, t.data, elements, values);
    return values;
  }

  const TensorSet& tensors_;
  const TensorNames& names_;
  const std::string& path_;
  bool tied_;
  MatrixUse use_;
  std::shared_ptr<WeightStorage> storage_;
  std::set<std::string, std::less<>> used_;
  std::map<DType, int64_t> counts_;
  int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> MakeFileSource(const TensorSet& tensors, const TensorNames& names,
                                             const std::string& path, const ModelConfig& config, MatrixUse use) {
  return std::make_unique<FileSource>(tensors, names, path, config, use);
}

}  // namespace tactus::compute
