// What the tests of conversions share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compute/config/architecture.h"
#include "compute/convert/convert.h"
#include "compute/tensor/dequantize.h"
#include "compute/weights/model_files.h"
#include "compute/weights/open_weights.h"
#include "compute/weights/safetensors.h"
#include "golden/golden_case.h"
#include "support/source_path.h"

namespace tactus::test {

using compute::ConvertOptions;

inline std::string Model(const std::string& name) {
  const std::string folder = GoldenFolder(name);
  return std::filesystem::exists(folder + "/model.gguf") ? folder + "/model.gguf" : folder;
}

inline ConvertOptions To(const std::string& out, compute::DType dtype) {
  ConvertOptions options;
  options.out = out;
  options.format = out.ends_with(".gguf") ? compute::ModelFormat::kGguf : compute::ModelFormat::kSafetensors;
  options.matrices.dtype = dtype;
  options.threads = 2;
  return options;
}

inline ConvertOptions ToIntegers(const std::string& out, const std::string& form) {
  ConvertOptions options = To(out, compute::DType::kBF16);
  auto matrices = compute::ConvertedFormat(form, compute::ModelFormat::kSafetensors);
  EXPECT_TRUE(matrices.ok()) << matrices.status().ToString();
  if (matrices.ok()) options.matrices = *matrices;
  return options;
}

inline Result<compute::ConvertReport> Convert(const std::string& in, const ConvertOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(in));
  ConvertOptions all = options;
  const std::string generation = ReadFile(in + "/generation_config.json");
  if (!generation.empty()) all.files.emplace_back("generation_config.json", generation);
  return compute::ConvertModel(description, all);
}

inline compute::ConvertReport MustConvert(const std::string& in, const ConvertOptions& options) {
  auto report = Convert(in, options);
  EXPECT_TRUE(report.ok()) << in << ": " << report.status().ToString();
  return report.ok() ? *report : compute::ConvertReport();
}

// The largest error against the reference in the f32 mode; all greedy tokens must be equal.
inline double ErrorOf(const std::string& path, const std::string& golden_name) {
  auto description = compute::DescribeModel(path);
  EXPECT_TRUE(description.ok()) << description.status().ToString();
  if (!description.ok()) return -1;
  auto weights = compute::LoadWeights(*description, {.dequantize_to_f32 = true}, SystemClock());
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  auto numerics = compute::ChooseNumerics({.dtype = "float32"}, description->config.weight_dtype);
  const auto cases = ReadGoldenCases(GoldenFolder(golden_name) + "/golden.json");
  EXPECT_TRUE(cases.ok() && numerics.ok());
  double error = 0;
  for (const GoldenCase& golden : *cases) {
    auto run = RunGoldenCase(description->config, *weights, golden, *numerics, compute::RunnableOps()[0]);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    if (!run.ok()) return -1;
    error = std::max(error, run->logits_error);
    EXPECT_EQ(run->equal_tokens, golden.greedy.size()) << golden.name;
  }
  return error;
}

// Every tensor of a folder: its shape and its bytes.
inline std::map<std::string, std::string> TensorBytes(const std::string& folder) {
  auto tensors = compute::OpenSafetensorsFolder(folder);
  EXPECT_TRUE(tensors.ok()) << tensors.status().ToString();
  std::map<std::string, std::string> bytes;
  for (const auto& [name, t] : tensors->tensors)
    bytes[name] =
        compute::ShapeText(t.shape) + std::string(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes));
  return bytes;
}

// The rows of every matrix of a model, by layer, role and expert, which files of all formats share.
using MatrixPlace = std::tuple<int64_t, compute::Role, int64_t>;
inline std::map<MatrixPlace, std::vector<std::vector<float>>> MatrixRows(const std::string& path) {
  std::map<MatrixPlace, std::vector<std::vector<float>>> matrices;
  const auto d = compute::DescribeModel(path);
  EXPECT_TRUE(d.ok()) << d.status().ToString();
  if (!d.ok()) return matrices;
  auto opened = compute::OpenWeights(*d, compute::MatrixUse::kRows);
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  if (!opened.ok()) return matrices;
  for (const compute::ModelTensor& t : d->config.Tensors()) {
    if (!compute::IsMatrix(t.role)) continue;
    const auto request = compute::RequestOf(d->config, *(*opened)->names, t);
    const compute::MatrixView& m = compute::MatrixAt((*opened)->weights, t);
    std::vector<std::vector<float>>& rows = matrices[{t.layer, t.role, t.expert}];
    std::vector<uint32_t> scratch(static_cast<size_t>(m.row_bytes / 4 + 1));
    for (int64_t row = 0; row < m.rows; ++row) {
      const std::byte* bytes =
          (*opened)->source->Rows(request.id, m, row, 1, reinterpret_cast<std::byte*>(scratch.data()));
      rows.emplace_back(static_cast<size_t>(m.cols));
      compute::Dequantize(m.dtype, bytes, m.cols, rows.back().data());
    }
  }
  return matrices;
}

}  // namespace tactus::test
