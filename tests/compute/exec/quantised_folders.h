// Tiny models with quantised weights in two shards of safetensors, one for each method.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "compute/tensor/float16.h"
#include "compute/weights/model_files.h"
#include "compute/weights/quant/quantization.h"
#include "compute/weights/safetensors.h"

namespace tactus::test::quantised {

inline constexpr int64_t kHidden = 128, kInner = 256, kHeads = 4, kKvHeads = 2, kVocab = 96;
struct Sizes {
  int64_t hidden = kHidden, inner = kInner;  // multiples of 128
  int64_t positions = 64;                    // of the longest sequence
  bool quantised_head = false;               // lm_head too
};

// The tensors of a folder, alternately in two shards, so that those of one weight are in different files.
class FolderWriter {
 public:
  void Add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape, const std::string& bytes) {
    Shard& shard = shards_[count_++ % 2];
    const size_t begin = shard.data.size();
    shard.data += bytes;
    shard.header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, shard.data.size()}}};
    map_[name] = &shard == shards_.data() ? "a.safetensors" : "b.safetensors";
  }
  void Write(const TempFolder& folder, const SortedJson& config) const {
    folder.Write("a.safetensors", Safetensors(shards_[0].header.dump(), shards_[0].data));
    folder.Write("b.safetensors", Safetensors(shards_[1].header.dump(), shards_[1].data));
    folder.Write("model.safetensors.index.json", SortedJson{{"weight_map", map_}}.dump());
    folder.Write("config.json", config.dump());
  }

 private:
  struct Shard {
    SortedJson header = SortedJson::object();
    std::string data;
  };
  std::array<Shard, 2> shards_;
  SortedJson map_;
  size_t count_ = 0;
};

// Random tensors of one module.
class Module {
 public:
  Module(FolderWriter& to, Rng& rng, std::string name, int64_t outputs = 0, int64_t inputs = 0)
      : rows(outputs), cols(inputs), to_(to), rng_(rng), name_(std::move(name)) {}

  const int64_t rows, cols;

  void Bytes(const std::string& suffix, const char* dtype, const std::vector<int64_t>& shape, int64_t each,
             uint8_t keep = 0xff, uint8_t set = 0) {
    std::string bytes(static_cast<size_t>(compute::CheckedElements(shape) * each), 0);
    for (char& b : bytes) b = static_cast<char>((rng_.Next64() & keep) | set);
    to_.Add(name_ + suffix, dtype, shape, bytes);
  }
  void Words(const std::string& suffix, const std::vector<int64_t>& shape, uint8_t keep = 0xff) {
    Bytes(suffix, "I32", shape, 4, keep);
  }
  // Scales of `size` and a little more or less.
  void Scales(const std::string& suffix, const std::string& dtype, const std::vector<int64_t>& shape, double size) {
    std::string bytes;
    for (int64_t i = 0; i < compute::CheckedElements(shape); ++i) {
      const auto value = static_cast<float>(size * (0.5 + rng_.Uniform()));
      if (dtype == "F32") {
        Append(&bytes, value);
      } else {
        Append(&bytes, dtype == "F16" ? compute::F32ToF16(value) : compute::F32ToBF16(value));
      }
    }
    to_.Add(name_ + suffix, dtype.c_str(), shape, bytes);
  }
  template <class Number>
  void Numbers(const std::string& suffix, const char* dtype, const std::vector<Number>& values) {
    std::string bytes;
    for (const Number v : values) Append(&bytes, v);
    to_.Add(name_ + suffix, dtype, {static_cast<int64_t>(values.size())}, bytes);
  }
  int64_t Below(int64_t limit) { return static_cast<int64_t>(rng_.Next64() % static_cast<uint64_t>(limit)); }

 private:
  FolderWriter& to_;
  Rng& rng_;
  const std::string name_;
};

inline void Fp8Blocks(Module& m) {
  m.Bytes(".weight", "F8_E4M3", {m.rows, m.cols}, 1, 0xbf, 0x20);
  m.Scales(".weight_scale_inv", "F32", {(m.rows + 127) / 128, (m.cols + 127) / 128}, 0.05);
}
inline void Fp8Rows(Module& m) {
  m.Bytes(".weight", "F8_E4M3", {m.rows, m.cols}, 1, 0xbf, 0x20);
  m.Scales(".weight_scale", "BF16", {m.rows, 1}, 0.05);
  m.Scales(".input_scale", "F32", {1}, 1);
}
inline void PackedWords(Module& m, bool zeros) {
  m.Words(".weight_packed", {m.rows, m.cols / 8});
  m.Numbers<int64_t>(".weight_shape", "I64", {m.rows, m.cols});
  m.Scales(".weight_scale", "BF16", {m.rows, m.cols / 128}, 0.01);
  if (zeros) m.Words(".weight_zero_point", {m.rows / 8, m.cols / 128});
}
inline void PackedSymmetric(Module& m) {
  PackedWords(m, false);
}
inline void PackedWithZeros(Module& m) {
  PackedWords(m, true);
}
inline void Int8Rows(Module& m) {
  m.Bytes(".weight", "I8", {m.rows, m.cols}, 1);
  m.Scales(".weight_scale", "F32", {m.rows, 1}, 0.0005);
}
inline void Gptq4(Module& m) {
  m.Words(".qweight", {m.cols / 8, m.rows});
  m.Words(".qzeros", {m.cols / 64, m.rows / 8}, 0x77);
  m.Scales(".scales", "F16", {m.cols / 64, m.rows}, 0.01);
}
inline void Gptq4Ordered(Module& m) {
  Gptq4(m);
  std::vector<int32_t> order;
  for (int64_t c = 0; c < m.cols; ++c) order.push_back(static_cast<int32_t>(m.Below(m.cols / 64)));
  m.Numbers(".g_idx", "I32", order);
}
inline void Gptq8(Module& m) {
  m.Words(".qweight", {m.cols / 4, m.rows});
  m.Bytes(".qzeros", "I32", {m.cols / 32, m.rows / 4}, 4, 0, 127);
  m.Scales(".scales", "F16", {m.cols / 32, m.rows}, 0.0005);
}
inline void Awq(Module& m) {
  m.Words(".qweight", {m.cols, m.rows / 8});
  m.Words(".qzeros", {m.cols / 128, m.rows / 8});
  m.Scales(".scales", "F16", {m.cols / 128, m.rows}, 0.01);
}
inline void Nvfp4(Module& m) {
  m.Bytes(".weight", "U8", {m.rows, m.cols / 2}, 1);
  m.Bytes(".weight_scale", "F8_E4M3", {m.rows, m.cols / 16}, 1, 0x07, 0x30);
  m.Numbers<float>(".weight_scale_2", "F32", {0.03f});
}
inline void Mxfp4(Module& m) {
  m.Bytes(".weight_packed", "U8", {m.rows, m.cols / 2}, 1);
  m.Bytes(".weight_scale", "U8", {m.rows, m.cols / 32}, 1, 1, 120);
}

struct Format {
  const char* name;
  const char* config;  // of "quantization_config"
  void (*add)(Module&);
  bool exact;          // packed without rounding; else packed as bf16
  bool fused = false;  // q, k and v in one matrix, gate and up in another
};
inline constexpr const char* kGroups128 =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128}}}})";
inline constexpr const char* kCompressed = R"({"quant_method": "compressed-tensors", "format": "mixed-precision"})";
inline constexpr const char* kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true})";
inline constexpr Format kFormats[] = {
    {"fp8_blocks", R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", Fp8Blocks, false},
    {"compressed_fp8", kCompressed, Fp8Rows, false},
    {"compressed_w4", kGroups128, PackedSymmetric, true},
    {"compressed_w4_zeros", kGroups128, PackedWithZeros, true},
    {"compressed_w8a8", kCompressed, Int8Rows, true},
    {"compressed_mxfp4", kCompressed, Mxfp4, true},
    {"gptq_4", kGptq, Gptq4, true},
    {"gptq_4_fused", kGptq, Gptq4, true, true},
    {"gptq_4_order", kGptq, Gptq4Ordered, false},
    {"gptq_8", R"({"quant_method": "gptq", "bits": 8, "group_size": 32})", Gptq8, true},
    {"awq", R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})", Awq, true},
    {"modelopt_nvfp4", R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})", Nvfp4, false},
};

// The format of that name.
inline const Format& FormatNamed(std::string_view name) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == name; });
}

inline SortedJson ConfigOf(const Format& format, const Sizes& sizes = {}) {
  return {{"architectures", {format.fused ? "Phi3ForCausalLM" : "LlamaForCausalLM"}},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.inner},
          {"num_hidden_layers", 1},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKvHeads},
          {"vocab_size", kVocab},
          {"max_position_embeddings", sizes.positions},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"}};
}

inline void WriteQuantised(const Format& format, const TempFolder& folder, const Sizes& sizes = {}) {
  FolderWriter writer;
  Rng rng(48);
  const auto plain = [&](const std::string& name, const std::vector<int64_t>& shape, double size) {
    Module(writer, rng, name).Scales("", "BF16", shape, size);
  };
  plain("model.embed_tokens.weight", {kVocab, sizes.hidden}, 1);
  if (!sizes.quantised_head) plain("lm_head.weight", {kVocab, sizes.hidden}, 0.1);
  plain("model.norm.weight", {sizes.hidden}, 1);
  const std::string layer = "model.layers.0.";
  plain(layer + "input_layernorm.weight", {sizes.hidden}, 1);
  plain(layer + "post_attention_layernorm.weight", {sizes.hidden}, 1);
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
    Module module(writer, rng, layer + name, rows, cols);
    format.add(module);
  };
  const int64_t kv = sizes.hidden / kHeads * kKvHeads;
  if (format.fused) {
    add("self_attn.qkv_proj", sizes.hidden + 2 * kv, sizes.hidden);
    add("mlp.gate_up_proj", 2 * sizes.inner, sizes.hidden);
  } else {
    add("self_attn.q_proj", sizes.hidden, sizes.hidden);
    add("self_attn.k_proj", kv, sizes.hidden);
    add("self_attn.v_proj", kv, sizes.hidden);
    add("mlp.gate_proj", sizes.inner, sizes.hidden);
    add("mlp.up_proj", sizes.inner, sizes.hidden);
  }
  add("self_attn.o_proj", sizes.hidden, sizes.hidden);
  add("mlp.down_proj", sizes.hidden, sizes.inner);
  if (sizes.quantised_head) {
    Module head(writer, rng, "lm_head", kVocab, sizes.hidden);
    format.add(head);
  }
  SortedJson config = ConfigOf(format, sizes);
  config["quantization_config"] = SortedJson::parse(format.config);
  writer.Write(folder, config);
}

// The same model with every quantised weight decoded to f32.
inline void WriteDecoded(const Format& format, const TempFolder& quantised, const TempFolder& folder) {
  auto set = compute::OpenSafetensorsFolder(quantised.path());
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  const auto method = compute::ReadQuantization(ReadFile(quantised.path() + "/config.json"), "config.json");
  ASSERT_TRUE(method.ok() && *method != nullptr);
  ASSERT_TRUE(compute::ApplyQuantization(**method, &*set).ok());
  FolderWriter writer;
  for (const auto& [name, t] : set->tensors) {
    if (t.rows == nullptr) {
      writer.Add(name, "BF16", t.shape, {reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes)});
      continue;
    }
    std::vector<float> row(static_cast<size_t>(t.shape[1]));
    std::string bytes;
    for (int64_t r = 0; r < t.shape[0]; ++r) {
      t.rows->Numbers(r, row.data());
      bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * 4);
    }
    writer.Add(name, "F32", t.shape, bytes);
  }
  writer.Write(folder, ConfigOf(format));
}

}  // namespace tactus::test::quantised
