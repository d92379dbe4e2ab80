#include "compute/weights/gguf.h"

#include "model_files.h"

namespace tactus::gguf_test {
namespace {

using test::Append;
using test::Bytes;
using test::GgufBuilder;
using test::TinyGguf;

constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr StatusCode kUnbuilt = StatusCode::kUnimplemented;

Status ParseStatus(const std::string& bytes) {
  return compute::ParseGguf(Bytes(bytes), "m.gguf").status();
}

TEST(Gguf, ReadsEveryMetadataType) {
  GgufBuilder b;
  b.Scalar<uint8_t>("u8", 0, 200);
  b.Scalar<int8_t>("i8", 1, -3);
  b.Scalar<uint16_t>("u16", 2, 60000);
  b.Scalar<int16_t>("i16", 3, -300);
  b.Scalar<uint32_t>("u32", 4, 4000000000u);
  b.Scalar<int32_t>("i32", 5, -70000);
  b.Scalar<float>("f32", 6, 0.5f);
  b.Scalar<uint8_t>("bool", 7, 1);
  b.Text("text", std::string("a\0b", 3));
  b.Scalar<uint64_t>("u64", 10, uint64_t{1} << 40);
  b.Scalar<int64_t>("i64", 11, -(int64_t{1} << 40));
  b.Scalar<double>("f64", 12, 0.25);
  b.Strings("strings", {"x", "", "yz"});
  b.Array<int16_t>("numbers", 3, {-1, 2});
  const std::string bytes = b.Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  compute::GgufFields f(*file);
  EXPECT_EQ(f.Int("u8"), 200);
  EXPECT_EQ(f.Int("i8"), -3);
  EXPECT_EQ(f.Int("u16"), 60000);
  EXPECT_EQ(f.Int("i16"), -300);
  EXPECT_EQ(f.Int("u32"), 4000000000);
  EXPECT_EQ(f.Int("i32"), -70000);
  EXPECT_EQ(f.Float("f32"), 0.5);
  EXPECT_EQ(f.Bool("bool"), true);
  EXPECT_EQ(f.String("text"), std::string("a\0b", 3));
  EXPECT_EQ(f.Int("u64"), int64_t{1} << 40);
  EXPECT_EQ(f.Int("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(f.Float("f64"), 0.25);
  EXPECT_EQ(f.Strings("strings"), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_EQ(f.Numbers("numbers"), (std::vector<double>{-1, 2}));
  EXPECT_EQ(f.Int("absent"), std::nullopt);
  EXPECT_TRUE(f.status().ok());
  EXPECT_EQ(f.Int("text"), std::nullopt);
  EXPECT_REFUSED(f.status(), kLoss, "m.gguf", "'text'", "string", "not an integer");
}

TEST(Gguf, NumbersReadsArraysOfAnyNumericWidth) {
  GgufBuilder b;
  b.Array<uint8_t>("bytes", 0, {0, 200, 255});
  b.Array<double>("doubles", 12, {0.25, -2});
  b.Array<uint32_t>("none", 4, {});
  b.Strings("strings", {"12345678", "x"});
  b.U32("one", 7);
  const std::string bytes = b.Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  compute::GgufFields good(*file);
  EXPECT_EQ(good.Numbers("bytes"), (std::vector<double>{0, 200, 255}));
  EXPECT_EQ(good.Numbers("doubles"), (std::vector<double>{0.25, -2}));
  EXPECT_TRUE(good.Numbers("none").empty());
  EXPECT_TRUE(good.Numbers("absent").empty());
  EXPECT_TRUE(good.status().ok()) << good.status().ToString();
  for (const char* key : {"strings", "one"}) {
    compute::GgufFields bad(*file);
    EXPECT_TRUE(bad.Numbers(key).empty()) << key;
    EXPECT_REFUSED(bad.status(), kLoss, key, "is not an array of numbers");
  }
}

TEST(Gguf, NestedArraysAreWalkedAndBounded) {
  std::string nested;  // array of one array of two bytes
  Append<uint32_t>(&nested, 9);
  Append<uint64_t>(&nested, 1);
  Append<uint32_t>(&nested, 0);
  Append<uint64_t>(&nested, 2);
  nested += "ab";
  GgufBuilder b;
  b.Raw("nested", 9, nested);
  b.U32("after", 7);
  const std::string bytes = b.Build();
  const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(compute::GgufFields(*file).Int("after"), 7);

  std::string deep;
  for (int i = 0; i < 100000; ++i) {
    Append<uint32_t>(&deep, 9);
    Append<uint64_t>(&deep, 1);
  }
  GgufBuilder hostile;
  hostile.Raw("deep", 9, deep);
  EXPECT_REFUSED(ParseStatus(hostile.Build()), kLoss, "nest deeper than 4");
}

TEST(Gguf, CutAtAnyByteIsRefused) {
  GgufBuilder b = TinyGguf();
  b.Strings("tokenizer.ggml.tokens", {"a", "b"});
  const std::string whole = b.Build();
  ASSERT_TRUE(ParseStatus(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    // A heap copy of exactly this size: a read beyond it is an error under the address sanitizer.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto result = compute::ParseGguf(std::as_bytes(std::span(cut)), "m.gguf");
    ASSERT_FALSE(result.ok()) << "accepted after " << size << " of " << whole.size() << " bytes";
  }
}

TEST(Gguf, WrongMagicVersionAndCountsAreRefused) {
  GgufBuilder b = TinyGguf();
  b.magic = 0x12345678;
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "m.gguf", "not a GGUF file");
  b = TinyGguf();
  b.version = 1;
  EXPECT_REFUSED(ParseStatus(b.Build()), kUnbuilt, "version 1", "2 and 3");
  b.version = 0x03000000;
  EXPECT_REFUSED(ParseStatus(b.Build()), kUnbuilt, "m.gguf", "big-endian", "gguf-convert-endian");
  b.version = 2;
  EXPECT_TRUE(ParseStatus(b.Build()).ok());
  b = TinyGguf();
  b.claimed_tensors = INT64_MAX;
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "9223372036854775807 tensors", "1048576");
  b = TinyGguf();
  b.claimed_keys = 1 << 20;
  EXPECT_FALSE(ParseStatus(b.Build()).ok());
}

TEST(Gguf, HugeLengthsAllocateNothing) {
  std::string text;
  Append<uint64_t>(&text, UINT64_MAX);
  GgufBuilder b;
  b.Raw("s", 8, text);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "18446744073709551615 bytes");

  for (const uint32_t type : {0u, 4u, 8u, 9u, 12u}) {
    for (const uint64_t count : {UINT64_MAX, UINT64_MAX / 8 + 1, uint64_t{1} << 61, uint64_t{1} << 40}) {
      std::string array;
      Append(&array, type);
      Append(&array, count);
      GgufBuilder a;
      a.Raw("a", 9, array);
      EXPECT_REFUSED(ParseStatus(a.Build()), kLoss, "claims " + std::to_string(count));
    }
  }
}

TEST(Gguf, WrongTypesAndDuplicatesAreRefused) {
  GgufBuilder b;
  b.Raw("k", 13, "");
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "13", "not a GGUF type");
  b = GgufBuilder();
  b.Scalar<uint8_t>("b", 7, 2);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "bool is 2");
  b = GgufBuilder();
  b.U32("same", 1);
  b.U32("same", 2);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'same' occurs twice");
  b = GgufBuilder();
  b.F32Tensor("t", {4});
  b.F32Tensor("t", {4});
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "tensor 't' occurs twice");
  for (const uint32_t alignment : {0u, 4u, 24u, 1u << 21}) {
    b = GgufBuilder();
    b.U32("general.alignment", alignment);
    EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "alignment is " + std::to_string(alignment));
  }
}

TEST(Gguf, HostileTensorsAreRefused) {
  GgufBuilder b;
  b.Tensor("big", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, "");
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'big'", "too large");
  b = GgufBuilder();
  b.Tensor("wrap", {uint64_t{1} << 32, uint64_t{1} << 32, 4}, 0, "");
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'wrap'");
  b = GgufBuilder();
  b.Tensor("zero", {0, 4}, 0, "");
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'zero'", "dimension of 0");
  b = GgufBuilder();
  b.Tensor("five", {1, 1, 1, 1, 1}, 0, "");
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "5 dimensions");
  b = GgufBuilder();
  b.Tensor("ragged", {33, 2}, 2, std::string(100, 0));  // Q4_0 has blocks of 32
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'ragged'", "multiple of 32");
  b = GgufBuilder();
  b.Tensor("sums", {256, 2}, 15, std::string(1000, 0));
  EXPECT_REFUSED(ParseStatus(b.Build()), kUnbuilt, "'sums'", "type q8_k", "q4_k", "iq2_xs");
  b = GgufBuilder();
  b.Tensor("odd", {256, 2}, 4711, std::string(1000, 0));
  EXPECT_REFUSED(ParseStatus(b.Build()), kUnbuilt, "'odd'", "number 4711");
  b = GgufBuilder();
  b.Tensor("far", {4}, 0, std::string(16, 0), 1 << 20);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'far'", "cut short");
  b = GgufBuilder();
  b.Tensor("end", {4}, 0, std::string(16, 0), INT64_MAX - 31);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'end'");
  b = GgufBuilder();
  b.Tensor("skew", {4}, 0, std::string(64, 0), 4);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'skew'", "not a multiple of the alignment 32");
  b = GgufBuilder();
  b.Tensor("one", {16}, 0, std::string(64, 0));
  b.Tensor("two", {16}, 0, std::string(64, 0), 32);
  EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'one' and 'two' overlap");
}

TEST(Gguf, EveryTypeOfTensorIsRead) {
  for (const test::GgmlType& type : test::kGgmlTypes) {
    GgufBuilder b;
    b.Tensor("t", {2 * type.block, 3}, type.id, std::string(6 * type.bytes, 0));
    const std::string bytes = b.Build();
    const auto file = compute::ParseGguf(Bytes(bytes), "m.gguf");
    ASSERT_TRUE(file.ok()) << type.name << ": " << file.status().ToString();
    const compute::TensorEntry& t = file->tensors.at("t");
    EXPECT_EQ(std::string(compute::InfoOf(t.dtype).name), type.name);
    EXPECT_EQ(t.bytes, static_cast<int64_t>(6 * type.bytes)) << type.name;
    b = GgufBuilder();
    b.Tensor("cut", {2 * type.block, 3}, type.id, std::string(6 * type.bytes - 1, 0));
    EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'cut'", "cut short");
    if (type.block == 1) continue;
    b = GgufBuilder();
    b.Tensor("ragged", {3 * type.block / 2, 2}, type.id, std::string(6 * type.bytes, 0));
    EXPECT_REFUSED(ParseStatus(b.Build()), kLoss, "'ragged'", type.name, "multiple of " + std::to_string(type.block));
  }
}
}  // namespace
}  // namespace tactus::gguf_test
