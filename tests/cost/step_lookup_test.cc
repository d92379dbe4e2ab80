#include "cost/step_tables/step_lookup.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tactus::cost {
namespace {

constexpr char kTables[] = R"(# model: made up
table,a,b,ms
step,0,0,0.5
tokens,1,0,1
tokens,256,0,2
tokens,264,0,3
chunk,1,0,0.125
chunk,256,0,1
chunk,1,1024,0.25
chunk,256,1024,2
decode,1,16,0.1
decode,1,2048,0.2
decode,64,16,0.4
decode,64,2048,2.0
)";

class StepLookup : public testing::Test {
 protected:
  Result<std::unique_ptr<StepProfile>> Load(const std::string& text) {
    const std::string path = (std::filesystem::path(testing::TempDir()) / "step_lookup.csv").string();
    std::ofstream(path) << text;
    return LoadStepProfile(path);
  }
  static DurationNs Ask(const StepTimeModel& m, std::vector<ChunkShape> chunks, int64_t decodes, int64_t context) {
    StepShape s;
    s.chunks = chunks;
    s.decodes = decodes;
    s.decode_context_tokens = context;
    return m.StepTimeNs(s);
  }
};

TEST_F(StepLookup, ReturnsListedPointsAndInterpolates) {
  const auto loaded = Load(kTables);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const StepProfile& m = **loaded;
  EXPECT_EQ(Ask(m, {{0, 256}}, 0, 0), 500'000 + 2'000'000 + 1'000'000);
  EXPECT_EQ(Ask(m, {{512, 256}}, 0, 0), 500'000 + 2'000'000 + 1'500'000);                  // context in between
  EXPECT_EQ(Ask(m, {{0, 256}, {0, 4}}, 0, 0), 500'000 + 2'500'000 + 1'000'000 + 135'294);  // 260 tokens; chunks add up
  EXPECT_EQ(Ask(m, {}, 64, 64 * 2048), 500'000 + 1'247'059 + 2'000'000);
  EXPECT_EQ(Ask(m, {}, 64, 64 * 4080), 500'000 + 1'247'059 + 3'600'000);  // beyond: the last slope
  EXPECT_EQ(Ask(m, {}, 1, 1), 500'000 + 1'000'000 + 100'000);             // below: the first
  EXPECT_EQ(Ask(m, {{0, 256}}, 64, 64 * 16), 500'000 + (3'000'000 + 56 * 125'000) + 1'000'000 + 400'000);  // 320 tokens
  EXPECT_EQ(m.remarks().at("model"), "made up");
  StepShape most;
  most.decodes = 128;
  most.decode_context_tokens = 128 * 100;
  EXPECT_NE(m.Extrapolation(most).find("decodes 128 (listed up to 64: 2.0 x beyond)"), std::string::npos)
      << m.Extrapolation(most);
}

TEST_F(StepLookup, FaultsAreNamed) {
  const auto message = [&](const std::string& rows) {
    std::string text = "table,a,b,ms\n";
    text += rows;
    const auto loaded = Load(text);
    EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss) << rows;
    return loaded.status().message();
  };
  EXPECT_NE(message("tokens,1,0,1\ntokens,1,0,2\n").find(":3: tokens has the point (1, 0) twice"), std::string::npos);
  EXPECT_NE(message("tokens,1,0,1\nchunk,1,0,1\nchunk,2,8,1\n").find("chunk has no point (1, 8)"), std::string::npos);
  EXPECT_NE(message("decode,1,0,1\n").find("no row of table tokens"), std::string::npos);
  EXPECT_NE(message("warp,1,0,1\n").find(":2, column 1: 'warp' is not a table"), std::string::npos);
  EXPECT_NE(message("tokens,1,0,-1\n").find(":2, column 4: '-1'"), std::string::npos);
  EXPECT_NE(message("tokens,1,0\n").find(":2: 4 columns"), std::string::npos);
}

}  // namespace
}  // namespace tactus::cost
