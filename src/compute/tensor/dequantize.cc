// Layouts as in the GGUF specification (ggml-common.h); every product and sum is one f32 rounding, in the order of the
// format's definition, so that results agree bit for bit with gguf.quants.
#include "compute/tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "compute/tensor/blocks.h"
#include "compute/tensor/load.h"

namespace tactus::compute {
namespace {

using Bytes = const uint8_t*;

void BlockF32(Bytes p, float* out) {
  std::memcpy(out, p, sizeof(float));
}
void BlockF16(Bytes p, float* out) {
  *out = LoadHalf(p);
}
void BlockBF16(Bytes p, float* out) {
  *out = BF16ToF32(Load16(p));
}

// d, 16 bytes: low nibbles are values 0..15, high nibbles 16..31
void BlockQ40(Bytes p, float* out) {
  const float d = LoadHalf(p);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((p[2 + j] & 0xf) - 8) * d;
    out[j + 16] = static_cast<float>((p[2 + j] >> 4) - 8) * d;
  }
}

// d, m, nibbles
void BlockQ41(Bytes p, float* out) {
  const float d = LoadHalf(p), m = LoadHalf(p + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(p[4 + j] & 0xf) * d + m;
    out[j + 16] = static_cast<float>(p[4 + j] >> 4) * d + m;
  }
}

// d, 32 fifth bits, nibbles
void BlockQ50(Bytes p, float* out) {
  const float d = LoadHalf(p);
  const uint32_t high = Load32(p + 2);
  for (int j = 0; j < 16; ++j) {
    const int low_value = (p[6 + j] & 0xf) | static_cast<int>(((high >> j) & 1u) << 4);
    const int high_value = (p[6 + j] >> 4) | static_cast<int>(((high >> (j + 16)) & 1u) << 4);
    out[j] = static_cast<float>(low_value - 16) * d;
    out[j + 16] = static_cast<float>(high_value - 16) * d;
  }
}

// d, m, 32 fifth bits, nibbles
void BlockQ51(Bytes p, float* out) {
  const float d = LoadHalf(p), m = LoadHalf(p + 2);
  const uint32_t high = Load32(p + 4);
  for (int j = 0; j < 16; ++j) {
    const int low_value = (p[8 + j] & 0xf) | static_cast<int>(((high >> j) & 1u) << 4);
    const int high_value = (p[8 + j] >> 4) | static_cast<int>(((high >> (j + 16)) & 1u) << 4);
    out[j] = static_cast<float>(low_value) * d + m;
    out[j + 16] = static_cast<float>(high_value) * d + m;
  }
}

// d, 32 signed bytes
void BlockQ80(Bytes p, float* out) {
  const float d = LoadHalf(p);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(p[2 + j])) * d;
}

// Scale and min of sub-block j (of 8), 6 bits each, from the 12 packed bytes of q4_K and q5_K.
struct ScaleMin {
  int scale;
  int min;
};
ScaleMin UnpackScaleMin(Bytes packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 0xf) | ((packed[j - 4] >> 6) << 4), (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4)};
}

// d, dmin, 12 bytes of scales and mins, 128 bytes of nibbles: sub-blocks 2i (low) and 2i + 1 (high) share 32 bytes
void BlockQ4K(Bytes p, float* out) {
  const float d = LoadHalf(p), dmin = LoadHalf(p + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = UnpackScaleMin(p + 4, j);
    const float scale = d * static_cast<float>(sm.scale), min = dmin * static_cast<float>(sm.min);
    Bytes q = p + 16 + (j / 2) * 32;
    const int shift = (j % 2) * 4;
    for (int l = 0; l < 32; ++l) out[j * 32 + l] = scale * static_cast<float>((q[l] >> shift) & 0xf) - min;
  }
}

// as q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte l belongs to value l of sub-block j
void BlockQ5K(Bytes p, float* out) {
  const float d = LoadHalf(p), dmin = LoadHalf(p + 2);
  Bytes high = p + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = UnpackScaleMin(p + 4, j);
    const float scale = d * static_cast<float>(sm.scale), min = dmin * static_cast<float>(sm.min);
    Bytes q = p + 48 + (j / 2) * 32;
    const int shift = (j % 2) * 4;
    for (int l = 0; l < 32; ++l) {
      const int value = ((q[l] >> shift) & 0xf) | (((high[l] >> j) & 1) << 4);
      out[j * 32 + l] = scale * static_cast<float>(value) - min;
    }
  }
}

// 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, d. Each half of 128 values takes 64 + 32 bytes: value
// 32g + l has nibble g / 2 of byte (g % 2) * 32 + l and bit pair g of high byte l.
void BlockQ6K(Bytes p, float* out) {
  Bytes scales = p + 192;
  const float d = LoadHalf(p + 208);
  for (int half = 0; half < 2; ++half) {
    Bytes low = p + half * 64, high = p + 128 + half * 32;
    for (int g = 0; g < 4; ++g) {
      for (int l = 0; l < 32; ++l) {
        const int nibble = (low[(g % 2) * 32 + l] >> ((g / 2) * 4)) & 0xf;
        const int value = (nibble | (((high[l] >> (2 * g)) & 3) << 4)) - 32;
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[half * 8 + g * 2 + l / 16]));
        out[half * 128 + g * 32 + l] = scale * static_cast<float>(value);
      }
    }
  }
}

template <void (*Block)(Bytes, float*)>
void Rows(Bytes src, int64_t elements, int64_t block_elements, int64_t block_bytes, float* out) {
  for (int64_t done = 0; done < elements; done += block_elements, src += block_bytes) Block(src, out + done);
}

// Formats that blocks.h takes apart.
void BlockRows(const BlockFormat& format, const DTypeInfo& info, Bytes src, int64_t elements, float* out) {
  FormatBlock block = {};
  for (int64_t done = 0; done < elements; done += info.block_elements, src += info.block_bytes) {
    format.read(src, &block);
    const float unit = block.scales[0] * format.unit;
    for (int32_t g = 0; g * format.group < info.block_elements; ++g) {
      const float scale = format.nested ? unit * static_cast<float>(block.factors[g]) : block.scales[g];
      const float minimum = format.has_minimum ? block.minimum * static_cast<float>(block.minimum_factors[g]) : 0.0f;
      for (int32_t c = g * format.group; c < (g + 1) * format.group; ++c) {
        const float value = scale * static_cast<float>(block.values[c]);
        out[done + c] = format.has_minimum ? value + minimum : value;
      }
    }
  }
}

}  // namespace

void Dequantize(DType dtype, const std::byte* src, int64_t elements, float* out) {
  const DTypeInfo& info = InfoOf(dtype);
  TACTUS_CHECK(elements % info.block_elements == 0);
  const auto* bytes = reinterpret_cast<Bytes>(src);
  if (const BlockFormat* format = BlockFormatOf(dtype)) return BlockRows(*format, info, bytes, elements, out);
  switch (dtype) {
    case DType::kF32:
      return Rows<BlockF32>(bytes, elements, 1, 4, out);
    case DType::kF16:
      return Rows<BlockF16>(bytes, elements, 1, 2, out);
    case DType::kBF16:
      return Rows<BlockBF16>(bytes, elements, 1, 2, out);
    case DType::kQ4_0:
      return Rows<BlockQ40>(bytes, elements, 32, info.block_bytes, out);
    case DType::kQ4_1:
      return Rows<BlockQ41>(bytes, elements, 32, info.block_bytes, out);
    case DType::kQ5_0:
      return Rows<BlockQ50>(bytes, elements, 32, info.block_bytes, out);
    case DType::kQ5_1:
      return Rows<BlockQ51>(bytes, elements, 32, info.block_bytes, out);
    case DType::kQ8_0:
      return Rows<BlockQ80>(bytes, elements, 32, info.block_bytes, out);
    case DType::kQ4_K:
      return Rows<BlockQ4K>(bytes, elements, 256, info.block_bytes, out);
    case DType::kQ5_K:
      return Rows<BlockQ5K>(bytes, elements, 256, info.block_bytes, out);
    case DType::kQ6_K:
      return Rows<BlockQ6K>(bytes, elements, 256, info.block_bytes, out);
    default:
      break;
  }
  TACTUS_CHECK_MSG(false, "int8 is a KV format, not a weight format");
}

}  // namespace tactus::compute
