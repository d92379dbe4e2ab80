// Requests every tensor of a config from a source and fills ModelWeights. The two sources are files (file_weights.cc)
// and the dummy generator (dummy_weights.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compute/config/architecture.h"
#include "compute/config/config.h"
#include "compute/weights/tensor_file.h"
#include "compute/weights/weights.h"

namespace tactus::compute {

// A tensor of a model, and where its files have it.
struct TensorRequest {
  ModelTensor tensor;
  std::string name;         // of the tensor in the file
  std::string alternative;  // its name in other models of the family; empty: none
  std::string id;           // unique: the name, with the role's number where several requests share a tensor
  TensorSource::Form form = TensorSource::kWhole;
  int64_t stacked = 0;  // experts or streams that the file's tensor has, one after another; 0: it is one tensor

  bool fused() const;       // rows of a larger tensor
  bool transposed() const;  // [cols, rows] in the file
  bool in_place() const;    // the file has the rows one after another
  // Rows of the file's tensor; where that is stacked, of the expert's part of it.
  int64_t FileRows() const { return fused() ? tensor.fused.total : tensor.rows; }
  int64_t FileRow(int64_t row) const;     // the row among them that this tensor's `row` is
  int64_t RowInFile(int64_t row) const {  // counted from the file's first expert
    return FirstElement() / tensor.cols + FileRow(row);
  }
  int64_t FirstElement() const;            // of the expert's part; 0: not stacked
  std::vector<int64_t> FileShape() const;  // of the file's tensor
};

// Where files with these names have a tensor.
TensorRequest RequestOf(const ModelConfig& config, const TensorNames& names, const ModelTensor& tensor);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A weight matrix [rows, cols]. A source made for row access returns its description and may leave `data` null.
  virtual Result<MatrixView> Matrix(const TensorRequest& request) = 0;
  // A norm or a bias, [rows], as f32.
  virtual Result<const float*> Vector(const TensorRequest& request) = 0;
  // After all of them: fills weights->bytes, .format and .storage, or returns what is wrong with the whole.
  virtual Status Finish(ModelWeights* weights) = 0;

  // For conversions, matrix by matrix and from any thread. Rows [first, first + count) of `view`, which Matrix returned
  // for the request with this `id`: in place, or written to `scratch` [count * view.row_bytes], aligned as the dtype
  // requires.
  virtual const std::byte* Rows(const std::string& id, const MatrixView& view, int64_t first, int64_t count,
                                std::byte* scratch) = 0;
  // Columns that share a scale, where they are more than a block of the view's dtype (WeightRows); 0: a block.
  virtual int64_t ScaleColumns(const std::string& /*id*/) { return 0; }
  // A row of the same matrix as the file's codes in e4m3 (WeightRows::E4M3); null codes: it has another form.
  virtual E4M3Row E4M3(const std::string& /*id*/, int64_t /*row*/) { return {}; }
  // These rows will be read soon; will not be read again.
  virtual void Prefetch(const MatrixView&, int64_t /*first*/, int64_t /*count*/) {}
  virtual void Release(const MatrixView&, int64_t /*first*/, int64_t /*count*/) {}
};

// Requests every tensor, then finishes the source.
Status BuildWeights(const ModelConfig& config, const TensorNames& names, WeightSource& source, ModelWeights* weights);

// The place of each matrix of a model, in a forward pass's reading order; a tied output matrix is the embedding's and
// not listed again.
struct MatrixPlace {
  TensorRequest request;
  MatrixView* view = nullptr;
  bool vocabulary() const { return request.tensor.layer < 0; }  // of no layer: the embedding, the output matrix ...
};
std::vector<MatrixPlace> MatrixPlaces(const ModelConfig& config, const TensorNames& names, ModelWeights* weights);

// "q4_1 (211), f32 (61)": counts by dtype, most first.
std::string FormatText(const std::vector<std::pair<DType, int64_t>>& counts);

}  // namespace tactus::compute
