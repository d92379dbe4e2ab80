#include "cost/fitted.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "cost/cost_model.h"
#include "cost/embedded_data.h"

namespace tactus::cost {
namespace {

// Shapes far apart, so that the neighbour used is evident; efficiencies that no roofline would yield.
constexpr char kFile[] = R"({
  "tactus_cost": 2,
  "device": "h100",
  "backend": "vllm",
  "sources": ["made up"],
  "errors": [{"op": "gemm.bfloat16", "left_out": "shape", "median": 0.05, "p90": 0.2, "rows": 10}],
  "floor_us": 2,
  "gemm": [
    {"dtype": "bfloat16", "n": 1024, "k": 1024, "efficiency": [[1, 0.5], [128, 0.25], [256, 0.5]]},
    {"dtype": "bfloat16", "n": 65536, "k": 65536, "efficiency": [[1, 0.9], [256, 0.8]]}
  ],
  "prefill": [
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "context": 0, "efficiency": [[16, 0.1], [1024, 0.4]]},
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "context": 16384, "efficiency": [[16, 0.2], [1024, 0.5]]}
  ],
  "prefill_alone": [
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "context": 0, "us": [[16, 10], [1024, 200]]},
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "context": 16384, "us": [[16, 100], [1024, 2000]]}
  ],
  "decode": [
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "batch": 1, "efficiency": [[16, 0.001], [4096, 0.5]]},
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bfloat16", "batch": 64, "efficiency": [[16, 0.05], [4096, 0.8]]}
  ],
  "elementwise": [{"op": "norm", "overhead_us": 3, "efficiency": 0.5}],
  "allreduce": [{"gpus": 2, "us": [[1024, 5], [1048576, 30]]}, {"gpus": 8, "us": [[1024, 9], [1048576, 60]]}],
  "exchange": [{"gpus": 2, "us": [[1024, 11], [1048576, 50]]}],
  "sendrecv_us": [[1024, 4], [1048576, 20]],
  "optional": {"later": [1, 2, 3]}
})";

struct Heads {
  double q = 32, kv = 8, dim = 128;
};
AttentionCurve Curve(Heads heads, double at, Knots knots, std::string kv_dtype = "bfloat16") {
  return {heads.q, heads.kv, heads.dim, std::move(kv_dtype), at, std::move(knots)};
}
BesideChunk Beside(std::string fit, Heads heads, Knots factor) {
  return {std::move(fit), Curve(heads, 0, std::move(factor))};
}

class FittedTest : public testing::Test {
 protected:
  FittedTest() : device_(*FindDevice("h100")) {
    Result<Coefficients> parsed = ParseCoefficients(kFile, "made-up.json");
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

TEST_F(FittedTest, MeasuredShapeReturnsItsKnots) {
  const auto gemm = fitted_->Gemm(bf16_, 1024, 1024);
  EXPECT_NEAR(gemm(1), GemmFloorNs(1, 1024, 1024) / 0.5, 1e-6);
  EXPECT_NEAR(gemm(128), GemmFloorNs(128, 1024, 1024) / 0.25, 1e-6);
  EXPECT_NEAR(gemm(192), (GemmFloorNs(128, 1024, 1024) / 0.25 + GemmFloorNs(256, 1024, 1024) / 0.5) / 2,
              1e-6);                                                   // linear in between
  EXPECT_NEAR(gemm(1000), GemmFloorNs(1000, 1024, 1024) / 0.5, 1e-6);  // beyond the last knot: its efficiency
}

TEST_F(FittedTest, TimeBetweenFarKnotsRisesAtWavesOfTiles) {
  Coefficients c;
  c.floor_us = 2;
  c.gemm = {{"bfloat16", 8192, 8192, {{256, .5}, {512, .5}}}};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const auto gemm = fitted->Gemm(bf16_, 8192, 8192);
  EXPECT_NEAR(gemm(256), GemmFloorNs(256, 8192, 8192) / 0.5, 1e-6);
  EXPECT_NEAR(gemm(512), GemmFloorNs(512, 8192, 8192) / 0.5, 1e-6);
  const double line = (gemm(512) - gemm(256)) / 256;
  EXPECT_GT(gemm(257) - gemm(256), 5 * line);               // a new row of tiles
  EXPECT_NEAR(gemm(300) - gemm(299), line / 2, line / 10);  // within a row of tiles: half the line's slope
}

TEST_F(FittedTest, TimeBetweenNearKnotsStepsAtTileEdges) {
  Coefficients c;
  c.floor_us = 2;
  // 250 to 264: only the edge at 256 lies between. 264 to 280: no edge. 280 to 340: too far apart for edges.
  c.gemm = {{"bfloat16", 8192, 8192, {{250, .5}, {264, .4}, {280, .4}, {340, .42}}}};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const auto gemm = fitted->Gemm(bf16_, 8192, 8192);
  EXPECT_GT(gemm(264), 1.2 * gemm(250));
  EXPECT_NEAR(gemm(256), gemm(250), 1e-6) << "250 and 256 tokens fill the same tiles";
  EXPECT_NEAR(gemm(257), gemm(264), 1e-6) << "257 and 264 tokens use the same tiles";
  EXPECT_NEAR(gemm(272), (gemm(264) + gemm(280)) / 2, 1e-6) << "no edge between 264 and 280: linear";
  EXPECT_LT(gemm(330), gemm(340)) << "280 and 340 are 60 apart: linear";
  EXPECT_GT(gemm(300), gemm(280)) << "280 and 340 are 60 apart: linear";
}

TEST_F(FittedTest, UnmeasuredShapeBorrowsEfficiencyNotTime) {
  // A shape very close to the first: all weight lies there.
  EXPECT_NEAR(fitted_->Gemm(bf16_, 1025, 1024)(1), GemmFloorNs(1, 1025, 1024) / 0.5,
              0.001 * GemmFloorNs(1, 1025, 1024));
  // Halfway between both in the logarithm: the geometric mean of their efficiencies.
  EXPECT_NEAR(fitted_->Gemm(bf16_, 8192, 8192)(1), GemmFloorNs(1, 8192, 8192) / std::sqrt(0.5 * 0.9), 1e-3);
}

TEST_F(FittedTest, AFormatThatWasNotMeasuredBorrowsEfficiencies) {
  const WeightFormat int8 = *FindWeightFormat("int8", device_);
  const double m = 1, n = 1024, k = 1024;
  const double own = (m * k + k * n + m * n) / device_.bandwidth * 1e9 + 2000;
  EXPECT_NEAR(fitted_->Gemm(int8, 1024, 1024)(1), own / 0.5, 1e-6);
  EXPECT_TRUE(fitted_->Coverage(int8, shape_, 1, 1).gemm_dtype_borrowed);
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 1, 1).gemm_dtype_borrowed);
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
  // Another geometry: twice the KV heads equal twice the sequences; half the heads, or heads of half the size, halve
  // what exceeds the least time.
  EXPECT_NEAR(fitted_->DecodeNs({64, 16, 128, 2}, 0.5, 32768), 8 * one, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs({64, 16, 128, 2}, 32, 4096), many, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs({64, 16, 128, 2}, 64, 4096), 2 * many, 1e-6);
  const double least = 16 * token_ns / 0.001;
  EXPECT_NEAR(fitted_->DecodeNs({16, 4, 128, 2}, 1, 32768), least + (8 * one - least) / 2, 1e-3);
  EXPECT_NEAR(fitted_->DecodeNs({32, 8, 64, 2}, 64, 4096), least + (many - least) / 2, 1e-3);
}

TEST_F(FittedTest, NetworksAndSmallOperatorsAreReadFromTheFile) {
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 2), 5e3, 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(2 * 1048576, 8), 120e3, 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs((1024 + 1048576) / 2.0, 2), 17.5e3, 1e-6);
  EXPECT_GT(fitted_->AllReduceNs(1024, 16), fitted_->AllReduceNs(1024, 8));  // beyond the group: over the network
  EXPECT_NEAR(fitted_->SendNs(1024, 2), 4e3, 1e-6);
  EXPECT_NEAR(fitted_->ElementwiseNs(Elementwise::kNorm, 3.35e6), 3e3 + 2e3, 1e-6);
  EXPECT_EQ(fitted_->ElementwiseNs(Elementwise::kRope, 1e6),
            MakeRoofline(device_)->ElementwiseNs(Elementwise::kRope, 1e6));
}

// Below the first knot the time is constant.
TEST_F(FittedTest, TimeBelowTheFirstKnotIsConstant) {
  EXPECT_NEAR(fitted_->AllReduceNs(10, 2), 5e3, 1e-6);
  EXPECT_NEAR(fitted_->SendNs(10, 2), 4e3, 1e-6);
  const double token_ns = 2 * 8 * 128 * 2 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 1, 4), 16 * token_ns / 0.001, 1e-6);
  EXPECT_NEAR(fitted_->DecodeNs(shape_, 0.5, 4096), 4096 * token_ns / 0.5, 1e-6);
}

// Beyond the longest chunk times grow with the roofline: twice the tokens, four times the pairs.
TEST_F(FittedTest, PrefillBeyondTheLongestChunkScalesWithTheRoofline) {
  EXPECT_NEAR(fitted_->PrefillAloneNs(shape_, 2048, 0), 4 * 200e3, 1e-3);
  const double roofline = 4.0 * 32 * 128 * 2048 * 1024 / device_.bf16_flops * 1e9;
  EXPECT_NEAR(fitted_->PrefillAddsNs(shape_, 2048, 0), roofline / 0.4, 1e-3);
}

// Twice the heads double what a chunk adds, and a chunk's time alone beyond the kernel's least time.
TEST_F(FittedTest, PrefillOfAnotherGeometryScalesWithItsWork) {
  const AttentionShape twice{64, 16, 128, 2};
  EXPECT_NEAR(fitted_->PrefillAddsNs(twice, 1024, 0), 2 * fitted_->PrefillAddsNs(shape_, 1024, 0), 1e-3);
  EXPECT_NEAR(fitted_->PrefillAloneNs(twice, 1024, 0), 10e3 + 2 * (200e3 - 10e3), 1e-3);
}

// A curve behind more context that was measured faster is noise: the time behind less context is used.
TEST_F(FittedTest, PrefillWithMoreContextIsNeverFaster) {
  Coefficients c;
  c.prefill_alone = {Curve({}, 0, {{16, 10}, {1024, 200}}), Curve({}, 4096, {{16, 9}, {1024, 150}})};
  EXPECT_NEAR(MakeFitted(device_, c, {}, MakeRoofline(device_))->PrefillAloneNs(shape_, 1024, 2048), 200e3, 1e-3);
}

// The geometry nearest in KV heads, queries per KV head and head size is used, in any order of records.
TEST_F(FittedTest, NearestGeometryIsUsed) {
  Coefficients c;
  c.prefill_alone = {Curve({32, 32, 128}, 0, {{16, 1}}), Curve({32, 8, 64}, 0, {{16, 2}}), Curve({}, 0, {{16, 3}}),
                     Curve({64, 8, 128}, 0, {{16, 4}}), Curve({4, 1, 128}, 0, {{16, 5}})};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 32, 128, 2}), 1e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 8, 64, 2}), 2e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({32, 8, 128, 2}), 3e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({28, 7, 128, 2}), 3e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({64, 8, 128, 2}), 4e3, 1e-6);
  EXPECT_NEAR(fitted->PrefillBaseNs({5, 1, 128, 2}), 5e3, 1e-6);
}

// Curves are sorted by their contexts, so the file's records may be in any order.
TEST_F(FittedTest, RecordsMayBeInAnyOrder) {
  Coefficients c;
  c.decode = {Curve({}, 64, {{16, .05}, {4096, .8}}), Curve({}, 1, {{16, .001}, {4096, .5}})};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  for (const double batch : {1.0, 30.0, 64.0, 200.0}) {
    EXPECT_EQ(fitted->DecodeNs(shape_, batch, 1000), fitted_->DecodeNs(shape_, batch, 1000)) << batch;
  }
}

// An fp8 cache uses its own curves where measured; elsewhere the efficiencies of 16 bits at half the bytes. A single
// knot applies to all contexts below it.
TEST_F(FittedTest, Fp8CacheUsesItsCurvesOrHalfTheBytes) {
  const AttentionShape fp8{32, 8, 128, 1};
  EXPECT_NEAR(fitted_->DecodeNs(fp8, 64, 4096), fitted_->DecodeNs(shape_, 64, 4096) / 2, 1e-6);
  Coefficients c;
  c.decode = {Curve({}, 1, {{16, .001}}), Curve({}, 1, {{1024, .5}}, "fp8")};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double token_ns = 2 * 8 * 128 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 1024), 1024 * token_ns / 0.5, 1e-6);
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 100), 1024 * token_ns / 0.5, 1e-6);
  EXPECT_NEAR(fitted->DecodeNs(fp8, 1, 2048), 2048 * token_ns / 0.5, 1e-6);
}

// Another kind of fp8 borrows per-tensor fp8's efficiencies before bfloat16's.
TEST_F(FittedTest, KindsOfFp8BorrowFromEachOther) {
  Coefficients c;
  c.gemm = {{"bfloat16", 1024, 1024, {{1, .5}}}, {"fp8", 1024, 1024, {{1, .25}}}};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double own = (1024.0 + 1024 * 1024 + 1024) / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->Gemm(*FindWeightFormat("fp8_block", device_), 1024, 1024)(1), own / 0.25, 1e-6);
  EXPECT_NEAR(fitted->Gemm(*FindWeightFormat("int8", device_), 1024, 1024)(1), own / 0.5, 1e-6);
  EXPECT_TRUE(fitted->Coverage(*FindWeightFormat("fp8_block", device_), shape_, 1, 1).gemm_dtype_borrowed);
  EXPECT_FALSE(fitted->Coverage(*FindWeightFormat("fp8", device_), shape_, 1, 1).gemm_dtype_borrowed);
}

TEST_F(FittedTest, CoverageStatesMeasuredRanges) {
  const FitCoverage v = fitted_->Coverage(bf16_, {64, 16, 128, 2}, 2, 1);
  EXPECT_TRUE(v.gemm && v.prefill && v.decode && v.all_reduce);
  EXPECT_FALSE(v.beside_chunk);
  EXPECT_EQ(v.most_tokens, 256);
  EXPECT_EQ(v.most_chunk, 1024);
  EXPECT_EQ(v.most_context, 4096);
  EXPECT_EQ(v.most_batch, 64);
  EXPECT_EQ(v.geometry, "32/8 heads of 128");
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 1, 1).all_reduce) << "no all-reduce on one device";
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 16, 1).all_reduce) << "the ring formula applies beyond the group";
}

// Four devices are as far from two as from eight: the smaller table is used, scaled like the ring formula; for six the
// table of eight. Beyond a table's last size the time is proportional to the bytes.
TEST_F(FittedTest, AllReduceOfAnotherCountIsScaledFromTheNearestTable) {
  const auto ring = MakeRoofline(device_);
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 4), 5e3 * ring->AllReduceNs(1024, 4) / ring->AllReduceNs(1024, 2), 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(1024, 6), 9e3 * ring->AllReduceNs(1024, 6) / ring->AllReduceNs(1024, 8), 1e-6);
  EXPECT_NEAR(fitted_->AllReduceNs(4 * 1048576, 2), 4 * 30e3, 1e-6);
  EXPECT_NEAR(fitted_->SendNs(4 * 1048576, 8), 4 * 20e3, 1e-6);
  EXPECT_EQ(fitted_->SendNs(1024, 9), ring->SendNs(1024, 9));
  EXPECT_EQ(fitted_->AllReduceNs(1024, 9), ring->AllReduceNs(1024, 9))
      << "the tables were measured inside one group of 8";
}

// For devices without a link the tables hold measurements over a node's PCIe. Pairs do not describe a node.
TEST_F(FittedTest, AllReduceOverPcieUsesMeasurementsOfANode) {
  DeviceSpec pcie = device_;
  pcie.link = "pcie";
  pcie.group = 1;
  const auto fitted = MakeFitted(pcie, coefficients_, {}, MakeRoofline(pcie));
  EXPECT_NEAR(fitted->AllReduceNs(1024, 2), 5e3, 1e-6);
  EXPECT_NEAR(fitted->AllReduceNs(2 * 1048576, 8), 120e3, 1e-6);
  EXPECT_EQ(fitted->AllReduceNs(1024, 9), MakeRoofline(pcie)->AllReduceNs(1024, 9)) << "beyond the node";
  pcie.group = 2;
  EXPECT_NEAR(MakeFitted(pcie, coefficients_, {}, MakeRoofline(pcie))->AllReduceNs(1024, 2), 5e3, 1e-6);
  EXPECT_EQ(MakeFitted(pcie, coefficients_, {}, MakeRoofline(pcie))->AllReduceNs(1024, 4),
            MakeRoofline(pcie)->AllReduceNs(1024, 4));
}

TEST_F(FittedTest, TheExchangeOfTokensHasItsOwnMeasurements) {
  EXPECT_NEAR(fitted_->ExchangeNs(1024, 2, 1), 11e3, 1e-6);
  EXPECT_TRUE(fitted_->Coverage(bf16_, shape_, 1, 2).exchange);
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 1, 16).exchange) << "the ring formula applies beyond the group";
  EXPECT_TRUE(fitted_->Coverage(bf16_, shape_, 4, 2).exchange);
  EXPECT_FALSE(fitted_->Coverage(bf16_, shape_, 8, 2).exchange) << "two replicas of eight are two groups";
  EXPECT_EQ(fitted_->ExchangeNs(1024, 2, 8), MakeRoofline(device_)->ExchangeNs(1024, 2, 8));
  coefficients_.exchange.clear();
  const auto ring = MakeRoofline(device_);
  EXPECT_EQ(MakeFitted(device_, coefficients_, {}, MakeRoofline(device_))->ExchangeNs(1024, 2, 1),
            ring->AllReduceNs(1024, 2))
      << "else the two halves of a ring all-reduce";
}

// Measurements over PCIe are those of machines whose devices reach each other directly.
TEST_F(FittedTest, OtherPeersTakeTheFormula) {
  DeviceSpec pcie = device_;
  pcie.link = "pcie";
  pcie.group = 1;
  pcie.other_peers = true;
  pcie.peer_bandwidth = 1e9;
  pcie.peer_hop_ns = 20e3;
  const auto fitted = MakeFitted(pcie, coefficients_, {}, MakeRoofline(pcie));
  EXPECT_NEAR(fitted->ExchangeNs(1e6, 2, 1), 2 * (pcie.launch_ns + 20e3) + 1e6, 1e-6);
  EXPECT_EQ(fitted->AllReduceNs(1e6, 2), fitted->ExchangeNs(1e6, 2, 1));
  pcie.group = 8;
  EXPECT_NEAR(MakeFitted(pcie, coefficients_, {}, MakeRoofline(pcie))->ExchangeNs(1024, 2, 1), 11e3, 1e-6)
      << "a link joins the two";
}

// A measured time below one read of the chunk's KV is rejected, unless there is no context to read.
TEST_F(FittedTest, AChunkTakesAtLeastTheReadOfItsKv) {
  Coefficients c;
  c.prefill = {Curve({}, 0, {{16, 4}}), Curve({}, 16384, {{16, 4}})};
  const auto fitted = MakeFitted(device_, c, {}, MakeRoofline(device_));
  const double token_ns = 2 * 8 * 128 * 2 / device_.bandwidth * 1e9;
  EXPECT_NEAR(fitted->PrefillAddsNs(shape_, 16, 16384), 16400 * token_ns, 1e-6);
  EXPECT_NEAR(fitted->PrefillAddsNs(shape_, 16, 0), 16 * token_ns / 4, 1e-6);
}

// The device's row with the nearest number of queries per KV head is used, then the nearest number of KV heads.
TEST_F(FittedTest, NearestGeometryIsUsedBesideAChunk) {
  const std::vector<BesideChunk> rows = {
      Beside("h100", {64, 8, 128}, {{1, 2}}), Beside("h100", {128, 32, 128}, {{1, 7}}),
      Beside("h100", {16, 4, 128}, {{1, 3}}), Beside("h100", {96, 24, 128}, {{1, 5}})};
  const auto shared = MakeFitted(device_, coefficients_, rows, MakeRoofline(device_));
  const double more = fitted_->DecodeNs(shape_, 8, 4096) - fitted_->DecodeNs(shape_, 1, 16);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 8, 4096), 3 * more, 1e-3);  // the rows with 4 queries per head
}

TEST_F(FittedTest, DecodesBesideAChunkSlowDownAsMeasured) {
  const std::vector<BesideChunk> rows = {Beside("h100", {}, {{1, 8}, {64, 2}})};
  const auto shared = MakeFitted(device_, coefficients_, rows, MakeRoofline(device_));
  const double least = fitted_->DecodeNs(shape_, 1, 16);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 64, 4096), 2 * (fitted_->DecodeNs(shape_, 64, 4096) - least), 1e-3);
  EXPECT_NEAR(shared->DecodeBesideChunkNs(shape_, 8, 4096), 4 * (fitted_->DecodeNs(shape_, 8, 4096) - least), 1e-3);
  EXPECT_EQ(fitted_->DecodeBesideChunkNs(shape_, 64, 4096), fitted_->DecodeNs(shape_, 64, 4096));
}

TEST(CoefficientFile, FaultsAreNamedWithTheirPlace) {
  const auto message = [](const std::string& text) {
    const auto parsed = ParseCoefficients(text, "f.json");
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << text;
    return parsed.status().message();
  };
  const auto with = [&](const std::string& member) { return message("{\"tactus_cost\": 2, " + member + "}"); };
  const auto knots = [&](const std::string& pairs) {
    return with(R"("gemm": [{"dtype": "fp8", "n": 1024, "k": 1024, "efficiency": )" + pairs + "}]");
  };
  EXPECT_NE(message("").find("f.json: invalid JSON at line 1, column 1"), std::string::npos) << message("");
  EXPECT_NE(message("tactus-cost 1\nfloor_us 2\n").find("f.json: invalid JSON at line 1"), std::string::npos)
      << "the former text format";
  EXPECT_EQ(message("[]"), "f.json: not a JSON object");
  EXPECT_EQ(message("{}"), "f.json: 'tactus_cost' is missing");
  EXPECT_EQ(message(R"({"tactus_cost": 1})"), "f.json: tactus_cost: 1 is not a number between 2 and 2");
  EXPECT_EQ(message(R"({"tactus_cost": "2"})"), "f.json: tactus_cost: not a number");
  EXPECT_EQ(with(R"("warp": 1)"), "f.json: 'warp' is not known");
  EXPECT_EQ(with(R"("device": 5)"), "f.json: device: not a text");
  EXPECT_EQ(with(R"("sources": ["a", 1])"), "f.json: sources[1]: not a text");
  EXPECT_EQ(with(R"("floor_us": -1)"), "f.json: floor_us: -1 is not a number between 0 and 1000000");
  EXPECT_EQ(with(R"("floor_us": 1, "floor_us": 2)"),
            "f.json: invalid JSON: the key 'floor_us' appears twice in one object");
  EXPECT_EQ(with(R"("gemm": {})"), "f.json: gemm: not a list of records");
  EXPECT_EQ(with(R"("gemm": [1])"), "f.json: gemm[0]: not a record {...}");
  EXPECT_EQ(with(R"("gemm": [{"dtype": "fp8", "n": 1024}])"), "f.json: gemm[0]: 'k' is missing");
  EXPECT_EQ(with(R"("elementwise": [{"op": "a", "overhead_us": 1, "efficiency": 1}, {"op": "a", "overhead_us": 1,
                 "efficiency": 1, "x": 2}])"),
            "f.json: elementwise[1]: 'x' is not known");
  EXPECT_EQ(with(R"("allreduce": [{"gpus": 2.5, "us": [[1, 1]]}])"),
            "f.json: allreduce[0]: gpus: 2.5 is not a whole number");
  EXPECT_EQ(knots("[]"), "f.json: gemm[0]: efficiency: a curve without knots");
  EXPECT_EQ(knots("[[8, 0.5], [4, 0.5]]"), "f.json: gemm[0]: efficiency[1]: knot 4 does not rise above 8");
  EXPECT_EQ(knots("[[8, 0.5], [8, 0.4]]"), "f.json: gemm[0]: efficiency[1]: knot 8 does not rise above 8");
  EXPECT_EQ(knots("[[8, -1]]"), "f.json: gemm[0]: efficiency[0]: -1 is not a number between 1e-09 and 1000000000000");
  EXPECT_NE(knots("[[8, 0]]").find("efficiency[0]: 0 is not a number"), std::string::npos);
  EXPECT_EQ(knots("[8]"), "f.json: gemm[0]: efficiency[0]: not a pair [x, y]");
  EXPECT_EQ(knots("[[8, 0.5, 1]]"), "f.json: gemm[0]: efficiency[0]: not a pair [x, y]");
}

TEST(CoefficientFile, OptionalFieldsAndLimitsAreAccepted) {
  const Coefficients c = *ParseCoefficients(R"({"tactus_cost": 2, "sources": ["one", "two"], "floor_us": 0,
      "errors": [{"op": "gemm", "left_out": "shape", "median": 0, "p90": 0, "rows": 0}], "optional": [1, {}],
      "elementwise": [{"op": "add", "overhead_us": 0, "efficiency": 1000}], "allreduce": [{"gpus": 2, "us": [[0, 1]]}]})",
                                            "f.json");
  EXPECT_EQ(c.source, "one; two");
  EXPECT_EQ(c.floor_us, 0);
  EXPECT_EQ(c.errors.size(), 1u);
  EXPECT_EQ(c.elementwise[0].efficiency, 1000);
  EXPECT_EQ(c.all_reduce[0].gpus, 2);
  EXPECT_TRUE(ParseCoefficients(R"({"tactus_cost": 2})", "f.json").ok());
  const auto beside = ParseBesideChunk(R"({"source": "s", "beside": [{"fit": "h100", "q_heads": 32, "kv_heads": 8,
      "head_dim": 128, "kv_dtype": "bfloat16", "factor": [[1, 8], [64, 2]]}]})",
                                       "h.json");
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  EXPECT_EQ(beside->at(0).fit, "h100");
  EXPECT_EQ(beside->at(0).factor.knots, (Knots{{1, 8}, {64, 2}}));
  EXPECT_EQ(ParseBesideChunk(R"({"rows": []})", "h.json").status().message(), "h.json: 'rows' is not known");
}

TEST(CoefficientFile, EveryShippedFileLoadsAndNamesAKnownDevice) {
  int files = 0;
  for (const EmbeddedFile& f : EmbeddedFiles()) {
    if (!f.name.ends_with(".cost.json")) continue;
    const auto parsed = ParseCoefficients(f.text, std::string(f.name));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_TRUE(FindDevice(parsed->device).ok()) << f.name;
    EXPECT_FALSE(parsed->source.empty()) << f.name;
    EXPECT_FALSE(parsed->errors.empty()) << f.name << " has no error figures";
    EXPECT_FALSE(parsed->gemm.empty()) << f.name;
    ++files;
  }
  EXPECT_GT(files, 10);
}

// One kernel for all sequences is vLLM's, also assumed for our backend: by default on devices where it was measured,
// elsewhere only if the deployment states it.
TEST(CoefficientFile, DecodesShareAChunksKernelWhereMeasuredOrStated) {
  const auto rows = [](const char* device, const char* backend, const char* kernels) {
    const auto found = FindBesideChunk(*FindDevice(device), backend, kernels);
    EXPECT_TRUE(found.ok()) << found.status().message();
    std::set<std::string> fits;
    for (const BesideChunk& row : *found) {
      fits.insert(row.fit);
      for (const auto& [batch, factor] : row.factor.knots) EXPECT_GE(factor, 1) << row.fit << " batch " << batch;
    }
    return fits;
  };
  using Fits = std::set<std::string>;
  for (const char* backend : {"", "vllm"}) {
    EXPECT_EQ(rows("rtx4090", backend, "auto"), Fits{"rtx4090"}) << backend;
    EXPECT_EQ(rows("a100", backend, "auto"), Fits()) << backend;
  }
  for (const char* backend : {"vllm-ray", "sglang", "trtllm"}) {
    EXPECT_EQ(rows("rtx4090", backend, "auto"), Fits()) << backend;
    EXPECT_EQ(rows("rtx4090", backend, "one"), Fits{"rtx4090"}) << backend;
  }
  EXPECT_EQ(rows("rtx4090", "vllm", "two"), Fits());
  // GB/s per multiprocessor: 8.5 of an RTX PRO 6000, 7.9 of an RTX 4090; an A100 has 18.9, an L4 5.2.
  EXPECT_EQ(rows("a100", "vllm", "one"), Fits{"rtxpro6000"});
  EXPECT_EQ(rows("l4", "vllm", "one"), Fits{"rtx4090"});
}

TEST(CoefficientFile, ABackendsOwnFileIsPreferred) {
  const DeviceSpec h100 = *FindDevice("h100");
  const auto plain = FindCoefficients(h100, ""), trt = FindCoefficients(h100, "trtllm"),
             other = FindCoefficients(*FindDevice("a100"), "trtllm");
  ASSERT_TRUE(plain.ok() && trt.ok() && other.ok());
  EXPECT_EQ((*plain)->backend, "vllm");
  EXPECT_EQ((*trt)->backend, "trtllm");
  EXPECT_EQ(*other, *FindCoefficients(*FindDevice("a100"), ""));  // it has no file for this backend
}

// A mixture of 16 experts of 64 x 32, 2 per token, measured with 2 and 8 touched experts.
class FittedExpertsTest : public FittedTest {
 protected:
  FittedExpertsTest() {
    coefficients_.experts = {{"bfloat16", 64, 32, 2, 2, {{1, 10}, {4, 14}, {8, 30}}},
                             {"bfloat16", 64, 32, 2, 8, {{4, 40}, {8, 44}}}};
    fitted_ = MakeFitted(device_, coefficients_, {}, MakeRoofline(device_));
  }
  // A mixture of which a token uses all `experts`, so that every step touches all of them.
  double Ns(int64_t experts, int64_t tokens, int64_t inner = 32) const {
    return fitted_->Experts(bf16_, {experts, experts, 64, inner, 1})(tokens);
  }
};

TEST_F(FittedExpertsTest, MeasuredMixtureTakesItsMeasuredTime) {
  EXPECT_NEAR(Ns(2, 1), 10e3, 1e-6);
  EXPECT_NEAR(Ns(2, 2), (10 + 4.0 / 3) * 1e3, 1e-6) << "linear in tokens";
  EXPECT_EQ(Ns(2, 0), 0);
  // Eight experts with two rows each: the rows of 8 tokens of 2.
  EXPECT_NEAR(Ns(8, 2), 44e3, 1e-6);
  EXPECT_NEAR(Ns(8, 1), 40e3, 1e-6);
  // Five touched experts, two rows each, are 5 tokens of the measured mixture, halfway between the curves.
  EXPECT_NEAR(Ns(5, 2), (18 + 41) / 2.0 * 1e3, 1e-6);
}

TEST_F(FittedExpertsTest, RowsBeyondTheCurveCostWhatFewExpertsRowsCost) {
  EXPECT_NEAR(Ns(8, 4), (44 + 8 * 4) * 1e3, 1e-6) << "16 tokens, at 16 us per 4 beyond 8";
  EXPECT_NEAR(Ns(2, 16), (30 + 8 * 4) * 1e3, 1e-6);
}

TEST_F(FittedExpertsTest, OtherMixturesTakeEfficiencyByBytesAndRows) {
  // Twice as wide: two experts read what four measured ones read, one row each as 4 tokens of those; the time is that
  // of the same bytes.
  EXPECT_NEAR(Ns(2, 1, 64), Ns(4, 1), 1e-6);
  // Far wider than all that was measured: the efficiency of the most bytes.
  EXPECT_NEAR(Ns(16, 1, 64), Ns(8, 1) * 4, 1e-6);
  // A quarter of the bytes in the same time and efficiency.
  const WeightFormat narrow{"int4", 0.5, 2, bf16_.flops};
  EXPECT_NEAR(fitted_->Experts(narrow, {8, 8, 64, 32, 1})(1), Ns(2, 1), 1e-6);
}

TEST_F(FittedExpertsTest, ReplicasShareTheExperts) {
  // Two replicas with a token each: a device has four of the eight experts, and two rows for each.
  const ExpertsShape shared{8, 8, 64, 32, 2};
  EXPECT_EQ(shared.Touched(1), 4);
  EXPECT_EQ(shared.Rows(1), 8);
  EXPECT_NEAR(fitted_->Experts(bf16_, shared)(1), Ns(4, 2), 1e-6);
}

TEST(CoefficientFile, ExpertsAreReadInOrder) {
  const std::string head = R"({"tactus_cost": 2, "experts": [)";
  const std::string row = R"({"dtype":"bfloat16","hidden":64,"inner":32,"chosen":2,"touched":)";
  const auto read = ParseCoefficients(head + row + R"(4,"us":[[1,10]]},)" + row + R"(8,"us":[[2,20]]}]})", "x");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->experts.size(), 2u);
  const ExpertsCurve& e = read->experts[1];
  EXPECT_EQ(e.dtype, "bfloat16");
  EXPECT_EQ(std::vector<double>({e.hidden, e.inner, e.chosen, e.touched}), std::vector<double>({64, 32, 2, 8}));
  EXPECT_EQ(e.us, (Knots{{2, 20}}));
  EXPECT_FALSE(ParseCoefficients(head + row + R"(4,"us":[[1,10]]},)" + row + R"(4,"us":[[2,20]]}]})", "x").ok());
}

TEST(FittedModel, DescriptionNamesTheExperts) {
  Deployment d;
  d.model = "qwen3-30b-a3b";
  d.device = "rtxpro6000";
  EXPECT_NE((*CostModel::Create(d))->Describe().find("experts fitted (median error on regions left out"),
            std::string::npos);
  d.device = "h100";
  EXPECT_NE((*CostModel::Create(d))->Describe().find("experts roofline"), std::string::npos);
  d.model = "llama-3.1-8b";
  EXPECT_EQ((*CostModel::Create(d))->Describe().find("experts"), std::string::npos);
}

TEST(FittedModel, DescriptionNamesSourcesAndExtrapolation) {
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
