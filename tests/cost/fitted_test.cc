#include "cost/fitted.h"

#include <cmath>

#include <gtest/gtest.h>

#include "cost/cost_model.h"
#include "cost/embedded_data.h"

namespace tactus::cost {
namespace {

// Shapes far apart, so that which neighbour answers is plain; efficiencies that no roofline would give.
constexpr char kFile[] = R"(tactus-cost 1
device h100
backend vllm
source made up; has a # in it
error gemm.bfloat16 shape median .05 p90 .2 rows 10
floor_us 2   # a comment
gemm bfloat16 1024 1024 1:.5 128:.25 256:.5
gemm bfloat16 65536 65536 1:.9 256:.8
prefill 32 8 128 bfloat16 0: 16:.1 1024:.4
prefill 32 8 128 bfloat16 16384: 16:.2 1024:.5
prefill_alone 32 8 128 bfloat16 0: 16:10 1024:200
prefill_alone 32 8 128 bfloat16 16384: 16:100 1024:2000
decode 32 8 128 bfloat16 1: 16:.001 4096:.5
decode 32 8 128 bfloat16 64: 16:.05 4096:.8
elementwise norm 3 .5
allreduce 2 1024:5 1048576:30
allreduce 8 1024:9 1048576:60
sendrecv 1024:4 1048576:20
optional later 1 2 3
)";

class FittedTest : public testing::Test {
 protected:
  FittedTest() : device_(*FindDevice("h100")) {
    Result<Coefficients> parsed = ParseCoefficients(kFile, "made-up.cost");
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    coefficients_ = std::move(parsed).value();
    fitted_ = MakeFitted(device_, coefficients_, {}, MakeRoofline(device_));
    bf16_ = *FindWeightFormat("bfloat16", device_);
  }
  double GemmFloorNs(double m, double n, double k) const {
    return std::max(2 * m * n * k / device_.bf16_flops, 2 * (m * k + k * n + m * n) / device_.bandwidth) * 1e9 + 2000;
  }

  const DeviceSpec device_;
  Coefficients coefficients_;
  std::unique_ptr<FittedOperators> fitted_;
  WeightFormat bf16_;
  const AttentionShape shape_{32, 8, 128, 2};
};

TEST_F(FittedTest, AMeasuredShapeGivesBackItsKnots) {
  const auto gemm = fitted_->Gemm(bf16_, 1024, 1024);
  EXPECT_NEAR(gemm(1), GemmFloorNs(1, 1024, 1024) / 0.5, 1e-6);
  EXPECT_NEAR(gemm(128), GemmFloorNs(128, 1024, 1024) / 0.25, 1e-6);
  EXPECT_NEAR(gemm(192), (GemmFloorNs(128, 1024, 1024) / 0.25 + GemmFloorNs(256, 1024, 1024) / 0.5) / 2,
              1e-6);                                                   // linear in between
  EXPECT_NEAR(gemm(1000), GemmFloorNs(1000, 1024, 1024) / 0.5, 1e-6);  // beyond: the last efficiency
}

TEST_F(FittedTest, BetweenKnotsTimeRisesWhereAWaveOfTilesBegins) {
  const Coefficients c =
      *ParseCoefficients("tactus-cost 1\nfloor_us 2\ngemm bfloat16 8192 8192 256:.5 512:.5\n", "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const auto gemm = fitted->Gemm(bf16_, 8192, 8192);
  EXPECT_NEAR(gemm(256), GemmFloorNs(256, 8192, 8192) / 0.5, 1e-6);
  EXPECT_NEAR(gemm(512), GemmFloorNs(512, 8192, 8192) / 0.5, 1e-6);
  const double line = (gemm(512) - gemm(256)) / 256;
  EXPECT_GT(gemm(257) - gemm(256), 5 * line);               // a new row of tiles
  EXPECT_NEAR(gemm(300) - gemm(299), line / 2, line / 10);  // inside one: the line's half only
}

TEST_F(FittedTest, AnotherShapeTakesTheEfficiencyAndNotTheTime) {
  // A shape a hair away from the first: all weight lies there.
  EXPECT_NEAR(fitted_->Gemm(bf16_, 1025, 1024)(1), GemmFloorNs(1, 1025, 1024) / 0.5,
              0.001 * GemmFloorNs(1, 1025, 1024));
  // Halfway in the logarithm of both: the geometric mean of both efficiencies.
  EXPECT_NEAR(fitted_->Gemm(bf16_, 8192, 8192)(1), GemmFloorNs(1, 8192, 8192) / std::sqrt(0.5 * 0.9), 1e-3);
}

TEST_F(FittedTest, AFormatThatWasNotMeasuredBorrowsEfficiencies) {
  const WeightFormat int8 = *FindWeightFormat("int8", device_);
  const double m = 1, n = 1024, k = 1024;
  const double own = (m * k + k * n + m * n) / device_.bandwidth * 1e9 + 2000;
  EXPECT_NEAR(fitted_->Gemm(int8, 1024, 1024)(1), own / 0.5, 1e-6);
  EXPECT_TRUE(fitted_->Coverage(int8, shape_, 1).gemm_dtype_borrowed);
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 1).gemm_dtype_borrowed);
}

TEST_F(FittedTest, PrefillIsLogLinearInTheChunkAndLinearInTheContext) {
  EXPECT_NEAR(fitted_->PrefillBaseNs(shape_), 10e3, 1e-6);
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 16, 0), 10e3, 1e-6);
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 128, 0), std::sqrt(10.0 * 200.0) * 1e3, 1e-3);
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 1024, 8192), (200e3 + 2000e3) / 2, 1e-3);
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 1024, 32768), 200e3 + 2 * 1800e3, 1e-3);
  const double roofline = 4.0 * 32 * 128 * 1024 * 512 / device_.bf16_flops * 1e9;
  EXPECT_NEAR(fitted_->PrefillAddsNs(shape_, 1024, 0), roofline / 0.4, 1e-3);
}

TEST_F(FittedTest, DecodeIsLinearInContextAndBatch) {
  const double token_ns = 2 * 8 * 128 * 2 / device_.bandwidth * 1e9;
  const double one = 4096 * token_ns / 0.5, many = 64 * 4096 * token_ns / 0.8;
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 1, 4096), one, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 64, 4096), many, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 32.5, 4096), (one + many) / 2, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 128, 4096), 2 * many, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 64, 8192), 2 * many, 1e-6);
  // Another geometry: what exceeds the least time scales with its KV traffic.
  const double least = 16 * token_ns / 0.001;
  EXPECT_NEAR(fitted_->DecodeNs({64, 16, 128, 2}, 64, 4096), least + 2 * (many - least), 1e-3);
}

TEST_F(FittedTest, NetworksAndSmallOperatorsAreReadFromTheFile) {
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 2), 5e3, 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(2 * 1048576, 8), 120e3, 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs((1024 + 1048576) / 2.0, 2), 17.5e3, 1e-6);
  EXPECT_GT(fitted_->AllReduceNs(1024, 16), fitted_->AllReduceNs(1024, 8));  // beyond the group: over the network
  EXPECT_NEAR(fitted_->SendNs(1024, false), 4e3, 1e-6);
  EXPECT_NEAR(fitted_->ElementwiseNs(Elementwise::kNorm, 3.35e6), 3e3 + 2e3, 1e-6);
  EXPECT_EQ(fitted_->ElementwiseNs(Elementwise::kRope, 1e6),
            MakeRoofline(device_)->ElementwiseNs(Elementwise::kRope, 1e6));
}

// Below the first knot times stay at its own.
TEST_F(FittedTest, BelowTheFirstKnot) {
  EXPECT_NEAR(fitted_->AllReduceNs(10, 2), 5e3, 1e-6);
  EXPECT_NEAR(fitted_->SendNs(10, false), 4e3, 1e-6);
  const double token_ns = 2 * 8 * 128 * 2 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 1, 4), 16 * token_ns / 0.001, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 0.5, 4096), 4096 * token_ns / 0.5, 1e-6);
}

// Beyond the longest chunk in proportion to the roofline: at twice the tokens four times the pairs.
TEST_F(FittedTest, BeyondTheLongestChunk) {
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 2048, 0), 4 * 200e3, 1e-3);
  const double roofline = 4.0 * 32 * 128 * 2048 * 1024 / device_.bf16_flops * 1e9;
  EXPECT_NEAR(fitted_->PrefillAddsNs(shape_, 2048, 0), roofline / 0.4, 1e-3);
}

// Twice the heads: what a chunk adds doubles, and of a chunk alone what exceeds the kernel's least time.
TEST_F(FittedTest, AnotherGeometryScalesWithItsWork) {
  const AttentionShape twice{64, 16, 128, 2};
  EXPECT_NEAR(fitted_->PrefillAddsNs(twice, 1024, 0), 2 * fitted_->PrefillAddsNs(shape_, 1024, 0), 1e-3);
  EXPECT_NEAR(fitted_->PrefillAloneNs(twice, 1024, 0), 10e3 + 2 * (200e3 - 10e3), 1e-3);
}

// A curve behind more context that was measured faster is noise: what was measured behind less holds.
TEST_F(FittedTest, MoreContextIsNeverFaster) {
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1\nprefill_alone 32 8 128 bfloat16 0: 16:10 1024:200\nprefill_alone 32 8 128 bfloat16 4096: 16:9 "
      "1024:150\n",
      "made-up.cost");
  EXPECT_NEAR(MakeFitted(device_, c, {}, MakeRoofline(device_))->PrefillAloneNs(shape_, 1024, 2048), 200e3, 1e-3);
}

// Which of several geometries stands for a model's: by KV heads, queries per KV head and head size, whatever the order
// of lines.
TEST_F(FittedTest, TheNearestGeometryAnswers) {
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1\nprefill_alone 32 32 128 bfloat16 0: 16:1\nprefill_alone 32 8 64 bfloat16 0: 16:2\n"
      "prefill_alone 32 8 128 bfloat16 0: 16:3\nprefill_alone 64 8 128 bfloat16 0: 16:4\nprefill_alone 4 1 128 "
      "bfloat16 0: 16:5\n",
      "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 32, 128, 2}), 1e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 8, 64, 2}), 2e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 8, 128, 2}), 3e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({28, 7, 128, 2}), 3e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({64, 8, 128, 2}), 4e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({5, 1, 128, 2}), 5e3, 1e-6);
}

// Curves are sorted by where they were measured, so the file's lines may stand in any order.
TEST_F(FittedTest, LinesStandInAnyOrder) {
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1\ndecode 32 8 128 bfloat16 64: 16:.05 4096:.8\ndecode 32 8 128 bfloat16 1: 16:.001 4096:.5\n",
      "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  for (const double batch : {1.0, 30.0, 64.0, 200.0}) {
    EXPECT_EQ(fitted->DecodeNs(shape_, batch, 1000), fitted_->DecodeNs(shape_, batch, 1000)) << batch;
  }
}

// An fp8 cache has curves of its own where they were measured; elsewhere 16 bits' efficiencies at half the bytes. One
// knot stands for all contexts below it.
TEST_F(FittedTest, AnFp8CacheHasCurvesOfItsOwnOrHalfTheBytes) {
  const AttentionShape fp8{32, 8, 128, 1};
  EXPECT_NEAR(fitted_->DecodeNs(fp8, 64, 4096), fitted_->DecodeNs(shape_, 64, 4096) / 2, 1e-6);
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1\ndecode 32 8 128 bfloat16 1: 16:.001\ndecode 32 8 128 fp8 1: 1024:.5\n", "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double token_ns = 2 * 8 * 128 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 1024), 1024 * token_ns / 0.5, 1e-6);
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 100), 1024 * token_ns / 0.5, 1e-6);
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 2048), 2048 * token_ns / 0.5, 1e-6);
}

// Another kind of fp8 takes per-tensor fp8's efficiencies before bfloat16's.
TEST_F(FittedTest, KindsOfFp8BorrowFromEachOther) {
  const Coefficients c =
      *ParseCoefficients("tactus-cost 1\ngemm bfloat16 1024 1024 1:.5\ngemm fp8 1024 1024 1:.25\n", "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double own = (1024.0 + 1024 * 1024 + 1024) / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->Gemm(*FindWeightFormat("fp8_block", device_), 1024, 1024)(1), own / 0.25, 1e-6);
  EXPECT_NEAR(fitted->Gemm(*FindWeightFormat("int8", device_), 1024, 1024)(1), own / 0.5, 1e-6);
  EXPECT_TRUE(fitted->Coverage(*FindWeightFormat("fp8_block", device_), shape_, 1).gemm_dtype_borrowed);
  EXPECT_FALSE(fitted->Coverage(*FindWeightFormat("fp8", device_), shape_, 1).gemm_dtype_borrowed);
}

TEST_F(FittedTest, CoverageNamesTheEndsOfWhatWasMeasured) {
  const FitCoverage v = fitted_->Coverage(bf16_, {64, 16, 128, 2}, 2);
  EXPECT_TRUE(v.gemm && v.prefill && v.decode && v.all_reduce);
  EXPECT_FALSE(v.beside_chunk);
  EXPECT_EQ(v.most_tokens, 256);
  EXPECT_EQ(v.most_chunk, 1024);
  EXPECT_EQ(v.most_context, 4096);
  EXPECT_EQ(v.most_batch, 64);
  EXPECT_EQ(v.geometry, "32/8 heads of 128");
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 1).all_reduce) << "one device reduces nothing";
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 16).all_reduce) << "beyond the group the ring formula answers";
}

// Four devices are as far from two as from eight: the smaller table answers, scaled as the ring formula scales. Six are
// nearer to eight. Beyond the table's last size time is in proportion to the bytes.
TEST_F(FittedTest, AllReduceOfAnotherCountIsScaledFromTheNearest) {
  const auto ring = MakeRoofline(device_);
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 4), 5e3 * ring->AllReduceNs(1024, 4) / ring->AllReduceNs(1024, 2), 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 6), 9e3 * ring->AllReduceNs(1024, 6) / ring->AllReduceNs(1024, 8), 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(4 * 1048576, 2), 4 * 30e3, 1e-6);
  EXPECT_NEAR(fitted_->SendNs(4 * 1048576, false), 4 * 20e3, 1e-6);
  EXPECT_EQ(fitted_->SendNs(1024, true), ring->SendNs(1024, true));
  EXPECT_EQ(fitted_->AllReduceNs(1024, 9), ring->AllReduceNs(1024, 9))
      << "the tables were measured inside one group of 8";
}

// A measured time below what it takes to read the chunk's KV once is not believed, unless there is no context to read.
TEST_F(FittedTest, AChunkTakesAtLeastTheReadOfItsKv) {
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1\nprefill 32 8 128 bfloat16 0: 16:4\nprefill 32 8 128 bfloat16 16384: 16:4\n", "made-up.cost");
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double token_ns = 2 * 8 * 128 * 2 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->PrefillAddsNs(shape_, 16, 16384), 16400 * token_ns, 1e-6);
  EXPECT_NEAR(fitted->PrefillAddsNs(shape_, 16, 0), 16 * token_ns / 4, 1e-6);
}

// What another device measured does not count, however near its geometry.
TEST_F(FittedTest, AnotherDevicesRowsAreNotAsked) {
  const std::vector<BesideChunk> rows =
      *ParseBesideChunk("beside a100 32 8 128 bfloat16 1:99\nbeside h100 64 8 128 bfloat16 1:8\n", "x");
  const auto shared = MakeFitted(device_, coefficients_, rows, MakeRoofline(device_));
  const double least = fitted_->DecodeNs(shape_, 1, 16);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 8, 4096), 8 * (fitted_->DecodeNs(shape_, 8, 4096) - least), 1e-3);
}

// Of the device's rows the nearest number of queries per KV head answers, then the nearest number of KV heads.
TEST_F(FittedTest, TheNearestGeometryBesideAChunk) {
  const std::vector<BesideChunk> rows = *ParseBesideChunk(
      "beside h100 64 8 128 bfloat16 1:2\nbeside h100 128 32 128 bfloat16 1:7\nbeside h100 16 4 128 bfloat16 1:3\n"
      "beside h100 96 24 128 bfloat16 1:5\n",
      "x");
  const auto shared = MakeFitted(device_, coefficients_, rows, MakeRoofline(device_));
  const double more = fitted_->DecodeNs(shape_, 8, 4096) - fitted_->DecodeNs(shape_, 1, 16);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 8, 4096), 3 * more, 1e-3);  // of those with 4 queries per head
}

TEST_F(FittedTest, DecodesBesideAChunkSlowDownAsMeasured) {
  const std::vector<BesideChunk> rows =
      *ParseBesideChunk("beside h100 32 8 128 bfloat16 1:8 64:2\nbeside a100 32 8 128 bfloat16 1:99\n", "x");
  const auto shared = MakeFitted(device_, coefficients_, rows, MakeRoofline(device_));
  const double least = fitted_->DecodeNs(shape_, 1, 16);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 64, 4096), 2 * (fitted_->DecodeNs(shape_, 64, 4096) - least), 1e-3);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 8, 4096), 4 * (fitted_->DecodeNs(shape_, 8, 4096) - least), 1e-3);
  EXPECT_EQ(fitted_->DecodeBesideChunkNs(shape_, 64, 4096), fitted_->DecodeNs(shape_, 64, 4096));
}

TEST(CoefficientFile, FaultsAreNamedByLine) {
  const auto message = [](const std::string& body) {
    std::string text = "tactus-cost 1\n";
    text += body;
    const auto parsed = ParseCoefficients(text, "f.cost");
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << body;
    return parsed.status().message();
  };
  EXPECT_EQ(ParseCoefficients("", "f.cost").status().message(), "f.cost: an empty coefficient file");
  EXPECT_NE(ParseCoefficients("gemm bfloat16 1 1 1:1\n", "f.cost")
                .status()
                .message()
                .find("f.cost:1: a coefficient file starts"),
            std::string::npos);
  EXPECT_NE(ParseCoefficients("tactus-cost 2\n", "f.cost").status().message().find("'2' is no number between 1 and 1"),
            std::string::npos);
  EXPECT_NE(message("warp 1\n").find("f.cost:2: record 'warp' is not known"), std::string::npos);
  EXPECT_NE(message("\ngemm bfloat16 1024\n").find("f.cost:3: the line ends too early"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024\n").find("a curve without knots"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024 8:.5 4:.5\n").find("knot 4 does not rise above 8"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024 8:.5 8:.4\n").find("knot 8 does not rise above 8"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024 8:-1\n").find("'-1' is no number"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024 8:0\n").find("'0' is no number"), std::string::npos);
  EXPECT_NE(message("gemm bfloat16 1024 1024 8\n").find("'8' is no pair"), std::string::npos);
  EXPECT_NE(message("prefill 32 8 128 bfloat16 0 16:.1\n").find("'0' does not end in a colon"), std::string::npos);
  EXPECT_NE(message("floor_us 2 3\n").find("'3' is too much"), std::string::npos);
  EXPECT_NE(message("error gemm shape mean .05 p90 .2 rows 10\n").find("'mean' where 'median'"), std::string::npos);
}

TEST(CoefficientFile, WhatIsAllowed) {
  const Coefficients c = *ParseCoefficients(
      "tactus-cost 1  # the version\nsource one # two\nsource three\nfloor_us 0\nbackend vllm # ours\nerror gemm shape "
      "median 0 p90 0 rows 0\n"
      "elementwise add 0 1000\nallreduce 2 0:1\n",
      "f.cost");
  EXPECT_EQ(c.source, "one # two; three") << "free text may hold a '#'";
  EXPECT_EQ(c.floor_us, 0);
  EXPECT_EQ(c.backend, "vllm");
  EXPECT_EQ(c.errors.size(), 1u);
  EXPECT_EQ(c.elementwise[0].efficiency, 1000);
  EXPECT_EQ(c.all_reduce[0].gpus, 2);
}

TEST(CoefficientFile, EveryShippedFileIsReadAndNamesADeviceThatIsThere) {
  int files = 0;
  for (const EmbeddedFile& f : EmbeddedFiles()) {
    if (f.name.size() < 6 || f.name.substr(f.name.size() - 5) != ".cost") continue;
    const auto parsed = ParseCoefficients(f.text, std::string(f.name));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_TRUE(FindDevice(parsed->device).ok()) << f.name;
    EXPECT_FALSE(parsed->source.empty()) << f.name;
    EXPECT_FALSE(parsed->errors.empty()) << f.name << " states no error";
    EXPECT_FALSE(parsed->gemm.empty()) << f.name;
    ++files;
  }
  EXPECT_GT(files, 10);
  const auto beside = FindBesideChunk("vllm");
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  for (const BesideChunk& row : *beside) {
    for (const auto& [batch, factor] : row.factor.knots) EXPECT_GE(factor, 1) << row.fit << " batch " << batch;
  }
  EXPECT_FALSE(beside->empty());
  EXPECT_EQ(FindBesideChunk("")->size(), beside->size()) << "ours are priced as vLLM's kernels";
  EXPECT_TRUE(FindBesideChunk("trtllm")->empty());
}

TEST(CoefficientFile, ABackendsOwnFileIsPreferred) {
  const DeviceSpec h100 = *FindDevice("h100");
  const auto plain = FindCoefficients(h100, ""), trt = FindCoefficients(h100, "trtllm"),
             other = FindCoefficients(*FindDevice("a100"), "trtllm");
  ASSERT_TRUE(plain.ok() && trt.ok() && other.ok());
  EXPECT_EQ((*plain)->backend, "vllm");
  EXPECT_EQ((*trt)->backend, "trtllm");
  EXPECT_EQ(*other, *FindCoefficients(*FindDevice("a100"), ""));  // none of its own
}

TEST(FittedModel, SaysWhatItRestsOnAndWhereItExtrapolates) {
  Deployment d;
  d.model = "llama-3.1-8b";
  d.device = "h100";
  const auto fitted = CostModel::Create(d);
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  const std::string text = (*fitted)->Describe();
  EXPECT_NE(text.find("matrix products fitted (median error on shapes left out "), std::string::npos) << text;
  EXPECT_NE(text.find("from 32/8 heads of 128"), std::string::npos) << text;
  StepShape most;
  most.decodes = 64;
  most.decode_context_tokens = 64 * 1000;
  EXPECT_EQ((*fitted)->Extrapolation(most), "");
  const ChunkShape chunk{0, 100000};
  most.chunks = {&chunk, 1};
  EXPECT_NE((*fitted)->Extrapolation(most).find("tokens per step 100064 (measured up to "), std::string::npos)
      << (*fitted)->Extrapolation(most);
  d.source = "roofline";
  EXPECT_NE((*CostModel::Create(d))->Describe().find("roofline of the device's figures"), std::string::npos);
}

}  // namespace
}  // namespace tactus::cost
