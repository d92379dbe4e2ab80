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
        layers_(config.num_layers()),
        unused_layers_(config.unused_layers),
        use_(use),
        storage_(std::make_shared<WeightStorage>()) {
    for (int64_t l = 0; l < config.num_layers(); ++l) {
      const AttentionBlock* const attention = AttentionOf(config.layers[static_cast<size_t>(l)]);
      if (attention == nullptr || attention->stores_kv()) continue;
      for (const Role role : {Role::kK, Role::kV, Role::kKNorm}) unneeded_.insert(names.Name(role, l));
    }
    if (use != MatrixUse::kViews) return;  // kept data are copies: the mapping may end
    for (const auto& file : tensors.files) storage_->Keep(file);
  }

  Result<MatrixView> Matrix(const TensorRequest& wanted) override {
    const int64_t rows = wanted.tensor.rows, cols = wanted.tensor.cols;
    const TensorRequest request = AsStored(wanted);
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(request));
    MatrixView view{t->data, t->dtype, rows, cols, RowBytes(t->dtype, cols)};
    const bool in_place = request.in_place() && t->rows == nullptr;
    if (request.transposed() && InfoOf(t->dtype).block_elements != 1) {
      return DataLoss(t->file + ": tensor '" + request.name + "' is " + InfoOf(t->dtype).name +
                      "; a transposed matrix is f32, f16 or bf16");
    }
    if (in_place) {
      view.data = static_cast<const std::byte*>(view.data) + request.RowInFile(0) * view.row_bytes;
    } else {
      scattered_.emplace(request.id, Scattered{request, t});
    }
    if (t->rows != nullptr) made_.emplace(view.data, t->rows->file_row_bytes());
    if (use_ == MatrixUse::kRows) return view;
    if (use_ == MatrixUse::kF32 && t->rows != nullptr) return NumbersOf(request, *t->rows);
    if (!in_place || (use_ == MatrixUse::kViews && !IsAligned(view.data, t->dtype))) {
      std::byte* copy = storage_->Allocate(rows * view.row_bytes);  // safetensors promises no alignment
      if (copy == nullptr) return NoMemory(request.name, rows * view.row_bytes);
      CopyRows(request.id, view, 0, rows, copy);
      view.data = copy;
    }
    if (use_ == MatrixUse::kF32) {
      TACTUS_ASSIGN_OR_RETURN(float* const values, ToF32(request.name, t->dtype, view.data, rows * cols));
      view = {values, DType::kF32, rows, cols, cols * 4};
    }
    bytes_ += rows * view.row_bytes;
    return view;
  }

  Result<const float*> Vector(const TensorRequest& request) override {
    const int64_t size = request.tensor.rows;
    TACTUS_ASSIGN_OR_RETURN(const TensorEntry* const t, Take(request));
    if (InfoOf(t->dtype).block_elements != 1 || t->rows != nullptr) {
      return DataLoss(t->file + ": tensor '" + request.name + "' is " + InfoOf(t->dtype).name +
                      "; norms and biases are f32, f16 or bf16");
    }
    TACTUS_ASSIGN_OR_RETURN(
        float* const all,
        ToF32(request.name, t->dtype, t->data + RowBytes(t->dtype, request.FirstElement()), request.FileRows()));
    if (request.fused()) {  // its rows to the front, which never come before their place
      for (int64_t i = 0; i < size; ++i) all[i] = all[request.FileRow(i)];
    }
    if (request.form == TensorSource::kMinusOne) {
      for (int64_t i = 0; i < size; ++i) all[i] += 1.0f;
    }
    bytes_ += size * 4;
    return static_cast<const float*>(all);
  }

  // An unused tensor means that the model differs from its config: ignoring it would give wrong answers.
  Status Finish(ModelWeights* weights) override {
    for (const auto& [name, tensor] : tensors_.tensors) {
      if (used_.contains(name) || unneeded_.contains(name) || (tied_ && name == names_.Name(Role::kLmHead))) continue;
      const bool ignored = std::any_of(names_.ignored.begin(), names_.ignored.end(), [&](std::string_view suffix) {
        return std::string_view(name).ends_with(suffix);
      });
      if (ignored || OfUnusedLayer(name)) continue;
      if (IsScaleOfNvfp4(name)) {
        return Unimplemented(tensor.file + ": tensor '" + Printable(name) +
                             "' is a scale beside an NVFP4 matrix, whose meaning the GGUF format does not state; use "
                             "the safetensors folder that the file was made of, or a GGUF file in another format");
      }
      return DataLoss(tensor.file + ": tensor '" + Printable(name) + "' " + ShapeText(tensor.shape) +
                      " has no place in the architecture and shape that the configuration describes");
    }
    weights->bytes = bytes_;
    weights->format = FormatText({counts_.begin(), counts_.end()});
    if (use_ == MatrixUse::kF32) weights->format = "f32 from " + weights->format;
    weights->storage = storage_;
    return Status();
  }

  const std::byte* Rows(const std::string& id, const MatrixView& m, int64_t first, int64_t count,
                        std::byte* scratch) override {
    const std::byte* data = static_cast<const std::byte*>(m.data) + first * m.row_bytes;
    if (IsAligned(data, m.dtype) && !scattered_.contains(id)) return data;
    CopyRows(id, m, first, count, scratch);
    return scratch;
  }

  int64_t ScaleColumns(const std::string& id) override {
    const auto found = scattered_.find(id);
    return found == scattered_.end() || found->second.tensor->rows == nullptr
               ? 0
               : found->second.tensor->rows->scale_columns();
  }
  E4M3Row E4M3(const std::string& id, int64_t row) override {
    const auto found = scattered_.find(id);
    if (found == scattered_.end() || found->second.tensor->rows == nullptr) return {};
    return found->second.tensor->rows->E4M3(found->second.request.RowInFile(row));
  }

  void Prefetch(const MatrixView& m, int64_t first, int64_t count) override {
    Advise(InFile(m), first, count, MADV_WILLNEED, false);
  }
  void Release(const MatrixView& m, int64_t first, int64_t count) override {
    Advise(InFile(m), first, count, MADV_DONTNEED, true);
  }

 private:
  // A tensor that is not stored as rows of its dtype one after another.
  struct Scattered {
    TensorRequest request;
    const TensorEntry* tensor = nullptr;
  };

  // The rows of `m` in the file: those of a weight made of several tensors have another size, or no place (0).
  MatrixView InFile(const MatrixView& m) const {
    MatrixView stored = m;
    if (const auto made = made_.find(m.data); made != made_.end()) stored.row_bytes = made->second;
    return stored;
  }

  Result<MatrixView> NumbersOf(const TensorRequest& request, const WeightRows& rows) {
    const int64_t count = request.tensor.rows, cols = request.tensor.cols, bytes = count * cols * 4;
    auto* const values = reinterpret_cast<float*>(storage_->Allocate(bytes));
    if (values == nullptr) return NoMemory(request.name, bytes);
    for (int64_t r = 0; r < count; ++r) rows.Numbers(request.RowInFile(r), values + r * cols);
    bytes_ += bytes;
    return MatrixView{values, DType::kF32, count, cols, cols * 4};
  }

  // Rows [first, first + count) of a matrix, as the file has their elements.
  void CopyRows(const std::string& id, const MatrixView& m, int64_t first, int64_t count, std::byte* out) const {
    const auto row_bytes = static_cast<size_t>(m.row_bytes);
    const auto found = scattered_.find(id);
    if (found == scattered_.end()) {
      std::memcpy(out, static_cast<const std::byte*>(m.data) + first * m.row_bytes,
                  static_cast<size_t>(count) * row_bytes);
      return;
    }
    const TensorRequest& request = found->second.request;
    const auto* const from = found->second.tensor->data + RowBytes(m.dtype, request.FirstElement());
    const auto element = static_cast<size_t>(RowBytes(m.dtype, InfoOf(m.dtype).block_elements));
    for (int64_t r = 0; r < count; ++r, out += row_bytes) {
      const int64_t row = request.FileRow(first + r);
      if (const auto& rows = found->second.tensor->rows; rows != nullptr) {
        rows->Stored(request.RowInFile(first + r), out);
        continue;
      }
      if (!request.transposed()) {
        std::memcpy(out, from + row * m.row_bytes, row_bytes);
        continue;
      }
      for (int64_t c = 0; c < m.cols; ++c) {
        std::memcpy(out + static_cast<size_t>(c) * element,
                    from + static_cast<size_t>(c * request.FileRows() + row) * element, element);
      }
    }
  }

  // "blk.0.attn_q.scale" and "blk.0.attn_q.input_scale" beside "blk.0.attn_q.weight".
  bool IsScaleOfNvfp4(std::string_view name) const {
    for (const std::string_view end : {".input_scale", ".scale"}) {
      if (!name.ends_with(end)) continue;
      const TensorEntry* const matrix =
          tensors_.Find(std::string(name.substr(0, name.size() - end.size())) + ".weight");
      return matrix != nullptr && matrix->codes == CodeType::kNone && matrix->dtype == DType::kNVFP4;
    }
    return false;
  }

  bool OfUnusedLayer(std::string_view name) const {
    const std::string_view pattern = names_.Of(Role::kAttentionNorm).pattern;
    const std::string_view before = pattern.substr(0, pattern.find("{}"));
    for (int64_t l = layers_; l < layers_ + unused_layers_; ++l) {
      if (name.starts_with(std::string(before) + std::to_string(l) + ".")) return true;
    }
    return false;
  }

  // The request as the file has it: quantised weights have their rows along the last dimension, transposed ones too
  // (gpt-oss in MXFP4).
  TensorRequest AsStored(const TensorRequest& request) const {
    const TensorEntry* const t = tensors_.Find(StoredName(request));
    if (t == nullptr || t->rows == nullptr || !request.transposed()) return request;
    TensorRequest by_rows = request;
    by_rows.form = TensorSource::Untransposed(request.form);
    return t->shape == by_rows.FileShape() ? by_rows : request;
  }

  // The name under which the file has the tensor; the usual one if it has none.
  std::string StoredName(const TensorRequest& request) const {
    for (const std::string& name : {request.name, request.alternative}) {
      if (name.empty()) continue;
      if (tensors_.Find(name) != nullptr) return name;
      if (!names_.optional_prefix.empty() && std::string_view(name).starts_with(names_.optional_prefix)) {
        std::string bare = name.substr(names_.optional_prefix.size());
        if (tensors_.Find(bare) != nullptr) return bare;
      }
    }
    return request.name;
  }

  Result<const TensorEntry*> Take(const TensorRequest& request) {
    const std::string name = StoredName(request);
    const std::vector<int64_t> shape = request.FileShape();
    const TensorEntry* t = tensors_.Find(name);
    if (t == nullptr) {
      return DataLoss(path_ + ": tensor '" + name + "' " + ShapeText(shape) + " is missing");
    }
    std::vector<int64_t> found = t->shape;
    if (!IsMatrix(request.tensor.role) && request.stacked == 0) {  // a vector may be stored as [1, n]
      while (found.size() > 1 && found.front() == 1) found.erase(found.begin());
    }
    if (found != shape) {
      return DataLoss(t->file + ": tensor '" + name + "' is " + ElementName(*t) + " " + ShapeText(t->shape) +
                      ", the configuration expects " + ShapeText(shape));
    }
    if (t->codes != CodeType::kNone) {
      return DataLoss(t->file + ": tensor '" + name + "' " + ShapeText(t->shape) + " is " + ElementName(*t) +
                      ", which is no weight without a 'quantization_config' in config.json that describes it");
    }
    if (used_.insert(name).second) ++counts_[t->dtype];
    return t;
  }

  Result<float*> ToF32(const std::string& name, DType dtype, const void* data, int64_t elements) {
    auto* values = reinterpret_cast<float*>(storage_->Allocate(elements * 4));
    if (values == nullptr) return NoMemory(name, elements * 4);
    Dequantize(dtype, static_cast<const std::byte*>(data), elements, values);
    return values;
  }

  const TensorSet& tensors_;
  const TensorNames& names_;
  const std::string& path_;
  bool tied_;
  int64_t layers_, unused_layers_;
  MatrixUse use_;
  std::shared_ptr<WeightStorage> storage_;
  std::map<std::string, Scattered> scattered_;  // by id
  std::map<const void*, int64_t> made_;         // WeightRows::file_row_bytes by the view's data
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> unneeded_;  // K and V of layers that read another layer's; some files have them
  std::map<DType, int64_t> counts_;
  int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> MakeFileSource(const TensorSet& tensors, const TensorNames& names,
                                             const std::string& path, const ModelConfig& config, MatrixUse use) {
  return std::make_unique<FileSource>(tensors, names, path, config, use);
}

}  // namespace tactus::compute
