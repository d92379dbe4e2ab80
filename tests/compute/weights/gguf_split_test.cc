// GGUF models in several files.
#include "compute/weights/gguf_split.h"

#include <functional>

#include "compute/weights/open_weights.h"
#include "model_files.h"

namespace tactus::gguf_split_test {
namespace {

using test::GgufBuilder;
using test::TempFolder;

constexpr StatusCode kLoss = StatusCode::kDataLoss;
constexpr int kParts = 3;

// One part of TinyGguf's tensors; the first has the metadata.
GgufBuilder PartOf(int index) {
  GgufBuilder b = index == 0 ? test::TinyMetadata() : GgufBuilder();
  const std::vector<test::TinyTensor> tensors = test::TinyTensors();
  b.Scalar<uint16_t>("split.no", 2, static_cast<uint16_t>(index));
  b.Scalar<uint16_t>("split.count", 2, kParts);
  b.Scalar<int32_t>("split.tensors.count", 5, static_cast<int32_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i % kParts == static_cast<size_t>(index)) b.F32Tensor(tensors[i].name, tensors[i].dims);
  }
  return b;
}
std::string NameOf(int index, int count = kParts) {
  return "tiny-0000" + std::to_string(index + 1) + "-of-0000" + std::to_string(count) + ".gguf";
}
// The path of the first part.
std::string WriteParts(const TempFolder& folder, const std::function<bool(int)>& wanted = [](int) { return true; }) {
  for (int i = 0; i < kParts; ++i) {
    if (wanted(i)) folder.Write(NameOf(i), PartOf(i).Build());
  }
  return folder.path() + "/" + NameOf(0);
}
Status DescribeStatus(const std::string& path) {
  return compute::DescribeModel(path).status();
}

TEST(GgufSplit, TheFirstPartOpensAll) {
  TempFolder folder;
  const std::string path = WriteParts(folder), whole_path = folder.Write("whole/m.gguf", test::TinyGguf().Build());
  const auto split = compute::DescribeModel(path), whole = compute::DescribeModel(whole_path);
  ASSERT_TRUE(split.ok()) << split.status().ToString();
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  int64_t bytes = 0;
  for (int i = 0; i < kParts; ++i) bytes += static_cast<int64_t>(PartOf(i).Build().size());
  EXPECT_EQ(split->weight_file_bytes, bytes);
  EXPECT_EQ(split->config.name, "tiny");
  const auto a = compute::OpenWeights(*split, compute::MatrixUse::kViews);
  const auto b = compute::OpenWeights(*whole, compute::MatrixUse::kViews);
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  ASSERT_TRUE(b.ok()) << b.status().ToString();
  EXPECT_EQ((*a)->tensors.files.size(), 3u);
  ASSERT_EQ((*a)->tensors.tensors.size(), (*b)->tensors.tensors.size());
  for (const auto& [name, tensor] : (*b)->tensors.tensors) {
    const compute::TensorEntry* other = (*a)->tensors.Find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->bytes, tensor.bytes) << name;
    EXPECT_EQ(std::memcmp(other->data, tensor.data, static_cast<size_t>(tensor.bytes)), 0) << name;
  }
}

TEST(GgufSplit, AFolderOfPartsIsOneModel) {
  TempFolder folder;
  const auto d = compute::DescribeModel((WriteParts(folder), folder.path()));
  ASSERT_TRUE(d.ok()) << d.status().ToString();
  EXPECT_EQ(d->path, folder.path() + "/" + NameOf(0));
}

TEST(GgufSplit, AMissingPartIsNamed) {
  for (const int missing : {1, 2}) {
    TempFolder folder;
    const std::string path = WriteParts(folder, [=](int i) { return i != missing; });
    EXPECT_REFUSED(DescribeStatus(path), StatusCode::kNotFound, folder.path() + "/" + NameOf(missing) + " is missing",
                   NameOf(0) + " has 3 parts");
  }
}

TEST(GgufSplit, ALaterPartNamesTheFirst) {
  TempFolder folder;
  WriteParts(folder, [](int i) { return i != 0; });
  for (const std::string& path : {folder.path() + "/" + NameOf(1), folder.path()}) {
    EXPECT_REFUSED(DescribeStatus(path), StatusCode::kInvalidArgument, "of 3 of a model",
                   "give the first, " + folder.path() + "/" + NameOf(0));
  }
}

TEST(GgufSplit, NamesAndNumbersMustAgree) {
  TempFolder folder;
  const std::string path = WriteParts(folder);
  const std::string renamed = folder.Write("other.gguf", PartOf(0).Build());
  EXPECT_REFUSED(DescribeStatus(renamed), StatusCode::kInvalidArgument, "other.gguf is part 1 of 3",
                 "must end in -00001-of-00003.gguf");
  const std::string miscounted = folder.Write(NameOf(0, 4), PartOf(0).Build());
  EXPECT_REFUSED(DescribeStatus(miscounted), StatusCode::kInvalidArgument, "part 1 of 3", "-00001-of-00003.gguf");
  folder.Write(NameOf(1), PartOf(2).Build());
  EXPECT_REFUSED(DescribeStatus(path), kLoss, NameOf(1), "says that it is part 3 of 3", "by its name it is part 2");
  for (const auto& [no, count] : {std::pair<uint16_t, uint16_t>(3, 3), {7, 0}}) {
    GgufBuilder bad = test::TinyGguf();
    bad.Scalar<uint16_t>("split.no", 2, no);
    bad.Scalar<uint16_t>("split.count", 2, count);
    EXPECT_REFUSED(DescribeStatus(folder.Write(NameOf(0), bad.Build())), kLoss, "split.no " + std::to_string(no));
  }
}

TEST(GgufSplit, PartsMustMakeOneModel) {
  TempFolder folder;
  const std::string path = WriteParts(folder);
  GgufBuilder twice = PartOf(1);
  twice.F32Tensor("token_embd.weight", {8, 12});  // also in the first part
  folder.Write(NameOf(1), twice.Build());
  EXPECT_REFUSED(DescribeStatus(path), kLoss, NameOf(1), "'token_embd.weight' is also in", NameOf(0));
  GgufBuilder more = PartOf(1);
  more.F32Tensor("extra.weight", {8});
  folder.Write(NameOf(1), more.Build());
  EXPECT_REFUSED(DescribeStatus(path), kLoss, NameOf(0), "3 parts have 12 tensors", "split.tensors.count is 11");
  const std::string whole = PartOf(1).Build();
  folder.Write(NameOf(1), whole.substr(0, whole.size() - 1));
  EXPECT_REFUSED(DescribeStatus(path), kLoss, NameOf(1), "cut short");
}

TEST(GgufSplit, NamesOfPartsAreRecognised) {
  for (const char* later : {"a-00002-of-00003.gguf", "dir/b-99999-of-99999.gguf"})
    EXPECT_TRUE(compute::IsLaterGgufPart(later)) << later;
  for (const char* other :
       {"a-00001-of-00003.gguf", "a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "a.gguf", "-00002-of-00003.gguf",
        "a-0002-of-0003.gguf", "a-0000x-of-00003.gguf", "a-00002_of-00003.gguf", "a-00002-of-00003.bin"}) {
    EXPECT_FALSE(compute::IsLaterGgufPart(other)) << other;
  }
  EXPECT_EQ(compute::GgufModelName("dir/a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(compute::GgufModelName("dir/a-0001.gguf"), "a-0001");
}

}  // namespace
}  // namespace tactus::gguf_split_test
