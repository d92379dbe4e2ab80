#include "sim/trace_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace tactus {
namespace {

TEST(TraceFile, ReadsColumnsInAnyOrderAndIgnoresOthers) {
  const auto file = TraceFile::Parse("t.csv",
                                     "output_tokens,x,prompt_tokens,arrival_s,prefix_hash_ids\r\n"
                                     "5,a,100,0.000001,3\r\n\r\n"
                                     "7,,1025,2.5,3 4 -9\n");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto rows = (*file)->rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].arrival_ns, 1000);
  EXPECT_EQ(rows[1].arrival_ns, 2'500'000'000);
  EXPECT_EQ(rows[1].prompt_tokens, 1025);
  EXPECT_EQ(rows[1].output_tokens, 7);
  const auto ids = (*file)->hash_ids(rows[1]);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.end()), (std::vector<int64_t>{3, 4, -9}));
  EXPECT_TRUE((*file)->has_arrivals());
}

TEST(TraceFile, RowsWithoutAPromptOrAnOutputAreDroppedAndCounted) {
  const auto file = TraceFile::Parse("t.csv", "prompt_tokens,output_tokens\n0,5\n5,0\n3,4\n");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->rows().size(), 1u);
  EXPECT_EQ((*file)->dropped(), 2);
  EXPECT_FALSE((*file)->has_arrivals());
}

TEST(TraceFile, PrefixGroupsByIdAndLength) {
  const auto file =
      TraceFile::Parse("t.csv", "prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,1,32\n50,5,,\n");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->rows()[0].shared_tokens, 32);
  EXPECT_EQ((*file)->rows()[1].prefix_id, -1);
}

TEST(TraceFile, ReadsWhatARowStatesOfItsRequest) {
  const auto file = TraceFile::Parse("t.csv",
                                     "client,prompt_tokens,slo_jct_ms,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_class,"
                                     "priority,predicted_output_tokens\n"
                                     "ann,100,9000,5,500,37.5,chat,-3,7\n"
                                     ",100,,5,,,,,\n"
                                     "bob,100,,5,0.0000001,,chat,2147483647,16777216\n");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto& rows = (*file)->rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].slo, (Slo{500'000'000, 37'500'000, 9'000'000'000}));
  EXPECT_EQ((*file)->text(rows[0].slo_class), "chat");
  EXPECT_EQ((*file)->text(rows[0].client), "ann");
  EXPECT_EQ(rows[0].priority, -3);
  EXPECT_EQ(rows[0].predicted_output_tokens, 7);
  EXPECT_FALSE(rows[1].slo.any());
  EXPECT_EQ((*file)->text(rows[1].slo_class) + (*file)->text(rows[1].client), "");
  EXPECT_EQ(rows[1].predicted_output_tokens, 0);
  EXPECT_EQ(rows[2].slo.ttft_ns, 1) << "above 0, however little";
  EXPECT_EQ(rows[2].slo_class, rows[0].slo_class) << "a name is kept once";
  EXPECT_EQ((*file)->text(rows[2].client), "bob");
  EXPECT_EQ(rows[2].priority, 2147483647);
  EXPECT_TRUE((*file)->states_objectives());
  EXPECT_TRUE((*file)->predicts_lengths());
  const auto plain = TraceFile::Parse("t.csv", "prompt_tokens,output_tokens,priority\n5,5,1\n");
  EXPECT_FALSE((*plain)->states_objectives());
  EXPECT_FALSE((*plain)->predicts_lengths());
}

struct BadTrace {
  const char* text;
  const char* where;  // that the message must name
};

TEST(TraceFile, WhatIsWrongIsNamedWithLineAndColumn) {
  const BadTrace cases[] = {
      {"", "t.csv:1: no column 'prompt_tokens'"},
      {"prompt_tokens\n5\n", "t.csv:1: no column 'output_tokens'"},
      {"prompt_tokens,output_tokens,prompt_tokens\n1,1,1\n", "t.csv:1: column 3: 'prompt_tokens' twice"},
      {"prompt_tokens,output_tokens,prefix_id\n1,1,1\n", "t.csv:1: prefix_id and shared_tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n", "t.csv: no row"},
      {"arrival_s,prompt_tokens,output_tokens\n0,0,0\n", "t.csv: no row"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,-5,5\n", "t.csv:3: column 2 (prompt_tokens): -5 tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,99999999999\n",
       "t.csv:2: column 3 (output_tokens): 99999999999 tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,1e3\n",
       "t.csv:2: column 3 (output_tokens): '1e3' is no whole number"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5.5,1\n", "t.csv:2: column 2"},
      {"arrival_s,prompt_tokens,output_tokens\n0,,1\n", "t.csv:2: column 2"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5\n", "t.csv:2: column 3: 2 cells, but the header has 3"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,5,5\n", "t.csv:2: column 4: 4 cells"},
      {"arrival_s,prompt_tokens,output_tokens\n2,5,5\n1,5,5\n",
       "t.csv:3: column 1 (arrival_s): 1 s comes before the row above (2 s)"},
      {"arrival_s,prompt_tokens,output_tokens\nnan,5,5\n", "t.csv:2: column 1 (arrival_s): 'nan'"},
      {"arrival_s,prompt_tokens,output_tokens\ninf,5,5\n", "t.csv:2: column 1 (arrival_s): 'inf'"},
      {"arrival_s,prompt_tokens,output_tokens\n-1,5,5\n", "t.csv:2: column 1 (arrival_s): -1 s"},
      {"arrival_s,prompt_tokens,output_tokens\n1e18,5,5\n", "t.csv:2: column 1 (arrival_s): 1e18 s"},
      {"arrival_s,prompt_tokens,output_tokens\n1,5,5\n,5,5\n", "t.csv:3: column 1 (arrival_s): no time"},
      {"arrival_s,prompt_tokens,output_tokens\n,5,5\n1,5,5\n", "t.csv:3: column 1 (arrival_s): a time"},
      {"prompt_tokens,output_tokens,prefix_hash_ids\n512,5,1 2\n",
       "t.csv:2: column 3 (prefix_hash_ids): 2 ids for a prompt of 512"},
      {"prompt_tokens,output_tokens,prefix_hash_ids\n512,5,x\n", "t.csv:2: column 3 (prefix_hash_ids): 'x'"},
      {"prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,1,51\n",
       "t.csv:2: column 4 (shared_tokens): 51 shared tokens"},
      {"prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,-1,5\n", "t.csv:2: column 3 (prefix_id): '-1'"},
      {"prompt_tokens,output_tokens,slo_ttft_ms\n5,5,\n5,5,0\n",
       "t.csv:3: column 3 (slo_ttft_ms): '0' is no number of milliseconds above 0 and up to 1000000000; leave"},
      {"prompt_tokens,output_tokens,slo_tbt_ms\n5,5,nan\n", "t.csv:2: column 3 (slo_tbt_ms): 'nan' is no number"},
      {"prompt_tokens,output_tokens,slo_tbt_ms\n5,5,50ms\n", "t.csv:2: column 3 (slo_tbt_ms): '50ms' is no number"},
      {"slo_jct_ms,prompt_tokens,output_tokens\n1e10,5,5\n", "t.csv:2: column 1 (slo_jct_ms): '1e10' is no number"},
      {"prompt_tokens,output_tokens,slo_jct_ms,slo_ttft_ms\n5,5,100,100\n5,5,100,101\n",
       "t.csv:3: column 4 (slo_ttft_ms): the first token is due after 101 ms, later than the whole answer after 100"},
      {"prompt_tokens,output_tokens,slo_ttft_ms,slo_ttft_ms\n5,5,1,2\n", "t.csv:1: column 4: 'slo_ttft_ms' twice"},
      {"prompt_tokens,output_tokens,priority\n5,5,2147483648\n",
       "t.csv:2: column 3 (priority): '2147483648' is no whole number from -2147483648"},
      {"prompt_tokens,output_tokens,predicted_output_tokens\n5,5,0\n",
       "t.csv:2: column 3 (predicted_output_tokens): an answer of 0 tokens"},
      {"prompt_tokens,output_tokens,predicted_output_tokens\n5,5,16777217\n",
       "t.csv:2: column 3 (predicted_output_tokens): 16777217 tokens are outside 0 to 16777216"},
      {"prompt_tokens,output_tokens,slo_class\n5,5,a\x1b[31m\n", "t.csv:2: column 3 (slo_class): 'a"},
      {"prompt_tokens,output_tokens,slo_class\n5,5,"
       "12345678901234567890123456789012345678901234567890123456789012345\n",
       "has 65 bytes; a name has at most 64"},
  };
  for (const BadTrace& c : cases) {
    const auto file = TraceFile::Parse("t.csv", c.text);
    ASSERT_FALSE(file.ok()) << c.text;
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(file.status().message().find(c.where), std::string::npos)
        << file.status().message() << "\nwanted " << c.where;
  }
  const std::string missing = testing::TempDir() + "/no_such_folder/t.csv";
  EXPECT_EQ(TraceFile::Read(missing).status().code(), StatusCode::kNotFound);
  EXPECT_NE(TraceFile::Read(missing).status().message().find("--data"), std::string::npos);
  EXPECT_NE(TraceFile::Read(testing::TempDir()).status().message().find("is a folder"), std::string::npos);
}

TEST(TraceFile, AFileIsReadAsItsTextIs) {
  const std::string text =
      "\xef\xbb\xbf"
      "arrival_s,prompt_tokens,output_tokens,prefix_hash_ids\r\n0,600,5,1 2\r\n\r\n1.5,20,6,\n2,7,8,3";
  const std::string path = testing::TempDir() + "/as_text.csv";
  std::ofstream(path, std::ios::binary) << text;
  const auto read = TraceFile::Read(path), parsed = TraceFile::Parse(path, text);
  ASSERT_TRUE(read.ok() && parsed.ok()) << read.status().message() << parsed.status().message();
  ASSERT_EQ((*read)->rows().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*read)->rows()[i].prompt_tokens, (*parsed)->rows()[i].prompt_tokens);
    EXPECT_EQ((*read)->rows()[i].arrival_ns, (*parsed)->rows()[i].arrival_ns);
    EXPECT_EQ((*read)->rows()[i].num_hash_ids, (*parsed)->rows()[i].num_hash_ids);
  }
  EXPECT_EQ((*read)->rows()[2].arrival_ns, 2 * kSecond);
  std::ofstream(path, std::ios::binary) << text << "\n1,1,1,\n";
  EXPECT_NE(TraceFile::Read(path).status().message().find(":6: column 1"), std::string::npos)
      << TraceFile::Read(path).status().message();
}

TEST(TraceFile, AFileWithoutAnEndOrWithAnEndlessLineIsRefused) {
  const Status endless = TraceFile::Read("/dev/zero").status();
  EXPECT_EQ(endless.code(), StatusCode::kTooLarge);
  EXPECT_NE(endless.message().find("/dev/zero"), std::string::npos);
  const std::string path = testing::TempDir() + "/long_line.csv";
  std::ofstream(path) << "prompt_tokens,output_tokens\n1,1\n" << std::string((1 << 20) + 1, '1') << ",1\n";
  const Status line = TraceFile::Read(path).status();
  EXPECT_NE(line.message().find("line 3"), std::string::npos) << line.message();
}

TEST(TraceFile, TheLargestValuesAreTakenAndOneMoreIsNot) {
  const auto ok = [](const std::string& row) {
    return TraceFile::Parse(
               "t.csv", "arrival_s,prompt_tokens,output_tokens,prefix_id,shared_tokens,prefix_hash_ids\n" + row + "\n")
        .ok();
  };
  EXPECT_TRUE(ok("0,16777216,16777216,,,"));
  EXPECT_FALSE(ok("0,16777217,1,,,"));
  EXPECT_TRUE(ok("4e9,1,1,,,"));
  EXPECT_FALSE(ok("4000000000.1,1,1,,,"));
  EXPECT_FALSE(ok("-0.1,1,1,,,"));
  EXPECT_TRUE(ok("0,10,1,0,10,"));
  EXPECT_FALSE(ok("0,10,1,0,11,"));
  EXPECT_FALSE(ok("0,10,1,-1,1,"));
  EXPECT_TRUE(ok("0,512,1,,,5"));
  EXPECT_FALSE(ok("0,512,1,,,5 6"));
  EXPECT_TRUE(ok("0,513,1,,,5 6"));
}

TEST(TraceFile, MessagesRepeatLittleOfAFileAndNoControlCharacters) {
  const std::string hostile = "prompt_tokens,output_tokens\n" + std::string(100'000, '9') + "\x1b[2J,5\n";
  const std::string message = TraceFile::Parse("t.csv", hostile).status().message();
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(TraceFile::Parse("t.csv", "\x1b[2Jprompt_tokens\n").status().message().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace tactus
