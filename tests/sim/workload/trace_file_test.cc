#include "sim/workload/trace_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace tactus::sim {
namespace {

TEST(TraceFile, ReadsColumnsInAnyOrderAndIgnoresOthers) {
  const auto file = TraceFile::Parse("t.csv",
                                     "output_tokens,x,prompt_tokens,arrival_s,prefix_hash_ids\r\n"
                                     "5,a,100,0.000001,3\r\n\r\n"
                                     "7,,1025,2.5,3 4 -9\n");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto rows = (*file)->rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].arrival_ns, 0) << "times count from the first row's";
  EXPECT_EQ(rows[1].arrival_ns, 2'499'999'000);
  EXPECT_EQ(rows[1].prompt_tokens, 1025);
  EXPECT_EQ(rows[1].output_tokens, 7);
  const auto ids = (*file)->hash_ids(rows[1]);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.end()), (std::vector<int64_t>{3, 4, -9}));
  EXPECT_TRUE((*file)->has_arrivals());
}

struct OneRow {
  const char* text;
  int32_t prompt, output;
  TimeNs second_ns;  // of the second row, if it exists
};

// Public traces with their own names, numbers and times.
TEST(TraceFile, PublicTracesAreReadUnchanged) {
  const OneRow cases[] = {
      {"arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n1.5,1,1\n", 374, 44, 1'500 * kMillisecond},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n"
       "2023-11-16 18:17:04.0799600,1,1\n",
       374, 44, 100 * kMillisecond},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,374,44\n"
       "2024-05-10T01:00:01.009930+01:00,1,1\n",
       374, 44, kSecond},
      {"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,374,44,418,API log\n"
       "45,GPT-4,1,1,2,API log\n",
       374, 44, 40 * kSecond},
      {"{\"timestamp\": 0, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [7]}\n"
       "{\"timestamp\": 3052, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [7, 9]}\n",
       374, 44, 3052 * kMillisecond},
      {"{\"arrival_s\": 1, \"prompt_tokens\": 374.0, \"output_tokens\": 44, \"slo_class\": null}\n\n"
       "{\"output_tokens\": 1, \"prompt_tokens\": 1, \"arrival_s\": 2}\n",
       374, 44, kSecond},
      {"timestamp,input_length,output_length\n1000,374,44\n1500,1,1\n", 374, 44, 500 * kMillisecond},
      {"\n\r\narrival_s,prompt_tokens,output_tokens\n0,374,44\n2,1,1\n", 374, 44, 2 * kSecond},
      {"\"arrival_s\",\"prompt_tokens\",\"output_tokens\"\n0,374,44\n2,1,1\n", 374, 44, 2 * kSecond},
      {" arrival_s , prompt_tokens ,\"output_tokens\" \n 0 , 374.0 , \"44.00\" \n 2 ,1,1 \n  \n", 374, 44, 2 * kSecond},
      {"timestamp,arrival_s,prompt_tokens,output_tokens\n9,0,374,44\n9,2,1,1\n", 374, 44, 2 * kSecond},
  };
  for (const OneRow& c : cases) {
    const auto file = TraceFile::Parse("t", c.text);
    ASSERT_TRUE(file.ok()) << c.text << file.status().ToString();
    ASSERT_EQ((*file)->rows().size(), 2u) << c.text;
    EXPECT_EQ((*file)->rows()[0].prompt_tokens, c.prompt) << c.text;
    EXPECT_EQ((*file)->rows()[0].output_tokens, c.output) << c.text;
    EXPECT_EQ((*file)->rows()[0].arrival_ns, 0) << c.text;
    EXPECT_EQ((*file)->rows()[1].arrival_ns, c.second_ns) << c.text;
  }
  const auto mooncake = TraceFile::Parse("t", cases[4].text);
  EXPECT_EQ((*mooncake)->hash_ids((*mooncake)->rows()[1])[1], 9);
  const auto quoted = TraceFile::Parse("t", "prompt_tokens,output_tokens,client\n1,1,\"a, \"\"b\"\"\"\n");
  ASSERT_TRUE(quoted.ok()) << quoted.status().ToString();
  EXPECT_EQ((*quoted)->text((*quoted)->rows()[0].client), "a, \"b\"");
}

TEST(TraceFile, AGzippedFileIsReadLikeItsContent) {
  // Two members, as `cat a.gz b.gz` produces.
  const unsigned char packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x4b, 0x2c, 0x2a, 0xca,
                                  0x2c, 0x4b, 0xcc, 0x89, 0x2f, 0xd6, 0x29, 0x28, 0xca, 0xcf, 0x2d, 0x28, 0x89, 0x2f,
                                  0xc9, 0xcf, 0x4e, 0xcd, 0x2b, 0xd6, 0xc9, 0x2f, 0x2d, 0x29, 0x28, 0x85, 0xf1, 0xb8,
                                  0x0c, 0x74, 0x0c, 0x81, 0x88, 0x0b, 0x00, 0x6e, 0xc7, 0x22, 0x6f, 0x2d, 0x00, 0x00,
                                  0x00, 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x33, 0xd2, 0x31,
                                  0x32, 0xd0, 0x31, 0xe2, 0x02, 0x00, 0xe4, 0xbf, 0xc6, 0xc5, 0x07, 0x00, 0x00, 0x00};
  const std::string path = testing::TempDir() + "/packed.csv.gz";
  const auto write = [&](size_t bytes) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(packed), static_cast<long>(bytes));
  };
  write(sizeof(packed));
  const auto file = TraceFile::Read(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ((*file)->rows().size(), 2u);
  EXPECT_EQ((*file)->rows()[1].prompt_tokens, 20);
  EXPECT_EQ((*file)->rows()[1].arrival_ns, 2 * kSecond);
  write(sizeof(packed) - 4);
  EXPECT_NE(TraceFile::Read(path).status().message().find("is gzipped and cut off"), std::string::npos);
  std::ofstream(path, std::ios::binary) << "\x1f\x8b no gzip at all";
  EXPECT_NE(TraceFile::Read(path).status().message().find("is gzipped and damaged"), std::string::npos);
}

TEST(TraceFile, RowsWithoutAPromptOrAnOutputAreDroppedAndCounted) {
  const auto file = TraceFile::Parse("t.csv", "prompt_tokens,output_tokens\n0,5\n5,0\n3,4\n");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->rows().size(), 1u);
  EXPECT_EQ((*file)->dropped(), 2);
  EXPECT_FALSE((*file)->has_arrivals());
}

TEST(TraceFile, PrefixGroupsHaveIdAndLength) {
  const auto file =
      TraceFile::Parse("t.csv", "prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,1,32\n50,5,,\n");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->rows()[0].shared_tokens, 32);
  EXPECT_EQ((*file)->rows()[1].prefix_id, -1);
}

TEST(TraceFile, ReadsObjectivesClassesAndPredictionsOfARow) {
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
  EXPECT_EQ(rows[2].slo.ttft_ns, 1) << "above 0, however small";
  EXPECT_EQ(rows[2].slo_class, rows[0].slo_class) << "a name is stored once";
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
  const char* where;  // expected in the message
};

TEST(TraceFile, ErrorsNameLineAndColumn) {
  const BadTrace cases[] = {
      {"", "t.csv:1: no column 'prompt_tokens'"},
      {"prompt_tokens\n5\n", "t.csv:1: no column 'output_tokens'"},
      {"prompt_tokens,output_tokens,prompt_tokens\n1,1,1\n", "t.csv:1: column 3: 'prompt_tokens' is given twice"},
      {"prompt_tokens,output_tokens,prefix_id\n1,1,1\n", "t.csv:1: prefix_id and shared_tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n", "t.csv: no row"},
      {"arrival_s,prompt_tokens,output_tokens\n0,0,0\n", "t.csv: no row"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,-5,5\n", "t.csv:3: column 2 (prompt_tokens): -5 tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,99999999999\n",
       "t.csv:2: column 3 (output_tokens): 99999999999 tokens"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,1e3\n",
       "t.csv:2: column 3 (output_tokens): '1e3' is not a whole number"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5.5,1\n", "t.csv:2: column 2 (prompt_tokens): '5.5' is not a whole"},
      {"arrival_s,prompt_tokens,output_tokens\n1700000000000,5,1\n", "is it in milliseconds? Divide it by 1000"},
      {"timestamp,prompt_tokens,output_tokens\n2023-13-16 18:17:03,5,1\n", "or a date such as"},
      {"prompt_tokens,output_tokens\n\"5,1\n", "t.csv:2: a quote is not closed"},
      {"prompt_tokens,output_tokens\n\"5\"6,1\n", "t.csv:2: a quote is not closed, or text follows it"},
      {"input_length,num_prefill_tokens,output_tokens\n5,5,1\n",
       "t.csv:1: column 2: 'num_prefill_tokens' is given twice"},
      {"{\"prompt_tokens\": 5}\n", "t.csv:1: no 'output_tokens' in the JSON object"},
      {"{\"prompt_tokens\": 5, \"output_tokens\": 1}\n[1]\n", "t.csv:2: the line is not a JSON object"},
      {"{\"prompt_tokens\": 5, \"output_tokens\": 1}\n{\"prompt_tokens\"\n", "t.csv: invalid JSON at line 2"},
      {"{\"prompt_tokens\": 5, \"output_tokens\": [1, 2]}\n", "'1 2' is not a whole number"},
      {"arrival_s,prompt_tokens,output_tokens\n0,,1\n", "t.csv:2: column 2"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5\n", "t.csv:2: column 3: 2 cells, but the header has 3"},
      {"arrival_s,prompt_tokens,output_tokens\n0,5,5,5\n", "t.csv:2: column 4: 4 cells"},
      {"arrival_s,prompt_tokens,output_tokens\n2,5,5\n1,5,5\n",
       "t.csv:3: column 1 (arrival_s): 1 s is before the row above (2 s)"},
      {"arrival_s,prompt_tokens,output_tokens\nnan,5,5\n", "t.csv:2: column 1 (arrival_s): 'nan'"},
      {"arrival_s,prompt_tokens,output_tokens\ninf,5,5\n", "t.csv:2: column 1 (arrival_s): 'inf'"},
      {"arrival_s,prompt_tokens,output_tokens\n-1,5,5\n", "t.csv:2: column 1 (arrival_s): -1 s"},
      {"arrival_s,prompt_tokens,output_tokens\n1e18,5,5\n", "t.csv:2: column 1 (arrival_s): 1e18 s"},
      {"arrival_s,prompt_tokens,output_tokens\n1,5,5\n,5,5\n", "t.csv:3: column 1 (arrival_s): has no time"},
      {"arrival_s,prompt_tokens,output_tokens\n,5,5\n1,5,5\n", "t.csv:3: column 1 (arrival_s): has a time"},
      {"prompt_tokens,output_tokens,prefix_hash_ids\n512,5,1 2\n",
       "t.csv:2: column 3 (prefix_hash_ids): 2 ids for a prompt of 512"},
      {"prompt_tokens,output_tokens,prefix_hash_ids\n512,5,x\n", "t.csv:2: column 3 (prefix_hash_ids): 'x'"},
      {"prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,1,51\n",
       "t.csv:2: column 4 (shared_tokens): 51 shared tokens"},
      {"prompt_tokens,output_tokens,prefix_id,shared_tokens\n50,5,-1,5\n", "t.csv:2: column 3 (prefix_id): '-1'"},
      {"prompt_tokens,output_tokens,slo_ttft_ms\n5,5,\n5,5,0\n",
       "t.csv:3: column 3 (slo_ttft_ms): '0' is not a number of milliseconds above 0 and up to 1000000000; leave"},
      {"prompt_tokens,output_tokens,slo_tbt_ms\n5,5,nan\n", "t.csv:2: column 3 (slo_tbt_ms): 'nan' is not a number"},
      {"prompt_tokens,output_tokens,slo_tbt_ms\n5,5,50ms\n", "t.csv:2: column 3 (slo_tbt_ms): '50ms' is not a number"},
      {"slo_jct_ms,prompt_tokens,output_tokens\n1e10,5,5\n", "t.csv:2: column 1 (slo_jct_ms): '1e10' is not a number"},
      {"prompt_tokens,output_tokens,slo_jct_ms,slo_ttft_ms\n5,5,100,100\n5,5,100,101\n",
       "t.csv:3: column 4 (slo_ttft_ms): the first token is due after 101 ms, later than the whole answer after 100"},
      {"prompt_tokens,output_tokens,slo_ttft_ms,slo_ttft_ms\n5,5,1,2\n",
       "t.csv:1: column 4: 'slo_ttft_ms' is given twice"},
      {"prompt_tokens,output_tokens,priority\n5,5,2147483648\n",
       "t.csv:2: column 3 (priority): '2147483648' is not a whole number from -2147483648"},
      {"prompt_tokens,output_tokens,predicted_output_tokens\n5,5,0\n",
       "t.csv:2: column 3 (predicted_output_tokens): an answer has at least 1 token"},
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

TEST(TraceFile, ReadingAFileEqualsParsingItsText) {
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

TEST(TraceFile, TheLargestValuesAreAcceptedAndLargerOnesAreNot) {
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
}  // namespace tactus::sim
