// The roofline and the networks by hand, on a device with round figures.
#include <cmath>

#include <gtest/gtest.h>

#include "cost/operator_times.h"

namespace tactus::cost::roofline_test {
namespace {

// 1e14 FLOP/s on 100 SMs, 1e12 bytes/s, 1 us to launch; NVLink of 1e11 in groups of 4, nodes of 8, PCIe 2e10, network
// 1e10 bytes/s.
DeviceSpec Round() {
  DeviceSpec d;
  d.name = "round";
  d.link = "nvlink";
  d.bf16_flops = 1e14;
  d.bandwidth = 1e12;
  d.sms = 100;
  d.launch_ns = 1000;
  d.link_bandwidth = 1e11;
  d.group = 4;
  d.node = 8;
  d.pcie_bandwidth = 2e10;
  d.network_bandwidth = 1e10;
  d.network = "infiniband";
  d.network_hop_ns = 10000;
  return d;
}
const WeightFormat kBf16{"bfloat16", 2, 2, 1e14};

// Few rows: reading the weights at 85 % of the bandwidth takes longer than the tiles' arithmetic.
TEST(Roofline, ThinProductTakesTheReadOfItsWeights) {
  const double bytes = 2.0 * 8192 * 8192 + 2.0 * 8192 + 2.0 * 8192;
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 1, 8192, 8192, true), bytes / 0.85e12 * 1e9 + 1000, 1e-6);
  // int4 narrows the weights, not the activations.
  const double narrow = 0.5 * 8192 * 8192 + 2.0 * 100 * 8192 + 2.0 * 100 * 8192;
  EXPECT_NEAR(TiledGemmNs(Round(), {"int4", 0.5, 2, 1e18}, 100, 8192, 8192, true), narrow / 0.85e12 * 1e9 + 1000, 1e-6);
}

// One row of 1,000 x 1,000: sixteen tiles of 64 x 64 in one wave, each at 0.8 x 0.65 of an SM's share of the peak. A
// depth of 1,000 is not split, since its halves would be below 512; one of 2,048 is split into four.
TEST(Roofline, SmallProductTakesOneTilesTime) {
  const double sm_flops = 1e14 / 100 * 0.8 * 0.65;
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 1, 1000, 1000, true), 2.0 * 64 * 64 * 1000 / sm_flops * 1e9 + 1000, 1e-6);
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 1, 1000, 2048, false), 2.0 * 64 * 64 * 2048 / sm_flops * 1e9 + 1000, 1e-6);
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 1, 1000, 2048, true), 2.0 * 64 * 64 * 2048 / sm_flops * 1e9 / 4 + 1000, 1e-6);
}

// Groups are products of the same depth and width: their tiles share the device.
TEST(Roofline, GroupedProductsShareWavesOfTiles) {
  DeviceSpec d = Round();
  EXPECT_NEAR(GroupedGemmNs(d, kBf16, 1, 100, 1000, 1000), TiledGemmNs(d, kBf16, 100, 1000, 1000, false), 1e-6);
  d.bandwidth = 1e18;
  // Four groups of 64 rows, each of 25 tiles of 64 x 64: one wave. A fifth: 65 tiles of 64 x 128.
  EXPECT_NEAR(GroupedGemmNs(d, kBf16, 4, 256, 1600, 1000), 2.0 * 64 * 64 * 1000 / (1e12 * 0.8 * 0.65) * 1e9 + 1000,
              1e-6);
  EXPECT_NEAR(GroupedGemmNs(d, kBf16, 5, 320, 1600, 1000), 2.0 * 64 * 128 * 1000 / (1e12 * 0.8 * 0.8) * 1e9 + 1000,
              1e-6);
  EXPECT_EQ(GroupedGemmNs(d, kBf16, 0, 0, 1600, 1000), 0);
}

TEST(Roofline, GroupedProductsReadTheWeightsOfTheirGroups) {
  const double bytes = 2.5 * 2 * 512 * 256 + 10 * (2 * 256 + 2 * 512);
  EXPECT_NEAR(GroupedGemmNs(Round(), {"fast", 2, 2, 1e18}, 2.5, 10, 512, 256), bytes / 0.85e12 * 1e9 + 1000, 1e-6);
}

// One token of a mixture that chooses 2 of 16: two experts are read; activation and sum stream their values.
TEST(Roofline, ExpertsTakeTheReadOfThoseTouched) {
  const WeightFormat fast{"fast", 2, 2, 1e18};
  const auto experts = MakeRoofline(Round())->Experts(fast, {16, 2, 1024, 512, 1});
  const double products =
      GroupedGemmNs(Round(), fast, 2, 2, 2 * 512, 1024) + GroupedGemmNs(Round(), fast, 2, 2, 1024, 512);
  EXPECT_NEAR(experts(1), products + 4 * 1000 + 2.0 * (3 * 2 * 512 + 3 * 1024) / 0.8e12 * 1e9, 1e-6);
  const ExpertsShape shared{16, 2, 1024, 512, 4};
  EXPECT_NEAR(shared.Touched(3), 4 * (1 - std::pow(1 - 2.0 / 16, 12)), 1e-12);
  EXPECT_EQ(shared.Rows(3), 6);
  EXPECT_EQ(shared.ExpertElements(), 3 * 1024 * 512);
}

TEST(Roofline, ExpectedMaximumIsThatOfNormalValues) {
  EXPECT_NEAR(ExpectedMaximum(1), 0, 1e-9);
  EXPECT_NEAR(ExpectedMaximum(2), 1 / std::sqrt(std::acos(-1.0)), 1e-5);
  EXPECT_NEAR(ExpectedMaximum(3), 0.84628, 1e-5);
  EXPECT_NEAR(ExpectedMaximum(64), 2.3437, 1e-3);
}

// 100 tokens that choose one of two experts: the larger half has 50 + 50 C(100, 50) / 2^100 of them.
TEST(Roofline, TheFullestDeviceHasMoreRowsThanTheMean) {
  const ExpertsShape halves{2, 1, 64, 64, 2, ExpectedMaximum(2)};
  EXPECT_NEAR(halves.Rows(50), 50 + 3.979, 0.02);
  const ExpertsShape all{8, 8, 64, 64, 4, ExpectedMaximum(4)};
  EXPECT_EQ(all.Rows(10), 80) << "every token chooses every expert";
  const ExpertsShape few{64, 8, 64, 64, 16, ExpectedMaximum(16)}, even{64, 8, 64, 64, 16};
  EXPECT_GT(few.Touched(1), even.Touched(1));
  EXPECT_LT(few.Touched(1), 4) << "a device has four experts";
  EXPECT_GE(few.Touched(1000), 4 - 1e-9);
  EXPECT_EQ(few.Rows(0), 0);
  const ExpertsShape seven{7, 2, 64, 64, 4};  // 2, 2, 2 and 1 experts
  EXPECT_NEAR(seven.Rows(7), 7 * 2 * 4 * 2 / 7.0, 1e-9);
  EXPECT_NEAR(seven.Touched(1000), 2, 1e-9);
  EXPECT_NEAR(seven.Touched(1), 2 * (1 - std::pow(5 / 7.0, 4)), 1e-9);
  EXPECT_EQ(few.Touched(0), 0);
}

// The products of a step may be split, as in vendors' libraries.
TEST(Roofline, ProductsOfAStepMayBeSplit) {
  const auto product = MakeRoofline(Round())->Gemm(kBf16, 1000, 2048);
  EXPECT_NEAR(product(1), 2.0 * 64 * 64 * 2048 / (1e14 / 100 * 0.8 * 0.65) * 1e9 / 4 + 1000, 1e-6);
}

// Splits need room: 40 tiles of 64 x 64 in quarters would be two waves. 20 tiles of 64 x 128 at 0.8, split into four,
// fit in one.
TEST(Roofline, SplitsFillTheDeviceAndNoMore) {
  const double tile_ns = 2.0 * 64 * 128 * 2048 / (1e14 / 100 * 0.8 * 0.8) * 1e9;
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 1, 2560, 2048, true), tile_ns / 4 + 1000, 1e-6);
}

// A large product: 40 x 20 tiles of 128 x 256 make eight full waves.
TEST(Roofline, LargeProductTakesWholeWaves) {
  const double tile_ns = 2.0 * 128 * 256 * 8192 / (1e14 / 100 * 0.8) * 1e9;
  EXPECT_NEAR(TiledGemmNs(Round(), kBf16, 40 * 128, 20 * 256, 8192, false), 8 * tile_ns + 1000, 1e-3);
  EXPECT_GT(TiledGemmNs(Round(), kBf16, 40 * 128 + 1, 20 * 256, 8192, false), 8.2 * tile_ns)
      << "one more row of tiles, one more wave";
}

// 4 heads of 32: width 128. 200 queries are padded to two tiles of 128; causal: each query attends half the chunk.
TEST(Roofline, PrefillTakesItsArithmeticOrItsTraffic) {
  const auto roofline = MakeRoofline(Round());
  const AttentionShape s{4, 2, 32, 2};
  EXPECT_EQ(roofline->PrefillBaseNs(s), 2000);
  EXPECT_NEAR(roofline->PrefillAddsNs(s, 200, 1000), 4.0 * 128 * 256 * (1000 + 257 / 2.0) / 0.55e14 * 1e9, 1e-6);
  // One query behind a long context, with many KV bytes: 256 per token.
  const AttentionShape wide{4, 4, 32, 200};
  EXPECT_NEAR(roofline->PrefillAddsNs(wide, 1, 100000), (51200.0 * 100001 + 4.0 * 128) / 0.8e12 * 1e9, 1e-3);
  EXPECT_EQ(roofline->PrefillAddsNs(s, 0, 1000), 0);
  // The least time alone: one SM computes a tile of queries over at most 1,024 keys.
  const double block_ns = 4.0 * 32 * 128 * 1024 / (0.55e14 / 100) * 1e9;
  EXPECT_NEAR(roofline->PrefillAloneNs(s, 16, 4000), 2000 + block_ns, 1e-6);
  EXPECT_NEAR(roofline->PrefillAloneNs(s, 16, 84), 2000 + block_ns * 100 / 1024, 1e-6);
  EXPECT_NEAR(roofline->PrefillAloneNs(s, 12800, 100000), 2000 + roofline->PrefillAddsNs(s, 12800, 100000), 1e-3);
  EXPECT_EQ(roofline->PrefillAloneNs(s, 0, 84), 0);
}

TEST(Roofline, DecodesReadTheirKv) {
  const auto roofline = MakeRoofline(Round());
  EXPECT_NEAR(roofline->DecodeNs({4, 2, 32, 2}, 10, 1000), 2.0 * 64 * 2 * 10000 / 0.8e12 * 1e9 + 2000, 1e-6);
  EXPECT_NEAR(roofline->DecodeNs({512, 1, 32, 1}, 10, 1000), 4.0 * 512 * 32 * 10000 / 0.55e14 * 1e9 + 2000,
              1e-6);  // many queries
  EXPECT_EQ(roofline->DecodeNs({4, 2, 32, 2}, 0, 1000), 0);
}

TEST(Roofline, SmallOperatorsLaunchAndStream) {
  const auto roofline = MakeRoofline(Round());
  EXPECT_NEAR(roofline->ElementwiseNs(Elementwise::kNorm, 8e6), 1000 + 10000, 1e-6);
  EXPECT_NEAR(roofline->ElementwiseNs(Elementwise::kSample, 8e6), 10 * 1000 + 10000, 1e-6);  // ten kernels
}

// A ring of p: 2 (p - 1) hops of 0.7 us, and 2 (p - 1) / p of the bytes at 75 % of the link.
TEST(Network, RingInsideAGroupUsesTheLink) {
  EXPECT_EQ(RingAllReduceNs(Round(), 3e6, 1), 0);
  EXPECT_NEAR(RingAllReduceNs(Round(), 3e6, 2), 2000 + 2 * 700 + 3e6 / 0.75e11 * 1e9, 1e-6);
  EXPECT_NEAR(RingAllReduceNs(Round(), 3e6, 4), 2000 + 6 * 700 + 1.5 * 3e6 / 0.75e11 * 1e9, 1e-6);
}

// Groups of four in a node of eight: one ring through all eight, as slow as PCIe, which joins the groups.
TEST(Network, RingThroughGroupsUsesPcie) {
  EXPECT_NEAR(RingAllReduceNs(Round(), 3e6, 8), 2000 + 14 * 3000 + 1.75 * 3e6 / (0.75 * 2e10) * 1e9, 1e-6);
  EXPECT_NEAR(RingAllReduceNs(Round(), 3e6, 6), 2000 + 10 * 3000 + 10.0 / 6 * 3e6 / (0.75 * 2e10) * 1e9, 1e-6);
  DeviceSpec single = Round();  // no link
  single.group = 1;
  EXPECT_NEAR(RingAllReduceNs(single, 3e6, 4), 2000 + 6 * 3000 + 1.5 * 3e6 / (0.75 * 2e10) * 1e9, 1e-6);
  single.peer_bandwidth = 4e9;  // as measured
  EXPECT_NEAR(RingAllReduceNs(single, 3e6, 4), 2000 + 6 * 3000 + 1.5 * 3e6 / 4e9 * 1e9, 1e-6);
}

// Between nodes of eight: one in eight of 30 hops uses the network, and eight parallel shares of it carry the ring,
// unless the link inside a node is slower.
TEST(Network, RingOverNodesUsesTheNetwork) {
  DeviceSpec d = Round();
  d.group = 8;
  EXPECT_NEAR(RingAllReduceNs(d, 3e6, 16),
              2000 + 30 / 8.0 * 10000 + 30 * 7 / 8.0 * 700 + 30 / 16.0 * 3e6 / (8 * 0.75e10) * 1e9, 1e-3);
  d.group = 4;
  EXPECT_NEAR(RingAllReduceNs(d, 3e6, 16),
              2000 + 30 / 8.0 * 10000 + 30 * 7 / 8.0 * 3000 + 30 / 16.0 * 3e6 / (0.75 * 2e10) * 1e9, 1e-3);
  d.group = d.node = 1;  // every hop, and one share
  EXPECT_NEAR(RingAllReduceNs(d, 3e6, 4), 2000 + 6 * 10000 + 1.5 * 3e6 / 0.75e10 * 1e9, 1e-3);
  d.node = 4;  // six devices: three per node, joined by the link
  d.group = 4;
  EXPECT_NEAR(RingAllReduceNs(d, 3e6, 6),
              2000 + 10 / 3.0 * 10000 + 10 * 2 / 3.0 * 700 + 10 / 6.0 * 3e6 / (3 * 0.75e10) * 1e9, 1e-3);
  d.network = "ethernet";  // TCP reaches a fifth of the line rate
  EXPECT_NEAR(RingAllReduceNs(d, 3e6, 6),
              2000 + 10 / 3.0 * 10000 + 10 * 2 / 3.0 * 700 + 10 / 6.0 * 3e6 / (3 * 0.2e10) * 1e9, 1e-3);
}

// One device of each replica exchanges tokens: of replicas of two, those of four groups share a node of eight.
TEST(Network, AnExchangeIsBetweenReplicas) {
  const auto o = MakeRoofline(Round());
  EXPECT_EQ(o->ExchangeNs(3e6, 4, 1), RingAllReduceNs(Round(), 3e6, 4));
  EXPECT_NEAR(o->ExchangeNs(3e6, 2, 2), 2000 + 2 * 700 + 3e6 / 0.75e11 * 1e9, 1e-6) << "in a group of four";
  EXPECT_NEAR(o->ExchangeNs(3e6, 2, 4), 2000 + 2 * 3000 + 3e6 / (0.75 * 2e10) * 1e9, 1e-6) << "of two groups";
  EXPECT_NEAR(o->ExchangeNs(3e6, 2, 8), 2000 + 2 * 10000 + 3e6 / 0.75e10 * 1e9, 1e-6) << "of two nodes";
  EXPECT_NEAR(o->ExchangeNs(3e6, 4, 4), 2000 + 6 / 2.0 * 10000 + 6 / 2.0 * 3000 + 1.5 * 3e6 / (2 * 0.75e10) * 1e9, 1e-3)
      << "two of each node";
}

// A send takes the slowest link within the given number of devices: the link of four, the node of eight, the network.
TEST(Network, SendsTakeTheSlowestLinkInRange) {
  const double link = 1000 + 700 + 3e6 / 0.75e11 * 1e9;
  EXPECT_NEAR(LinkSendNs(Round(), 3e6, 2), link, 1e-6);
  EXPECT_NEAR(LinkSendNs(Round(), 3e6, 4), link, 1e-6);
  const double pcie = 1000 + 3000 + 3e6 / (0.75 * 2e10) * 1e9;
  EXPECT_NEAR(LinkSendNs(Round(), 3e6, 5), pcie, 1e-6) << "within one node";
  EXPECT_NEAR(LinkSendNs(Round(), 3e6, 8), pcie, 1e-6);
  EXPECT_NEAR(LinkSendNs(Round(), 3e6, 9), 1000 + 10000 + 3e6 / 0.75e10 * 1e9, 1e-6);
  DeviceSpec d = Round();
  d.peer_bandwidth = 4e9;
  EXPECT_NEAR(LinkSendNs(d, 3e6, 4), link, 1e-6);
  EXPECT_NEAR(LinkSendNs(d, 3e6, 8), 1000 + 3000 + 3e6 / 4e9 * 1e9, 1e-6);
  d.network = "ethernet";
  d.network_hop_ns = 25000;
  EXPECT_NEAR(LinkSendNs(d, 3e6, 9), 1000 + 25000 + 3e6 / 0.2e10 * 1e9, 1e-6);
}

// Large messages within 10 % of measurements (docs/concepts/cost_model.md, "Networks"): pairs of A100 and of H100 over
// PCIe 4 and 5, A40 over PCIe, two H100 nodes; small ones within a quarter.
TEST(Network, LargeMessagesMatchMeasurements) {
  const auto near = [](double ns, double measured_us, double share) {
    EXPECT_NEAR(ns / 1e3, measured_us, share * measured_us);
  };
  near(RingAllReduceNs(*FindDevice("a100-pcie"), 536373250, 4), 33902, 0.1);
  DeviceSpec pairs = *FindDevice("h100");
  pairs.group = 2;
  near(RingAllReduceNs(pairs, 67108864, 4), 2063, 0.1);
  near(LinkSendNs(*FindDevice("a40"), 67108864, 8), 16900, 0.1);
  near(LinkSendNs(*FindDevice("a40"), 1001472, 8), 221, 0.25);
  near(LinkSendNs(*FindDevice("h100"), 67108864, 16), 1871, 0.1);
  near(LinkSendNs(*FindDevice("h100"), 2048, 16), 19, 0.25);
  near(LinkSendNs(*FindDevice("a100-pcie"), 66846720, 16), 28010, 0.1);
  near(LinkSendNs(*FindDevice("a40"), 66977792, 16), 29797, 0.15);
  DeviceSpec alone = *FindDevice("a100");
  alone.group = alone.node = 1;
  near(RingAllReduceNs(alone, 2048, 2), 43, 0.25);
  near(RingAllReduceNs(*FindDevice("a100"), 2048, 16), 79, 0.3);
}

TEST(WeightFormats, DevicesDecideWidthsAndPeaks) {
  DeviceSpec d = Round();
  d.fp8_flops = 2e14;
  d.int8_flops = 3e14;
  const auto of = [&d](const char* name) { return *FindWeightFormat(name, d); };
  EXPECT_EQ(of("auto").name, "bfloat16");
  EXPECT_EQ(of("bfloat16").flops, 1e14);
  EXPECT_EQ(of("fp8_block").flops, 2e14);
  EXPECT_EQ(of("fp8").activation_bytes, 1);
  EXPECT_EQ(of("int8").flops, 3e14);
  EXPECT_EQ(of("int4").weight_bytes, 0.515625);
  EXPECT_EQ(of("int4").flops, 1e14);           // weights only: multiplied as bf16
  EXPECT_EQ(of("nvfp4").activation_bytes, 2);  // weights only: no 4-bit tensor cores
  d.fp4 = true;
  EXPECT_EQ(of("nvfp4").flops, 4e14);
  EXPECT_EQ(of("nvfp4").weight_bytes, 0.5625);
  EXPECT_EQ(of("nvfp4").activation_bytes, 0.5625);
  d.fp8_flops = 0;
  EXPECT_EQ(of("fp8").activation_bytes, 2);  // widened when loaded
  EXPECT_EQ(of("fp8").weight_bytes, 1);
  EXPECT_EQ(of("fp8").flops, 1e14);
}

}  // namespace
}  // namespace tactus::cost::roofline_test
