#include "compute/convert/write_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "compute/tensor/dequantize.h"
#include "compute/tensor/encode.h"

namespace tactus::compute {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 22;  // decoded at a time by all threads
constexpr float kMostF16 = 65504.0f;

// One row at a time, with buffers that are kept.
class RowEncoder {
 public:
  RowEncoder(const PlannedTensor& tensor, WeightSource& source)
      : tensor_(tensor), source_(source), values_(static_cast<size_t>(tensor.cols)) {}

  Status Encode(int64_t row, std::byte* out) {
    const auto [part, own] = tensor_.Source(row);
    const MatrixView& m = part->matrix;
    scratch_.resize(static_cast<size_t>(m.row_bytes / 4 + 1));
    const std::byte* bytes = source_.Rows(part->from.id, m, own, 1, reinterpret_cast<std::byte*>(scratch_.data()));
    if (m.dtype == tensor_.dtype) {
      std::memcpy(out, bytes, static_cast<size_t>(m.row_bytes));
      return Status();
    }
    Dequantize(m.dtype, bytes, tensor_.cols, values_.data());
    const float most = tensor_.dtype == DType::kF16 ? kMostF16 : std::numeric_limits<float>::max();
    for (const float v : values_) {
      if (std::fabs(v) <= most) continue;
      return DataLoss("tensor '" + tensor_.name + "' holds " + std::to_string(v) + " in row " + std::to_string(row) +
                      (std::isfinite(v) ? ", more than f16 can hold: choose bf16 or f32" : ", which is not finite"));
    }
    compute::Encode(tensor_.dtype, values_.data(), tensor_.cols, out);
    return Status();
  }

 private:
  const PlannedTensor& tensor_;
  WeightSource& source_;
  std::vector<float> values_;
  std::vector<uint32_t> scratch_;
};

Status EncodeRows(const PlannedTensor& tensor, WeightSource& source, int64_t first, int64_t end, std::byte* out) {
  RowEncoder encoder(tensor, source);
  for (int64_t row = first; row < end; ++row, out += tensor.row_bytes())
    TACTUS_RETURN_IF_ERROR(encoder.Encode(row, out));
  return Status();
}

// Rows [first, end), divided among threads; each row's bytes do not depend on their number.
Status EncodePiece(const PlannedTensor& tensor, WeightSource& source, int threads, int64_t first, int64_t end,
                   std::byte* out) {
  const int64_t rows = end - first, used = std::clamp<int64_t>(rows, 1, threads);
  std::vector<Status> results(static_cast<size_t>(used));
  std::vector<std::thread> running;
  for (int64_t i = 0; i < used; ++i) {
    const int64_t begin = first + rows * i / used, stop = first + rows * (i + 1) / used;
    const auto encode = [&, i, begin, stop] {
      results[static_cast<size_t>(i)] =
          EncodeRows(tensor, source, begin, stop, out + (begin - first) * tensor.row_bytes());
    };
    if (i + 1 < used) {
      running.emplace_back(encode);
    } else {
      encode();
    }
  }
  for (std::thread& thread : running) thread.join();
  for (const Status& result : results) TACTUS_RETURN_IF_ERROR(result);
  return Status();
}

Status WriteVector(const PlannedTensor& tensor, int64_t offset, NewFile* file) {
  std::vector<float> values(static_cast<size_t>(tensor.rows));
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const auto [part, own] = tensor.Source(row);
    values[static_cast<size_t>(row)] = part->vector[own] + tensor.addend;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  Encode(tensor.dtype, values.data(), tensor.rows, bytes.data());
  return file->Write(offset, bytes);
}

}  // namespace

Status WriteTensor(const PlannedTensor& tensor, WeightSource& source, int threads, int64_t offset, NewFile* file,
                   const std::function<Status(int64_t)>& progress) {
  if (!tensor.is_matrix) {
    TACTUS_RETURN_IF_ERROR(WriteVector(tensor, offset, file));
    return progress(tensor.bytes());
  }
  const int64_t piece = std::max<int64_t>(1, kPieceValues / tensor.cols);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(piece, tensor.rows) * tensor.row_bytes()));
  for (int64_t first = 0; first < tensor.rows; first += piece) {
    const int64_t end = std::min(first + piece, tensor.rows);
    TACTUS_RETURN_IF_ERROR(EncodePiece(tensor, source, threads, first, end, bytes.data()));
    const int64_t size = (end - first) * tensor.row_bytes();
    TACTUS_RETURN_IF_ERROR(
        file->Write(offset + first * tensor.row_bytes(), std::span(bytes).first(static_cast<size_t>(size))));
    TACTUS_RETURN_IF_ERROR(progress(size));
  }
  for (const TensorPart& part : tensor.parts) source.Release(part.matrix, 0, part.matrix.rows);
  return Status();
}

}  // namespace tactus::compute
