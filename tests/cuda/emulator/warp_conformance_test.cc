// The emulated warp functions, ldmatrix, mma.sync, cp.async and atomic additions give the bits of an H200, in all
// orders of lanes (conformance_test.cc says what is not compared).
#include "compute/cuda/kernels/launch.h"
#include "cuda/emulator/device_test.h"
#include "cuda/emulator/recorded.h"

namespace tactus::compute::cuda {
namespace {

using conformance::Words;

class WarpConformanceTest : public DeviceTest {};
TACTUS_DEVICE_TESTS(WarpConformanceTest);

constexpr unsigned kAll = 0xffffffffu;

__global__ void ShuffleAll(Global<const uint32_t> in, Global<const uint32_t> by, int mode, int width,
                           Global<uint32_t> out) {
  const unsigned lane = threadIdx.x;
  const uint32_t v = in[lane], b = by[lane];
  if (mode == 0) out[lane] = __shfl_up_sync(kAll, v, b, width);
  if (mode == 1) out[lane] = __shfl_down_sync(kAll, v, b, width);
  if (mode == 2) out[lane] = __shfl_xor_sync(kAll, v, static_cast<int>(b), width);
  if (mode == 3) out[lane] = __shfl_sync(kAll, v, static_cast<int>(b), width);
}

TEST_P(WarpConformanceTest, ShufflesAreTheCards) {
  const char* const modes[] = {"up", "down", "bfly", "idx"};
  for (int mode = 0; mode < 4; ++mode) {
    conformance::Rng rng(static_cast<uint64_t>(mode) + 1);
    Words in(32);
    for (uint32_t& w : in) w = rng.Next() & 0xffffu;
    for (int width = 32; width >= 2; width /= 2) {
      for (const uint32_t by : {0u, 1u, 3u, 16u, 31u, 33u, 1000u, 1001u}) {
        Words each(32, by);
        for (uint32_t l = 0; l < 32 && by >= 1000; ++l) each[l] = by == 1000 ? l * 5 % 32 : l * 11 + 40;
        const Buffer<uint32_t> values(in), amounts(each), out(32);
        Launch("ShuffleAll", stream(), ShuffleAll, dim3(1), 32, 0, values.data(), amounts.data(), mode, width,
               out.data());
        const std::string amount = by == 1000 ? "5*lane%32" : by == 1001 ? "11*lane+40" : std::to_string(by);
        const std::string name = std::string("shfl.") + modes[mode] + "/w" + std::to_string(width) + ".by" + amount;
        ASSERT_TRUE(Record().contains(name)) << name;
        Words want = Record().at(name).out;
        want.resize(32);  // then follows PTX's predicate
        ASSERT_EQ(out.Read(), want) << name;
      }
    }
  }
}

__global__ void Votes(Global<const uint32_t> in, Global<uint32_t> out) {
  const unsigned lane = threadIdx.x;
  const uint32_t v = in[lane], o = lane * 12;
  int same = 0;
  out[o] = __ballot_sync(kAll, v & 1);
  out[o + 1] = static_cast<uint32_t>(__any_sync(kAll, v == 3));
  out[o + 2] = static_cast<uint32_t>(__all_sync(kAll, v < 8));
  out[o + 3] = __match_any_sync(kAll, v);
  out[o + 4] = __match_all_sync(kAll, v, &same);
  out[o + 5] = static_cast<uint32_t>(same);
  out[o + 6] = __match_any_sync(kAll, static_cast<uint64_t>(v) << 32);
  out[o + 7] = __reduce_add_sync(kAll, v * 0x10000001u);
  out[o + 8] = __reduce_min_sync(kAll, v);
  out[o + 9] = static_cast<uint32_t>(__reduce_max_sync(kAll, static_cast<int>(v) - 4));
  out[o + 10] = __reduce_xor_sync(kAll, v << lane);
  const uint32_t all = __reduce_and_sync(kAll, v | 0x100u);
  out[o + 11] = all | __reduce_or_sync(kAll, v << 16);
}

TACTUS_DEVICE void VotesOf(unsigned mask, uint32_t v, const Global<uint32_t>& out, uint32_t o) {
  out[o] = __ballot_sync(mask, v & 1);
  out[o + 1] = __match_any_sync(mask, v);
  out[o + 2] = __reduce_add_sync(mask, v);
  out[o + 3] = __reduce_max_sync(mask, v);
  out[o + 4] = __shfl_xor_sync(mask, v, 1);
  int same = 0;
  const unsigned all = __match_all_sync(mask, v & 0, &same);
  out[o + 5] = all + static_cast<uint32_t>(same);
}
__global__ void VotesOfHalves(Global<const uint32_t> in, Global<uint32_t> out) {
  const unsigned lane = threadIdx.x;
  const uint32_t v = in[lane];
  if (lane % 4 < 2) {
    VotesOf(0x33333333u, v, out, lane * 6);
  } else {
    VotesOf(0xccccccccu, v, out, lane * 6);
  }
}

__global__ void MatchFloats(Global<const uint32_t> in, Global<uint32_t> out) {
  const float v = __uint_as_float(in[threadIdx.x]);
  out[threadIdx.x] = __match_any_sync(kAll, v);
}

TEST_P(WarpConformanceTest, VotesMatchesAndReductionsAreTheCards) {
  for (uint64_t seed = 10; seed < 13; ++seed) {
    conformance::Rng rng(seed);
    Words in(32);
    for (uint32_t& w : in) w = seed == 12 ? 5 : rng.Below(8);
    const Buffer<uint32_t> values(in), out(32 * 12), halves(32 * 6);
    Launch("Votes", stream(), Votes, dim3(1), 32, 0, values.data(), out.data());
    Launch("VotesOfHalves", stream(), VotesOfHalves, dim3(1), 32, 0, values.data(), halves.data());
    const std::string more = seed == 10 ? "" : "#" + std::to_string(seed - 10);
    ExpectRecorded("votes" + more, out.Read());
    ExpectRecorded("votes_of_halves" + more, halves.Read());
  }
  Words floats;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t of[] = {0, 0x80000000, 0x7fc00000, 0x7fc00001, 1, 0x3f800000};
    floats.push_back(of[lane % 6]);
  }
  const Buffer<uint32_t> in(floats), out(32);
  Launch("MatchFloats", stream(), MatchFloats, dim3(1), 32, 0, in.data(), out.data());
  ExpectRecorded("match_any.f32", out.Read());
}

template <int kCount, bool kTransposed>
__global__ void LoadMatrix(Global<const uint32_t> data, Global<const uint32_t> offsets, Global<uint32_t> out) {
  TACTUS_SHARED(uint32_t, shared, 1024);
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += 32) shared[i] = data[i];
  __syncthreads();
  const uint32_t at = offsets[threadIdx.x];
  const uint32_t* row = shared.At(static_cast<int>(at / 4));
  if constexpr (kCount == 2) {
    uint32_t r[2];
    LdMatrixX2(r, row);
    for (int i = 0; i < 2; ++i) out[threadIdx.x * 2 + i] = r[i];
  } else {
    uint32_t r[4];
    if constexpr (kTransposed) LdMatrixX4Trans(r, row);
    if constexpr (!kTransposed) LdMatrixX4(r, row);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i];
  }
}

template <int kCount, bool kTransposed>
void CompareMatrices(Stream& s, const std::string& name, uint64_t seed) {
  for (int order = 0; order < 3; ++order) {
    conformance::Rng rng(seed);
    Words data(1024), offsets(32);
    for (uint32_t& w : data) w = rng.Next();
    for (uint32_t l = 0; l < 32; ++l) offsets[l] = order == 0 ? l * 16 : order == 1 ? l * 7 % 32 * 80 : l / 3 * 48;
    const Buffer<uint32_t> in(data), at(offsets), out(32 * kCount);
    Launch("LoadMatrix", s, LoadMatrix<kCount, kTransposed>, dim3(1), 32, 0, in.data(), at.data(), out.data());
    ExpectRecorded(name + "/" + std::to_string(order), out.Read());
  }
}

TEST_P(WarpConformanceTest, LoadedMatricesAreTheCards) {
  CompareMatrices<2, false>(stream(), "ldmatrix.x2", 102);
  CompareMatrices<4, false>(stream(), "ldmatrix.x4", 103);
  CompareMatrices<4, true>(stream(), "ldmatrix.x4.trans", 106);
}

enum class Unit { kBf16, kF16, kInt8 };

// One product per block, its registers lane by lane.
template <Unit kUnit>
__global__ void MultiplyAll(Global<const uint32_t> a, Global<const uint32_t> b, Global<const uint32_t> c,
                            Global<uint32_t> d) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  uint32_t ra[4];
  for (int i = 0; i < 4; ++i) ra[i] = a[at * 4 + i];
  const uint32_t b0 = b[at * 2], b1 = b[at * 2 + 1];
  if constexpr (kUnit == Unit::kInt8) {
    int32_t sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = static_cast<int32_t>(c[at * 4 + i]);
    Mma16832(sums, ra, b0, b1);
    for (int i = 0; i < 4; ++i) d[at * 4 + i] = static_cast<uint32_t>(sums[i]);
  } else {
    float sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = __uint_as_float(c[at * 4 + i]);
    Mma16816<std::conditional_t<kUnit == Unit::kBf16, bf16, f16>>(sums, ra, b0, b1);
    for (int i = 0; i < 4; ++i) d[at * 4 + i] = __float_as_uint(sums[i]);
  }
}

template <Unit kUnit>
Words Multiplied(Stream& s, std::vector<conformance::Product>& products) {
  Words a, b, c;
  for (conformance::Product& p : products) {
    for (const uint32_t w : p.ARegisters()) a.push_back(w);
    for (const uint32_t w : p.BRegisters()) b.push_back(w);
    for (const uint32_t w : p.CRegisters()) c.push_back(w);
  }
  const Buffer<uint32_t> da(a), db(b), dc(c), dd(static_cast<int64_t>(c.size()));
  Launch("MultiplyAll", s, MultiplyAll<kUnit>, dim3(static_cast<unsigned>(products.size())), 32, 0, da.data(),
         db.data(), dc.data(), dd.data());
  return dd.Read();
}

// The dot product of a line of the record; its terms are FROM[-TO]:A*B,...
conformance::Product DotOfLine(const conformance::Case& c, const conformance::Format& f) {
  conformance::Product p({16, 2}, f, f, conformance::kF32);
  std::istringstream terms(c.Field("terms"));
  const auto number = [](const std::string& text, int base) { return std::stoul(text, nullptr, base); };
  for (std::string term; std::getline(terms, term, ',');) {
    if (term == "none") continue;
    const size_t colon = term.find(':'), star = term.find('*'), dash = term.find('-');
    const size_t from = number(term, 10), to = dash < colon ? number(term.substr(dash + 1), 10) : from;
    for (size_t k = from; k <= to; ++k) {
      for (int m = 0; m < 16; ++m)
        p.A(m, static_cast<int>(k)) = static_cast<uint32_t>(number(term.substr(colon + 1), 16));
      for (int n = 0; n < 8; ++n)
        p.B(static_cast<int>(k), n) = static_cast<uint32_t>(number(term.substr(star + 1), 16));
    }
  }
  std::fill(p.c.begin(), p.c.end(), static_cast<uint32_t>(number(c.Field("c"), 16)));
  return p;
}

template <Unit kUnit>
void CompareFloatProducts(Stream& s, const std::string& name, const conformance::Format& f, uint64_t seed) {
  using conformance::Profile;
  for (int p = 0; p < 5; ++p) {
    conformance::Rng rng(seed + static_cast<uint64_t>(p));
    std::vector<conformance::Product> products;
    for (int i = 0; i < 64; ++i) {
      products.push_back(conformance::RandomProduct(rng, {16, 2}, f, f, conformance::kF32, static_cast<Profile>(p)));
    }
    ExpectRecorded(name + "/" + conformance::Name(static_cast<Profile>(p)), Multiplied<kUnit>(s, products));
  }
  std::vector<conformance::Product> dots;
  Words want;
  std::vector<std::string> names;
  for (auto at = Record().lower_bound(name + "/"); at != Record().end() && at->first.rfind(name + "/", 0) == 0; ++at) {
    if (at->second.Field("terms").empty()) continue;
    dots.push_back(DotOfLine(at->second, f));
    want.push_back(at->second.out.at(0));
    names.push_back(at->first);
  }
  ASSERT_GT(dots.size(), 300u);
  const Words got = Multiplied<kUnit>(s, dots);
  for (size_t i = 0; i < dots.size(); ++i) {
    for (size_t w = 0; w < 128; ++w) ASSERT_EQ(got[128 * i + w], want[i]) << names[i];
  }
}

TEST_P(WarpConformanceTest, ProductsAreTheCards) {
  CompareFloatProducts<Unit::kBf16>(stream(), "mma.m16n8k16.f32.bf16", conformance::kBf16, 210);
  CompareFloatProducts<Unit::kF16>(stream(), "mma.m16n8k16.f32.f16", conformance::kF16, 230);
  conformance::Rng rng(301);
  std::vector<conformance::Product> products;
  for (int i = 0; i < 64; ++i) {
    products.push_back(conformance::RandomProduct(rng, {32, 4}, conformance::kInt8, conformance::kInt8,
                                                  conformance::kInt32, conformance::Profile::kBits));
  }
  ExpectRecorded("mma.m16n8k32.s32.s8.s8/bits", Multiplied<Unit::kInt8>(stream(), products));
}

__global__ void CopyWords(Global<const uint32_t> data, bool copies, Global<uint32_t> out) {
  TACTUS_SHARED(uint32_t, shared, 16);
  for (int i = 0; i < 16; ++i) shared[i] = 0xa5a5a5a5u;
  CpAsync16(shared.At(4), data, 4, copies);
  CpAsyncCommit();
  CpAsyncWait<0>();
  for (int i = 0; i < 16; ++i) out[i] = shared[i];
}

TEST_P(WarpConformanceTest, AsynchronousCopiesAreTheCards) {
  conformance::Rng rng(20);
  Words data(16);
  for (uint32_t& w : data) w = rng.Next();
  const Buffer<uint32_t> in(data), all(16), none(16);
  Launch("CopyWords", stream(), CopyWords, dim3(1), 1, 0, in.data(), true, all.data());
  Launch("CopyWords", stream(), CopyWords, dim3(1), 1, 0, in.data(), false, none.data());
  ExpectRecorded("cp.async.cg.16/16", all.Read());
  ExpectRecorded("cp.async.cg.16/0", none.Read());
}

// One thread adds values one after another. Outputs what each addition returned, and the sum.
template <bool kInShared>
__global__ void AddOneByOne(Global<const float> in, int n, Global<float> sum, Global<float> out) {
  TACTUS_SHARED(float, shared, 1);
  shared[0] = in[0];
  sum[0] = in[0];
  for (int i = 1; i < n; ++i) out[i - 1] = kInShared ? shared.AtomicAdd(0, in[i]) : sum.AtomicAdd(0, in[i]);
  const float last = kInShared ? static_cast<float>(shared[0]) : static_cast<float>(sum[0]);
  out[n - 1] = last;
}

TEST_P(WarpConformanceTest, AtomicAdditionsAreTheCards) {
  using conformance::Profile;
  for (const bool in_shared : {false, true}) {
    const std::string name = in_shared ? "atomicAdd.shared.f32/" : "atom.global.add.f32/";
    const auto add = [&](const Words& in) {
      std::vector<float> values;
      for (const uint32_t w : in) values.push_back(std::bit_cast<float>(w));
      const Buffer<float> from(values), sum(1), out(static_cast<int64_t>(in.size()));
      Launch("AddOneByOne", stream(), in_shared ? AddOneByOne<true> : AddOneByOne<false>, dim3(1), 1, 0, from.data(),
             static_cast<int>(in.size()), sum.data(), out.data());
      Words got;
      for (const float v : out.Read()) got.push_back(v != v ? 0x7fffffffu : std::bit_cast<uint32_t>(v));
      return got;
    };
    for (const Profile p : {Profile::kNear, Profile::kTiny}) {
      conformance::Rng rng(30 + static_cast<uint64_t>(p));
      Words in(32);
      for (uint32_t& w : in) w = conformance::Draw(rng, conformance::kF32, p);
      ExpectRecorded(name + conformance::Name(p), add(in));
    }
    const uint32_t minus = 0x80000000u, normal = 0x00800000u, one = 0x3f800000u, nan = 0x7f800001u;
    const Words pairs{1,   0,     0,     1,  1,      1,         minus,  minus,
                      0,   minus, minus, 0,  normal, minus | 1, normal, minus | (normal + 1),
                      nan, one,   one,   nan};
    Words few;
    for (size_t i = 0; i < pairs.size(); i += 2) few.push_back(add({pairs[i], pairs[i + 1]})[1]);
    ExpectRecorded(name + "few", few);
  }
}

}  // namespace
}  // namespace tactus::compute::cuda
