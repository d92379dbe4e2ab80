// Files at the last valid byte: the tests of hostile files begin one byte further.
#include <gtest/gtest.h>

#include "compute/weights/gguf.h"
#include "compute/weights/mapped_file.h"
#include "compute/weights/safetensors.h"
#include "model_files.h"

namespace tactus::compute {
namespace {

using test::Append;
using test::GgufBuilder;
using test::TempFolder;

constexpr StatusCode kLoss = StatusCode::kDataLoss;

std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s));
}
Status Parse(const GgufBuilder& builder) {
  const std::string bytes = builder.Build();
  return ParseGguf(Bytes(bytes), "m.gguf").status();
}

TEST(GgufEdges, DataThatEndsWithTheFileIsComplete) {
  GgufBuilder text;
  text.alignment = 1;  // no padding
  text.Text("t", "the last byte");
  EXPECT_TRUE(Parse(text).ok()) << Parse(text).message();
  GgufBuilder array;
  array.alignment = 1;
  array.Array<uint32_t>("a", 4, {1, 2, 3});
  EXPECT_TRUE(Parse(array).ok()) << Parse(array).message();
  GgufBuilder strings;
  strings.alignment = 1;
  strings.Strings("s", {"", ""});
  EXPECT_TRUE(Parse(strings).ok()) << Parse(strings).message();
  GgufBuilder tensor;
  tensor.Tensor("t", {4}, 0, std::string(16, 'x'));
  EXPECT_TRUE(Parse(tensor).ok()) << Parse(tensor).message();
}

TEST(GgufEdges, LongestNamesAndKeysAreAccepted) {
  for (const auto& [length, legal] : {std::pair<size_t, bool>(65535, true), {65536, false}}) {
    GgufBuilder b;
    b.U32(std::string(length, 'k'), 1);
    EXPECT_EQ(Parse(b).ok(), legal) << length << " " << Parse(b).message();
  }
}

TEST(GgufEdges, LongestTensorNamesAreAccepted) {
  for (const auto& [length, legal] : {std::pair<size_t, bool>(1024, true), {1025, false}}) {
    GgufBuilder b;
    b.F32Tensor(std::string(length, 'n'), {1});
    EXPECT_EQ(Parse(b).ok(), legal) << length << " " << Parse(b).message();
  }
}

// An array within an array within ...: `depth` arrays in total, the innermost of bytes.
GgufBuilder Nested(int depth) {
  std::string bytes;
  for (int i = 1; i < depth; ++i) {
    Append<uint32_t>(&bytes, 9);
    Append<uint64_t>(&bytes, 1);
  }
  Append<uint32_t>(&bytes, 0);
  Append<uint64_t>(&bytes, 1);
  bytes += 'x';
  GgufBuilder b;
  b.Raw("nested", 9, bytes);
  return b;
}

TEST(GgufEdges, ArraysNestUpToTheLimit) {
  int deepest = 0;
  while (deepest < 100 && Parse(Nested(deepest + 1)).ok()) ++deepest;
  EXPECT_REFUSED(Parse(Nested(deepest + 1)), kLoss, "nest deeper than 4");
  EXPECT_EQ(deepest, 4) << "the outermost counts";
}

TEST(GgufEdges, AlignmentsAndDimensionsHaveLimits) {
  for (const uint32_t alignment : {8u, 16u, 32u, 4096u, 1u << 20}) {
    GgufBuilder b;
    b.U32("general.alignment", alignment);
    b.alignment = alignment;
    b.Tensor("a", {2}, 0, std::string(8, 'x'));
    b.Tensor("b", {2}, 0, std::string(8, 'x'));
    EXPECT_TRUE(Parse(b).ok()) << alignment << ": " << Parse(b).message();
  }
  GgufBuilder four;
  four.Tensor("t", {1, 2, 1, 2}, 0, std::string(16, 'x'));
  EXPECT_TRUE(Parse(four).ok()) << Parse(four).message();
  GgufBuilder none;
  none.Tensor("t", {}, 0, std::string(4, 'x'));
  EXPECT_REFUSED(Parse(none), kLoss, "0 dimensions");
  // 2^40 elements are a valid dimension, for which the file is too short; one more is invalid.
  GgufBuilder wide;
  wide.Tensor("t", {uint64_t{1} << 40}, 0, "");
  EXPECT_REFUSED(Parse(wide), kLoss, "cut short");
  GgufBuilder wider;
  wider.Tensor("t", {(uint64_t{1} << 40) + 1}, 0, "");
  EXPECT_REFUSED(Parse(wider), kLoss, "1 to 2^40");
}

TEST(GgufEdges, EachCountIsLimited) {
  GgufBuilder tensors;
  tensors.claimed_tensors = (1 << 20) + 1;
  EXPECT_REFUSED(Parse(tensors), kLoss, "1048577 tensors");
  GgufBuilder keys;
  keys.claimed_keys = (1 << 20) + 1;
  EXPECT_REFUSED(Parse(keys), kLoss, "1048577", "1048576");
  keys.claimed_keys = 1 << 20;
  EXPECT_EQ(Parse(keys).message().find("limit"), std::string::npos)
      << "this number is possible: " << Parse(keys).message();
}

Status ParseSt(const std::string& header, const std::string& data) {
  const std::string bytes = test::Safetensors(header, data);
  TensorSet set;
  return ParseSafetensors(Bytes(bytes), "m", &set);
}

TEST(SafetensorsEdges, DataThatEndsWithTheFileIsComplete) {
  EXPECT_TRUE(ParseSt(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x')).ok());
  EXPECT_TRUE(ParseSt("{}", "").ok()) << "a header alone";
  EXPECT_TRUE(
      ParseSt(R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", std::string(4, 'x')).ok())
      << "eight dimensions";
  EXPECT_TRUE(ParseSt(R"({"t":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", "").ok()) << "an empty tensor";
}

TEST(SafetensorsEdges, DimensionsAndDepthHaveLimits) {
  const auto shape = [](const std::string& dim) {
    return ParseSt(R"({"t":{"dtype":"F32","shape":[)" + dim + R"(,0],"data_offsets":[0,0]}})", "");
  };
  EXPECT_TRUE(shape("1099511627776").ok()) << "2^40";
  EXPECT_REFUSED(shape("1099511627777"), kLoss, "dimension");
  const auto deep = [](int depth) {
    return ParseSt(R"({"__metadata__":)" + std::string(static_cast<size_t>(depth), '[') +
                       std::string(static_cast<size_t>(depth), ']') + "}",
                   "");
  };
  EXPECT_TRUE(deep(5).ok());
  EXPECT_FALSE(deep(20).ok());
}

TEST(MappedFileEdges, AFileOfTheLimitsSizeIsRead) {
  TempFolder folder;
  const std::string path = folder.Write("t", "hello");
  EXPECT_EQ(*ReadSmallFile(path, 5), "hello");
  EXPECT_REFUSED(ReadSmallFile(path, 4).status(), StatusCode::kTooLarge, "5 bytes");
  EXPECT_EQ(*ReadSmallFile(folder.Write("empty", ""), 0), "");
}

}  // namespace
}  // namespace tactus::compute
