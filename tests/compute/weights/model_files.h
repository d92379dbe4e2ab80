// Builders of small model files, valid and invalid, for the tests of the readers.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/source_path.h"
#include "support/temp_folder.h"

namespace tactus::test {

inline std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

template <class T>
void Append(std::string* out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out->append(raw, sizeof(T));
}

// GGUF bytes, field by field; every method appends, so that a test can break any field.
class GgufBuilder {
 public:
  uint32_t magic = 0x46554747, version = 3;
  uint64_t alignment = 32;
  int64_t claimed_tensors = -1, claimed_keys = -1;  // -1: the actual number

  template <class T>
  void Scalar(const std::string& key, uint32_t type, T value) {
    Key(key, type);
    Append(&metadata_, value);
  }
  void U32(const std::string& key, uint32_t value) { Scalar(key, 4, value); }
  void F32(const std::string& key, float value) { Scalar(key, 6, value); }
  void Text(const std::string& key, const std::string& value) {
    Key(key, 8);
    AppendText(&metadata_, value);
  }
  void Strings(const std::string& key, const std::vector<std::string>& values) {
    Key(key, 9);
    Append<uint32_t>(&metadata_, 8);
    Append<uint64_t>(&metadata_, values.size());
    for (const auto& v : values) AppendText(&metadata_, v);
  }
  template <class T>
  void Array(const std::string& key, uint32_t type, const std::vector<T>& values) {
    Key(key, 9);
    Append<uint32_t>(&metadata_, type);
    Append<uint64_t>(&metadata_, values.size());
    for (const T v : values) Append(&metadata_, v);
  }
  void Raw(const std::string& key, uint32_t type, const std::string& bytes) {
    Key(key, type);
    metadata_ += bytes;
  }

  // `dims` contiguous first, as in the file. `offset` -1: after the existing data.
  void Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, const std::string& data,
              int64_t offset = -1) {
    while (data_.size() % alignment != 0) data_ += '\0';
    AppendText(&tensors_, name);
    Append<uint32_t>(&tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) Append(&tensors_, d);
    Append(&tensors_, type);
    Append<uint64_t>(&tensors_, offset >= 0 ? static_cast<uint64_t>(offset) : data_.size());
    data_ += data;
    ++tensor_count_;
  }
  void F32Tensor(const std::string& name, const std::vector<uint64_t>& dims) {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    std::string data;
    for (uint64_t i = 0; i < n; ++i) Append(&data, static_cast<float>(i + 1) / 64.0f);
    Tensor(name, dims, 0, data);
  }

  std::string Build() const {
    std::string out;
    Append(&out, magic);
    Append(&out, version);
    Append<uint64_t>(&out, static_cast<uint64_t>(claimed_tensors >= 0 ? claimed_tensors : tensor_count_));
    Append<uint64_t>(&out, static_cast<uint64_t>(claimed_keys >= 0 ? claimed_keys : key_count_));
    out += metadata_ + tensors_;
    while (out.size() % alignment != 0) out += '\0';
    return out + data_;
  }

 private:
  void Key(const std::string& key, uint32_t type) {
    AppendText(&metadata_, key);
    Append(&metadata_, type);
    ++key_count_;
  }
  static void AppendText(std::string* out, const std::string& text) {
    Append<uint64_t>(out, text.size());
    *out += text;
  }
  std::string metadata_, tensors_, data_;
  int64_t key_count_ = 0, tensor_count_ = 0;
};

// Every type of tensor that is supported, as in gguf's constants: its number, name, and a block's columns and bytes.
struct GgmlType {
  uint32_t id;
  const char* name;
  uint64_t block, bytes;
};
inline constexpr GgmlType kGgmlTypes[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},        {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},     {8, "q8_0", 32, 34},      {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},  {13, "q5_k", 256, 176},   {14, "q6_k", 256, 210},
    {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74}, {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110}, {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136},
    {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},      {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},
    {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36},   {41, "q1_0", 128, 18},
};

struct TinyTensor {
  std::string name;
  std::vector<uint64_t> dims;
};
// A complete one-layer Llama: hidden 8, 2 heads, 1 KV head, head_dim 4, FFN 16, 12 tokens; all but heads and tokens
// times `wider`.
inline std::vector<TinyTensor> TinyTensors(uint64_t wider = 1) {
  std::vector<TinyTensor> tensors = {
      {"token_embd.weight", {8, 12}},   {"output_norm.weight", {8}},          {"blk.0.attn_norm.weight", {8}},
      {"blk.0.ffn_norm.weight", {8}},   {"blk.0.attn_q.weight", {8, 8}},      {"blk.0.attn_k.weight", {8, 4}},
      {"blk.0.attn_v.weight", {8, 4}},  {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_gate.weight", {8, 16}},
      {"blk.0.ffn_up.weight", {8, 16}}, {"blk.0.ffn_down.weight", {16, 8}}};
  for (TinyTensor& t : tensors) {
    for (uint64_t& d : t.dims) d *= d == 12 ? 1 : wider;
  }
  return tensors;
}

// The same model's metadata.
inline GgufBuilder TinyMetadata(const std::string& architecture = "llama", uint32_t wider = 1) {
  GgufBuilder b;
  const std::string a = architecture + ".";
  b.Text("general.architecture", architecture);
  b.U32(a + "block_count", 1);
  b.U32(a + "embedding_length", 8 * wider);
  b.U32(a + "context_length", 64);
  b.U32(a + "feed_forward_length", 16 * wider);
  b.U32(a + "attention.head_count", 2);
  b.U32(a + "attention.head_count_kv", 1);
  b.F32(a + "attention.layer_norm_rms_epsilon", 1e-5f);
  return b;
}

inline GgufBuilder TinyGguf(const std::string& architecture = "llama") {
  GgufBuilder b = TinyMetadata(architecture);
  for (const TinyTensor& t : TinyTensors()) b.F32Tensor(t.name, t.dims);
  return b;
}

// safetensors bytes from a header and a data section.
inline std::string Safetensors(const std::string& header, const std::string& data) {
  std::string out;
  Append<uint64_t>(&out, header.size());
  return out + header + data;
}

inline std::string GoldenFolder(const std::string& name) {
  return test::SourcePath("tests/golden/data/") + name;
}
inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace tactus::test

// The status failed and its message contains every given text.
#define EXPECT_REFUSED(status_expr, code_value, ...)                                                   \
  do {                                                                                                 \
    const ::tactus::Status refused_ = (status_expr);                                                   \
    EXPECT_EQ(static_cast<int>(refused_.code()), static_cast<int>(code_value)) << refused_.ToString(); \
    for (const std::string& part_ : std::vector<std::string>{__VA_ARGS__}) {                           \
      EXPECT_NE(refused_.message().find(part_), std::string::npos)                                     \
          << "'" << part_ << "' not in: " << refused_.message();                                       \
    }                                                                                                  \
  } while (false)
