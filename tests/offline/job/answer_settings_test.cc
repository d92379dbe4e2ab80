// The options and the model that a job is bound to.
#include "offline/job/answer_settings.h"

#include "offline/job/job_folder.h"

namespace tactus::offline {
namespace {

class AnswerSettingsTest : public JobFolder {
 protected:
  // The names whose values differ between two jobs.
  static std::vector<std::string> Differences(const JobSettings& a, const JobSettings& b) {
    std::vector<std::string> names;
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      if (a[i].second != b[i].second) names.push_back(a[i].first);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  JobSettings Of(const EngineOptions& options) const {
    const auto settings = SettingsOf(options, Path("model.gguf"));
    EXPECT_TRUE(settings.ok());
    return *settings;
  }
};

TEST_F(AnswerSettingsTest, OnlyOptionsThatChangeAnswersBindAJob) {
  EngineOptions other;
  other.threads = 3;
  other.scheduler = "vllm";
  other.max_num_seqs = 7;
  other.kv_cache_memory.bytes = 1 << 30;
  other.prefix_caching = false;
  EXPECT_EQ(Differences(Of({}), Of(other)), std::vector<std::string>());
  other.dtype = "float32";
  other.quantization = "int8";
  other.seed = 5;
  other.default_max_tokens = 9;
  other.sampling.temperature = 0.5;
  other.sampling.top_k = 3;
  EXPECT_EQ(Differences(Of({}), Of(other)),
            (std::vector<std::string>{"--default-max-tokens", "--dtype", "--quantization", "--seed", "--temperature",
                                      "--top-k"}));
}

TEST_F(AnswerSettingsTest, AModelReplacedUnderTheSameNameIsDetected) {
  std::string weights(3 << 20, 'w');
  Write(Path("model.gguf"), weights);
  const JobSettings before = Of({});
  EXPECT_EQ(Differences(before, Of({})), std::vector<std::string>());
  for (char& c : weights) c = static_cast<char>(c + (&c - weights.data()) % 2);
  Write(Path("model.gguf"), weights);
  EXPECT_EQ(Differences(before, Of({})), std::vector<std::string>{"a model of content"});
}

TEST_F(AnswerSettingsTest, OnlyTheModelFilesOfAFolderCount) {
  const auto of_folder = [this] { return *SettingsOf({}, folder_.string()); };
  Write(Path("config.json"), "{}");
  const JobSettings before = of_folder();
  Write(Path("out.jsonl"), "a result beside the model");
  EXPECT_EQ(Differences(before, of_folder()), std::vector<std::string>());
  Write(Path("config.json"), "{ }");
  EXPECT_EQ(Differences(before, of_folder()), std::vector<std::string>{"a model of content"});
}

TEST_F(AnswerSettingsTest, AChatTemplateCountsByItsContent) {
  EngineOptions options;
  options.chat_template = Path("a.jinja");
  EXPECT_EQ(SettingsOf(options, "m").status().code(), StatusCode::kNotFound);
  Write(Path("a.jinja"), "one");
  Write(Path("b.jinja"), "one");
  const JobSettings before = Of(options);
  options.chat_template = Path("b.jinja");
  EXPECT_EQ(Differences(before, Of(options)), std::vector<std::string>());
  Write(Path("b.jinja"), "two");
  EXPECT_EQ(Differences(before, Of(options)), std::vector<std::string>{"--chat-template"});
}

}  // namespace
}  // namespace tactus::offline
