#include "compute/convert/write_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <thread>

#include "compute/tensor/dequantize.h"
#include "compute/tensor/encode.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 22;  // decoded at a time by all threads
constexpr float kMostF16 = 65504.0f;

// Where encoded rows go: a piece's values or integers one after another, then its scales.
struct EncodedRows {
  std::byte *values = nullptr, *scales = nullptr;

  EncodedRows From(const PlannedTensor& tensor, int64_t row) const {
    return {values + row * tensor.row_bytes(), scales + row * tensor.scale_bytes()};
  }
};

// Signed integers as a row of a file: bytes, or words of 32 bits with the lowest first and the middle as zero.
void StoreIntegers(const PlannedIntegers& form, std::span<const int8_t> codes, std::byte* out) {
  if (!form.packed) {
    std::memcpy(out, codes.data(), codes.size());
    return;
  }
  const size_t per_byte = static_cast<size_t>(8 / form.bits);
  const int middle = 1 << (form.bits - 1);
  std::memset(out, 0, static_cast<size_t>(form.code_bytes(static_cast<int64_t>(codes.size()))));
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto bits = static_cast<unsigned>(codes[i] + middle) << (i % per_byte * static_cast<size_t>(form.bits));
    out[i / per_byte] |= static_cast<std::byte>(bits);
  }
}

// One row at a time, with buffers that are kept.
class RowEncoder {
 public:
  RowEncoder(const PlannedTensor& tensor, WeightSource& source)
      : tensor_(tensor), source_(source), values_(static_cast<size_t>(tensor.cols)) {}

  Status Encode(int64_t row, EncodedRows out) {
    const auto [part, own] = tensor_.Source(row);
    if (part == nullptr) {
      std::memset(out.values, 0, static_cast<size_t>(tensor_.row_bytes()));
      return Status();
    }
    const MatrixView& m = part->matrix;
    scratch_.resize(static_cast<size_t>(m.row_bytes / 4 + 1));
    const std::byte* bytes = source_.Rows(part->from.id, m, own, 1, reinterpret_cast<std::byte*>(scratch_.data()));
    if (m.dtype == tensor_.dtype && tensor_.integers.bits == 0) {
      std::memcpy(out.values, bytes, static_cast<size_t>(m.row_bytes));
      return Status();
    }
    Dequantize(m.dtype, bytes, tensor_.cols, values_.data());
    const float most = tensor_.dtype == DType::kF16 ? kMostF16 : std::numeric_limits<float>::max();
    for (const float v : values_) {
      if (std::fabs(v) <= most) continue;
      return DataLoss("tensor '" + tensor_.name + "' holds " + std::to_string(v) + " in row " + std::to_string(row) +
                      (std::isfinite(v) ? ", more than f16 can hold: choose bf16 or f32" : ", which is not finite"));
    }
    if (tensor_.integers.bits > 0) {
      EncodeGroups(out);
    } else {
      compute::Encode(tensor_.dtype, values_.data(), tensor_.cols, out.values);
    }
    return Status();
  }

 private:
  void EncodeGroups(EncodedRows out) {
    const PlannedIntegers& form = tensor_.integers;
    codes_.resize(values_.size());
    for (int64_t c = 0; c < tensor_.cols; c += form.group, out.scales += 2) {
      const float scale = EncodeIntegers(form.bits, values_.data() + c, form.group, codes_.data() + c);
      Store16(F32ToBF16(scale), reinterpret_cast<uint8_t*>(out.scales));
    }
    StoreIntegers(form, codes_, out.values);
  }

  const PlannedTensor& tensor_;
  WeightSource& source_;
  std::vector<float> values_;
  std::vector<int8_t> codes_;
  std::vector<uint32_t> scratch_;
};

Status EncodeRows(const PlannedTensor& tensor, WeightSource& source, int64_t first, int64_t end, EncodedRows out) {
  RowEncoder encoder(tensor, source);
  for (int64_t row = first; row < end; ++row)
    TACTUS_RETURN_IF_ERROR(encoder.Encode(row, out.From(tensor, row - first)));
  return Status();
}

// Rows [first, end), divided among threads; each row's bytes do not depend on their number.
Status EncodePiece(const PlannedTensor& tensor, WeightSource& source, int threads, int64_t first, int64_t end,
                   EncodedRows out) {
  const int64_t rows = end - first, used = std::clamp<int64_t>(rows, 1, threads);
  std::vector<Status> results(static_cast<size_t>(used));
  std::vector<std::thread> running;
  for (int64_t i = 0; i < used; ++i) {
    const int64_t begin = first + rows * i / used, stop = first + rows * (i + 1) / used;
    const auto encode = [&, i, begin, stop] {
      results[static_cast<size_t>(i)] = EncodeRows(tensor, source, begin, stop, out.From(tensor, begin - first));
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

Status WriteVector(const PlannedTensor& tensor, TensorPlace place) {
  std::vector<float> values(static_cast<size_t>(tensor.rows));
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const auto [part, own] = tensor.Source(row);
    values[static_cast<size_t>(row)] = part->vector[own] + tensor.addend;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  Encode(tensor.dtype, values.data(), tensor.rows, bytes.data());
  return place.file->Write(place.offset, bytes);
}

// Rows [rows, cols] of a plain format as [cols, rows].
std::vector<std::byte> Transposed(const PlannedTensor& tensor, int64_t rows, const std::vector<std::byte>& values) {
  const size_t element = static_cast<size_t>(RowBytes(tensor.dtype, 1)), height = static_cast<size_t>(rows);
  const auto width = static_cast<size_t>(tensor.cols);
  std::vector<std::byte> out(height * width * element);
  for (size_t r = 0; r < height; ++r) {
    for (size_t c = 0; c < width; ++c)
      std::memcpy(out.data() + (c * height + r) * element, values.data() + (r * width + c) * element, element);
  }
  return out;
}

// Rows that are encoded at a time: those of an expert, where the file has its columns one after another.
int64_t PieceRows(const PlannedTensor& tensor) {
  if (tensor.transposed) return tensor.rows / std::max<int64_t>(1, tensor.stacked);
  return std::min(tensor.rows, std::max<int64_t>(1, kPieceValues / tensor.cols));
}

}  // namespace

Status WriteTensor(const PlannedTensor& tensor, WeightSource& source, int threads, TensorPlace place,
                   TensorPlace scales, const std::function<Status(int64_t)>& progress) {
  if (!tensor.is_matrix) {
    TACTUS_RETURN_IF_ERROR(WriteVector(tensor, place));
    return progress(tensor.bytes());
  }
  const int64_t piece = PieceRows(tensor);
  std::vector<std::byte> bytes(static_cast<size_t>(piece * tensor.row_bytes()));
  std::vector<std::byte> scale_bytes(static_cast<size_t>(piece * tensor.scale_bytes()));
  const auto write = [](TensorPlace to, std::span<const std::byte> from, int64_t first, int64_t rows, int64_t each) {
    if (each == 0) return Status();
    return to.file->Write(to.offset + first * each, from.first(static_cast<size_t>(rows * each)));
  };
  for (int64_t first = 0; first < tensor.rows; first += piece) {
    const int64_t end = std::min(first + piece, tensor.rows), rows = end - first;
    TACTUS_RETURN_IF_ERROR(EncodePiece(tensor, source, threads, first, end, {bytes.data(), scale_bytes.data()}));
    if (tensor.transposed) bytes = Transposed(tensor, rows, bytes);
    TACTUS_RETURN_IF_ERROR(write(place, bytes, first, rows, tensor.row_bytes()));
    TACTUS_RETURN_IF_ERROR(write(scales, scale_bytes, first, rows, tensor.scale_bytes()));
    TACTUS_RETURN_IF_ERROR(progress(rows * (tensor.row_bytes() + tensor.scale_bytes())));
  }
  for (const TensorPart& part : tensor.parts) source.Release(part.matrix, 0, part.matrix.rows);
  return Status();
}

}  // namespace tactus::compute
