// The emulated matrix units give the bits of an H200, as far as cuda/conformance/sum_model.h states them.
#include "cuda/emulator/matrix_unit.h"

#include <gtest/gtest.h>

#include "cuda/conformance/sum_model.h"

namespace tactus::compute::cuda::emulator {
namespace {

using conformance::Product;
using conformance::Profile;

// The product's fragments in the lanes of a warp, multiplied; the accumulators in the record's order.
conformance::Words Emulated(Product& p, void (*multiply)(Warp&)) {
  const auto warp = std::make_unique<Warp>();
  const conformance::Words a = p.ARegisters(), b = p.BRegisters(), c = p.CRegisters();
  for (size_t lane = 0; lane < 32; ++lane) {
    Fragments in;
    std::copy_n(a.data() + 4 * lane, 4, in.a);
    std::copy_n(b.data() + 2 * lane, 2, in.b);
    std::copy_n(c.data() + 4 * lane, 4, in.c);
    warp->Bring(static_cast<int>(lane), in);
  }
  multiply(*warp);
  conformance::Words out;
  for (size_t lane = 0; lane < 32; ++lane) {
    const auto sums = warp->Given<Accumulator>(static_cast<int>(lane));
    out.insert(out.end(), sums.c, sums.c + 4);
  }
  return out;
}

conformance::Words Modelled(Product& p, const conformance::SumRule& rule) {
  Product result(p.tile, p.in_a, p.in_b, p.sum);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      std::vector<uint32_t> column;
      for (int k = 0; k < p.tile.k; ++k) column.push_back(p.B(k, n));
      result.C(m, n) = conformance::DotOf(rule, &p.A(m, 0), column.data(), p.tile.k, p.C(m, n));
    }
  }
  return result.CRegisters();
}

void Compare(conformance::Format format, void (*multiply)(Warp&)) {
  const conformance::SumRule rule{format, format, conformance::kF32};
  conformance::Rng rng(7);
  for (const Profile profile : {Profile::kIntegers, Profile::kNear, Profile::kWide, Profile::kTiny, Profile::kBits}) {
    for (int i = 0; i < 200; ++i) {
      Product p = conformance::RandomProduct(rng, {16, 2}, format, format, conformance::kF32, profile);
      if (i % 3 == 0) std::fill(p.c.begin(), p.c.end(), i % 2 == 0 ? 0u : 0x80000000u);
      if (i % 5 == 0) std::fill(p.a.begin(), p.a.begin() + 40, 0u);
      ASSERT_EQ(Emulated(p, multiply), Modelled(p, rule)) << conformance::Name(profile) << " " << i;
    }
  }
}

TEST(MatrixUnitTest, Bf16HasTheModelsBits) {
  Compare(conformance::kBf16, &MultiplyBf16);
}
TEST(MatrixUnitTest, F16HasTheModelsBits) {
  Compare(conformance::kF16, &MultiplyF16);
}

TEST(MatrixUnitTest, Int8Wraps) {
  conformance::Rng rng(9);
  for (int i = 0; i < 50; ++i) {
    Product p = conformance::RandomProduct(rng, {32, 4}, conformance::kInt8, conformance::kInt8, conformance::kInt32,
                                           Profile::kBits);
    Product want(p.tile, p.in_a, p.in_b, p.sum);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        int64_t sum = static_cast<int32_t>(p.C(m, n));
        for (int k = 0; k < 32; ++k) sum += static_cast<int8_t>(p.A(m, k)) * static_cast<int8_t>(p.B(k, n));
        want.C(m, n) = static_cast<uint32_t>(sum);
      }
    }
    ASSERT_EQ(Emulated(p, &MultiplyInt8), want.CRegisters());
  }
}

}  // namespace
}  // namespace tactus::compute::cuda::emulator
