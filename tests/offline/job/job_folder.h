// A folder for the files of one job, with helpers to write its input and read its results.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "offline/job/job.h"

namespace tactus::offline {

class JobFolder : public testing::Test {
 protected:
  JobFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("tactus_job_" + std::string(test->name()) + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    files_ = {Path("in.jsonl"), Path("out.jsonl"), Path("errors.jsonl"), Path("job")};
  }
  ~JobFolder() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  static void Append(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::app) << text;
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static std::vector<SortedJson> Lines(const std::string& path) {
    std::vector<SortedJson> lines;
    std::istringstream text(Read(path));
    for (std::string line; std::getline(text, line);) lines.push_back(SortedJson::parse(line));
    return lines;
  }
  static std::string Request(const std::string& id, const SortedJson& body = {{"prompt", "ab"}}) {
    return SortedJson{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}.dump() + "\n";
  }
  // Writes lines "a0", "a1", ...
  void WriteInput(int lines) const {
    std::string text;
    for (int i = 0; i < lines; ++i) text += Request("a" + std::to_string(i));
    Write(files_.input, text);
  }
  Result<std::unique_ptr<Job>> Open(const JobOptions& options = {}) const { return Job::Open(files_, options); }
  std::string Refusal(const JobOptions& options = {}) const {
    const auto job = Open(options);
    return job.ok() ? "opened" : job.status().message();
  }

  std::filesystem::path folder_;
  JobFiles files_;
};

}  // namespace tactus::offline
