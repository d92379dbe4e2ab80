#include "compute/weights/safetensors.h"

#include "model_files.h"

namespace tactus::safetensors_test {
namespace {

using test::Append;
using test::Bytes;
using test::Safetensors;
using test::TempFolder;

constexpr StatusCode kLoss = StatusCode::kDataLoss;

Status ParseStatus(const std::string& bytes) {
  compute::TensorSet set;
  return compute::ParseSafetensors(Bytes(bytes), "m.safetensors", &set);
}

std::string OneTensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, ReadsTensors) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"F16","shape":[],"data_offsets":[32,34]}})";
  const std::string bytes = Safetensors(header, std::string(34, 'x'));
  compute::TensorSet set;
  ASSERT_TRUE(compute::ParseSafetensors(Bytes(bytes), "m.safetensors", &set).ok());
  ASSERT_EQ(set.tensors.size(), 3u);
  EXPECT_EQ(set.Find("a")->dtype, compute::DType::kF32);
  EXPECT_EQ(set.Find("a")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(set.Find("b")->bytes, 8);
  EXPECT_EQ(set.Find("b")->data - set.Find("a")->data, 24);
  EXPECT_EQ(set.Find("c")->bytes, 2);
  EXPECT_EQ(set.Find("d"), nullptr);
}

TEST(Safetensors, CutAtAnyByteIsRefused) {
  const std::string whole = Safetensors(OneTensor("F32", "[2]", "[0,8]"), std::string(8, 'x'));
  ASSERT_TRUE(ParseStatus(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    compute::TensorSet set;
    ASSERT_FALSE(compute::ParseSafetensors(std::as_bytes(std::span(cut)), "m", &set).ok()) << size;
  }
}

TEST(Safetensors, HostileHeadersAreRefused) {
  std::string huge;
  Append<uint64_t>(&huge, UINT64_MAX);
  EXPECT_REFUSED(ParseStatus(huge + "{}"), kLoss, "18446744073709551615 bytes", "2 are left");
  EXPECT_REFUSED(ParseStatus(Safetensors("[1,2]", "")), kLoss, "not an object");
  EXPECT_REFUSED(ParseStatus(Safetensors("{\"a\":", "")), kLoss, "not valid JSON");
  EXPECT_REFUSED(ParseStatus(Safetensors(std::string(200000, '['), "")), kLoss);
  EXPECT_REFUSED(ParseStatus(Safetensors(R"({"t":)" + std::string(100000, '[') + std::string(100000, ']') + "}", "")),
                 kLoss);
  EXPECT_REFUSED(ParseStatus(Safetensors(R"({"t":{"dtype":"F32"}})", "")), kLoss, "'t'", "lacks");
  EXPECT_REFUSED(ParseStatus("version https://git-lfs.github.com/spec/v1\n"), kLoss, "Git LFS");
}

TEST(Safetensors, HostileTensorsAreRefused) {
  const std::string data(64, 'x');
  const auto with = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return ParseStatus(Safetensors(OneTensor(dtype, shape, offsets), data));
  };
  EXPECT_REFUSED(with("F64", "[2]", "[0,16]"), StatusCode::kUnimplemented, "'t'", "F64", "F32, F16 and BF16");
  EXPECT_REFUSED(with("F32", "[2]", "[0,12]"), kLoss, "'t'", "needs 8");
  EXPECT_REFUSED(with("F32", "[2]", "[8,0]"), kLoss, "'t'");
  EXPECT_REFUSED(with("F32", "[2]", "[60,68]"), kLoss, "ends at byte 68", "has 64");
  EXPECT_REFUSED(with("F32", "[-2]", "[0,8]"), kLoss, "dimension");
  EXPECT_REFUSED(with("F32", "[1.5]", "[0,8]"), kLoss, "dimension");
  EXPECT_REFUSED(with("F32", "[1099511627776,1099511627776]", "[0,8]"), kLoss, "too large");
  EXPECT_REFUSED(with("F32", "[4294967296,4294967296,4]", "[0,0]"), kLoss, "too large");
  EXPECT_REFUSED(with("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), kLoss, "at most 8");
  EXPECT_REFUSED(with("F32", "[2]", "[0,18446744073709551615]"), kLoss, "'t'");
  EXPECT_REFUSED(with("F32", "[2]", "[-8,0]"), kLoss, "data_offsets");
  const std::string overlap =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  EXPECT_REFUSED(ParseStatus(Safetensors(overlap, data)), kLoss, "'a' and 'b' overlap");
  const std::string twice =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
  EXPECT_REFUSED(ParseStatus(Safetensors(twice, data)), kLoss, "'a' occurs twice");
}

TEST(SafetensorsFolder, ReadsAndChecksShards) {
  const std::string a = Safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  const std::string b = Safetensors(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", std::string(4, 'x'));
  TempFolder folder;
  EXPECT_REFUSED(compute::OpenSafetensorsFolder(folder.path()).status(), StatusCode::kNotFound, folder.path());
  folder.Write("pytorch_model.bin", "x");
  EXPECT_REFUSED(compute::OpenSafetensorsFolder(folder.path()).status(), StatusCode::kNotFound,
                 "pytorch_model.bin is not supported");
  folder.Write("one.safetensors", a);
  const auto index = [&](const std::string& map) {
    folder.Write("model.safetensors.index.json", R"({"weight_map":)" + map + "}");
    return compute::OpenSafetensorsFolder(folder.path()).status();
  };
  EXPECT_REFUSED(index(R"({"a":"one.safetensors","b":"two.safetensors"})"), StatusCode::kNotFound, "two.safetensors",
                 "incomplete");
  folder.Write("two.safetensors", b);
  EXPECT_TRUE(index(R"({"a":"one.safetensors","b":"two.safetensors"})").ok());
  EXPECT_REFUSED(index(R"({"a":"two.safetensors","b":"two.safetensors"})"), kLoss, "'a'", "lacks it");
  EXPECT_REFUSED(index(R"({"a":"one.safetensors","c":"two.safetensors"})"), kLoss, "'c'", "lacks it");
  folder.Write("two.safetensors", a);
  EXPECT_REFUSED(index(R"({"a":"one.safetensors","b":"two.safetensors"})"), kLoss, "'a'", "another shard");
  for (const char* path : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "", "..", "."}) {
    EXPECT_REFUSED(index(std::string(R"({"a":")") + path + R"("})"), kLoss, "not a file name within the folder");
  }
  EXPECT_REFUSED(index("{}"), kLoss, "weight_map");
  EXPECT_REFUSED(index(R"({"a":1})"), kLoss, "not a string");
}

}  // namespace
}  // namespace tactus::safetensors_test
